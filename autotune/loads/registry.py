"""Every load generator. A new one needs a module, its fixtures and a line here, or is a plug-in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from autotune import foreign_files, plugins
from autotune.loads import k6_script, workload
from autotune.loads.base import LoadGenerator
from autotune.loads.closed_load import AbGenerator, ClosedLoopGenerator, WrkGenerator
from autotune.loads.custom_generator import CustomGenerator
from autotune.loads.httperf import HttperfGenerator
from autotune.loads.httperf_sessions import SessionGenerator
from autotune.loads.k6 import K6Generator
from autotune.loads.oha import OhaGenerator
from autotune.target import requests_file
from autotune.target.read_target import TargetFile

ParsedFile = TypeVar("ParsedFile")

# Closed loops: the first one that a load host has, and the target allows, is taken.
CLOSED_LOOP_GENERATORS: dict[str, ClosedLoopGenerator] = {
    "wrk": WrkGenerator(),
    "ab": AbGenerator(),
}
LOAD_GENERATORS: dict[str, LoadGenerator] = plugins.merge_plugins(
    "generators", {"httperf": HttperfGenerator(), "k6": K6Generator(), "oha": OhaGenerator()}
)


def find_generator(file: TargetFile) -> LoadGenerator:
    """The generator a target names. Raises TargetError for one that does not exist."""
    if file.target.load.command:
        return _build_custom_generator(file, file.target.load.command)
    load = LOAD_GENERATORS.get(file.target.load.generator)
    if load is None:
        name = file.target.load.generator
        raise file.document.unknown_name_error(
            ["load", "generator"], "generator", LOAD_GENERATORS, name
        )
    if load.supported_methods is not None and file.target.load.method not in load.supported_methods:
        reason = f"{load.name} sends no {file.target.load.method}"
        raise file.document.build_error(["load", "method"], reason, hint="load: {generator: oha}")
    if script := file.target.load.script:
        with _locate_errors(file, "script", script):
            return k6_script.read_script(
                _path_beside_target(file, script), file.target.load.requests_per_run
            )
    if file.target.load.requests:
        return _with_request_file(file, load, file.target.load.requests)
    if file.target.load.http == "2" and not load.http2:
        speaking = [name for name, other in LOAD_GENERATORS.items() if other.http2]
        hint = f"load: {{generator: {' or '.join(speaking)}}}"
        reason = f"{load.name} speaks HTTP/1.1 alone"
        raise file.document.build_error(["load", "http"], reason, hint=hint)
    if file.target.load.uris:
        return HttperfGenerator(
            uris=_read_request_file(file, "uris", file.target.load.uris, workload.parse_uris)
        )
    if file.target.load.sessions:
        _check_sessions(file, "sessions")
        return SessionGenerator(
            _read_request_file(
                file, "sessions", file.target.load.sessions, workload.parse_session_kinds
            )
        )
    return load


def _check_sessions(file: TargetFile, key: str) -> None:
    """Raises TargetError over TLS: httperf leaves the rest of a long record unread while a connection
    stays open, and counts a timeout that the server did not cause."""
    if file.target.load.uses_tls:
        reason = "httperf cannot read long answers over TLS on connections that stay open"
        raise file.document.build_error(
            ["load", key], reason, hint="load: {generator: k6, requests: FILE}"
        )


def compute_request_digests(file: TargetFile) -> dict[str, str]:
    """SHA-256 of the files that describe the requests, by their names in the target; empty for a file
    that is gone."""
    load = file.target.load
    listed = (name for name in (load.requests, load.uris, load.sessions, load.script) if name)
    paths = {name: _path_beside_target(file, name) for name in listed}
    return {name: sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
            for name, path in paths.items()}  # fmt: skip


def _with_request_file(file: TargetFile, load: LoadGenerator, path: str) -> LoadGenerator:
    """The generator with what a file of requests says."""
    visits = requests_file.read_visits(_path_beside_target(file, path))
    if isinstance(load, HttperfGenerator) and any(len(visit.session_steps) > 1 for visit in visits):
        _check_sessions(file, "requests")
        load = SessionGenerator(())
    with _locate_errors(file, "requests", path):
        return load.with_visits(visits)


def _read_request_file(
    file: TargetFile, key: str, path: str, reader: Callable[[str], ParsedFile]
) -> ParsedFile:
    """What a file named in the target says."""
    with _locate_errors(file, key, path):
        return reader(
            foreign_files.read_named_file(
                _path_beside_target(file, path), foreign_files.MAX_RECORD_BYTES
            ).decode()
        )


def _path_beside_target(file: TargetFile, path: str) -> Path:
    """A file that the target names is looked for beside it."""
    return file.path.resolve().parent / path


@contextmanager
def _locate_errors(file: TargetFile, key: str, path: str) -> Iterator[None]:
    """Report what is wrong with a file at the place in the target that names it."""
    try:
        yield
    except OSError as error:
        reason = f"{path} cannot be read: {error.strerror}"
        raise file.document.build_error(["load", key], reason) from error
    except ValueError as error:
        raise file.document.build_error(["load", key], f"{path}: {error}") from error


def _build_custom_generator(file: TargetFile, command: tuple[str, ...]) -> LoadGenerator:
    """A program on this machine is looked for beside the target, on load hosts as it is written."""
    program = _path_beside_target(file, command[0])
    here = not file.target.load.hosts and "/" in command[0]
    if here and not program.exists():
        raise file.document.build_error(
            ["load", "command", 0], f"there is no program {command[0]!r}"
        )
    return CustomGenerator((str(program), *command[1:]) if here else command)
