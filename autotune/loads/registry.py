"""All load generators. Add a generator as a plug-in, or as a module with fixtures and a line in this
file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path, PurePath

from autotune import foreign_files, plugins
from autotune.loads import k6_script, workload
from autotune.loads.base import LoadGenerator
from autotune.loads.closed_load import AbGenerator, ClosedLoopGenerator, WrkGenerator
from autotune.loads.custom_generator import CustomGenerator
from autotune.loads.httperf import HttperfGenerator
from autotune.loads.httperf_sessions import SessionGenerator
from autotune.loads.k6 import K6Generator
from autotune.loads.oha import OhaGenerator
from autotune.loads.target_request import list_load_addresses
from autotune.loads.workload import UnusableWorkload
from autotune.target import requests_file
from autotune.target.path_hints import find_relative_hint
from autotune.target.read_target import TargetFile
from autotune.target.requests_file import SessionStep, WeightedVisit

# Closed loops, in order of preference. The program must be installed on the load host, and the target
# must allow it.
CLOSED_LOOP_GENERATORS: dict[str, ClosedLoopGenerator] = {
    "wrk": WrkGenerator(),
    "ab": AbGenerator(),
}
LOAD_GENERATORS: dict[str, LoadGenerator] = plugins.merge_plugins(
    "generators", {"httperf": HttperfGenerator(), "k6": K6Generator(), "oha": OhaGenerator()}
)


def _read_text(path: Path) -> str:
    return foreign_files.read_named_file(path, foreign_files.MAX_RECORD_BYTES).decode("utf-8-sig")


# Keys of `load:` that name a file with requests, and the function that reads the file.
REQUEST_READERS: Mapping[str, Callable[[Path], tuple[WeightedVisit, ...]]] = {
    "requests": requests_file.read_visits,
    "uris": lambda path: workload.parse_uris(_read_text(path)),
    "sessions": lambda path: workload.parse_sessions(_read_text(path)),
}


def find_generator(target_file: TargetFile) -> LoadGenerator:
    """Return the generator that a target selects. Raises TargetError for an unknown generator."""
    if target_file.target.load.command:
        return _build_custom_generator(target_file, target_file.target.load.command)
    load = LOAD_GENERATORS.get(target_file.target.load.generator)
    if load is None:
        generator_name = target_file.target.load.generator
        raise target_file.document.unknown_name_error(
            ["load", "generator"], "generator", LOAD_GENERATORS, generator_name
        )
    _check_addresses(target_file, load)
    _check_request(target_file, load)
    if script := target_file.target.load.script:
        with _locate_errors(target_file, "script", script):
            return k6_script.read_script(
                _resolve_path(target_file, script), target_file.target.load.requests_per_run
            )
    if target_file.target.load.http == "2" and not load.http2:
        generator_names = [
            generator_name
            for generator_name, generator in LOAD_GENERATORS.items()
            if generator.http2
        ]
        hint = f"load: {{generator: {' or '.join(generator_names)}}}"
        reason = f"{load.name} supports only HTTP/1.1"
        raise target_file.document.build_error(["load", "http"], reason, hint=hint)
    for load_key, reader in REQUEST_READERS.items():
        if path := getattr(target_file.target.load, load_key):
            with _locate_errors(target_file, load_key, path):
                visits = reader(_resolve_path(target_file, path))
                return _with_visits(target_file, load, load_key, visits)
    return load


def _check_addresses(target_file: TargetFile, load: LoadGenerator) -> None:
    """Raise TargetError if the generator cannot connect to an address of the entry tier."""
    if load.ipv6 or target_file.target.simulated:
        return
    for address in list_load_addresses(target_file.target):
        if ":" in address:
            reason = f"{load.name} cannot connect to the IPv6 address {address}"
            hint = "write `load: {generator: oha}` or `load: {generator: k6}`"
            raise target_file.document.build_error(["load", "generator"], reason, hint=hint)


def _check_request(target_file: TargetFile, load: LoadGenerator) -> None:
    """Raise TargetError if the generator cannot send the request in the target itself."""
    settings = target_file.target.load
    step = SessionStep.model_construct(path=settings.url or settings.path, method=settings.method)
    if reason := load.find_request_error(step):
        hint = "write `load: {generator: oha}`"
        raise target_file.document.build_error(["load", "method"], reason, hint=hint)
    if reason := load.find_request_error(step.model_copy(update={"body": settings.body})):
        hint = "write `load: {generator: k6}`"
        raise target_file.document.build_error(["load", "body"], reason, hint=hint)


def _with_visits(
    target_file: TargetFile, load: LoadGenerator, load_key: str, visits: tuple[WeightedVisit, ...]
) -> LoadGenerator:
    """Return the generator with the visits from a file. Raises UnusableWorkload and TargetError."""
    if isinstance(load, HttperfGenerator) and any(len(visit.session_steps) > 1 for visit in visits):
        _check_sessions(target_file, load_key)
        load = SessionGenerator()
    return load.with_visits(visits)


def _check_sessions(target_file: TargetFile, load_key: str) -> None:
    """Raise TargetError if the load uses TLS.

    On an open connection, httperf does not read the rest of a long TLS record. httperf then counts a
    timeout that the server did not cause.
    """
    if target_file.target.load.uses_tls:
        reason = "httperf cannot read long responses over TLS in sessions"
        raise target_file.document.build_error(
            ["load", load_key], reason, hint="write `load: {generator: k6, requests: FILE}`"
        )


def compute_request_digests(target_file: TargetFile) -> dict[str, str]:
    """Return SHA-256 digests of the files with requests, by the file's name in the target. The digest
    of a missing file is empty.
    """
    load = target_file.target.load
    file_names = (name for name in (load.requests, load.uris, load.sessions, load.script) if name)
    paths = {name: _resolve_path(target_file, name) for name in file_names}
    digests = {
        name: sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for name, path in paths.items()
    }
    return {**_compute_import_digests(target_file), **digests}


def _compute_import_digests(target_file: TargetFile) -> dict[str, str]:
    """Return digests of the files that a k6 script imports or opens, by path relative to the target.
    Raises TargetError if such a file cannot be read.
    """
    if not (script := target_file.target.load.script):
        return {}
    path = _resolve_path(target_file, script).resolve()
    with _locate_errors(target_file, "script", script):
        texts = k6_script.read_texts(path)
    digests = {}
    for imported_path, text in texts.items():
        if imported_path != path:
            name = PurePath(script).parent / os.path.relpath(imported_path, path.parent)
            digests[os.path.normpath(name)] = sha256(text.encode()).hexdigest()
    return digests


def _resolve_path(target_file: TargetFile, path: str) -> Path:
    """Return the path of a file in the target, resolved relative to the target file."""
    return target_file.directory / path


@contextmanager
def _locate_errors(target_file: TargetFile, load_key: str, path: str) -> Iterator[None]:
    """Report an error in a file at the position in the target that names the file."""
    try:
        yield
    except UnusableWorkload as error:
        place = f"{path}:{error.line}" if error.line else path
        if error.index is not None and load_key == "requests":
            place = (
                f"{path}:{requests_file.find_line(_resolve_path(target_file, path), error.index)}"
            )
        hint = error.hint or _find_missing_hint(target_file, path)
        message = f"{place}: {error}"
        raise target_file.document.build_error(["load", load_key], message, hint=hint) from error
    except (OSError, ValueError) as error:
        message = f"{path}: {error}"
        hint = _find_missing_hint(target_file, path)
        if isinstance(error, OSError):
            message = f"cannot read {path}: {error.strerror}"
            hint = "name a file" if isinstance(error, IsADirectoryError) else hint
        elif isinstance(error, UnicodeDecodeError):
            message, hint = f"{path} is not UTF-8 text", "save it as UTF-8"
        raise target_file.document.build_error(["load", load_key], message, hint=hint) from error


def _build_custom_generator(target_file: TargetFile, command: tuple[str, ...]) -> LoadGenerator:
    """Return the user's generator. If the load host is this machine, the command's path is relative
    to the target file.
    """
    program = _resolve_path(target_file, command[0])
    is_local_path = not target_file.target.load.hosts and "/" in command[0]
    if is_local_path and not program.exists():
        raise target_file.document.build_error(
            ["load", "command", 0],
            f"{command[0]!r} does not exist",
            hint=f"write the path relative to {target_file.path.name}",
        )
    return CustomGenerator((str(program), *command[1:]) if is_local_path else command)


def _find_missing_hint(target_file: TargetFile, path: str) -> str | None:
    """Return the hint for a file that does not exist, or else ``None``."""
    is_missing = not _resolve_path(target_file, path).exists()
    return find_relative_hint(path, target_file.path.name) if is_missing else None
