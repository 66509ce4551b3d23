"""Every load generator. A new one needs a module, its fixtures and a line here, or is a plug-in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from autotune import foreign_files, plugins
from autotune.loads import k6_script, workload
from autotune.loads.base import Load
from autotune.loads.closed import Ab, ClosedLoad, Wrk
from autotune.loads.httperf import Httperf
from autotune.loads.httperf_sessions import HttperfSessions
from autotune.loads.k6 import K6
from autotune.loads.oha import Oha
from autotune.loads.own import OwnLoad
from autotune.target import requests
from autotune.target.read import TargetFile

Made = TypeVar("Made")

# Closed loops: the first one that a load host has, and the target allows, is taken.
CLOSED: dict[str, ClosedLoad] = {"wrk": Wrk(), "ab": Ab()}
LOADS: dict[str, Load] = plugins.by_name(
    "generators", {"httperf": Httperf(), "k6": K6(), "oha": Oha()}
)


def chosen(file: TargetFile) -> Load:
    """The generator a target names. Raises TargetError for one that does not exist."""
    if file.target.load.command:
        return _own(file, file.target.load.command)
    load = LOADS.get(file.target.load.generator)
    if load is None:
        name = file.target.load.generator
        raise file.document.unknown(["load", "generator"], "generator", LOADS, name)
    if load.methods is not None and file.target.load.method not in load.methods:
        why = f"{load.name} sends no {file.target.load.method}"
        raise file.document.error(["load", "method"], why, hint="load: {generator: oha}")
    if script := file.target.load.script:
        with _telling(file, "script", script):
            return k6_script.of_file(_beside(file, script), file.target.load.requests_per_run)
    if file.target.load.requests:
        return _asking(file, load, file.target.load.requests)
    if file.target.load.http == "2" and not load.http2:
        speaking = [name for name, other in LOADS.items() if other.http2]
        hint = f"load: {{generator: {' or '.join(speaking)}}}"
        why = f"{load.name} speaks HTTP/1.1 alone"
        raise file.document.error(["load", "http"], why, hint=hint)
    if file.target.load.uris:
        return Httperf(uris=_read(file, "uris", file.target.load.uris, workload.uris))
    if file.target.load.sessions:
        _check_sessions(file, "sessions")
        return HttperfSessions(_read(file, "sessions", file.target.load.sessions, workload.kinds))
    return load


def _check_sessions(file: TargetFile, key: str) -> None:
    """Raises TargetError over TLS: httperf leaves the rest of a long record unread while a connection
    stays open, and counts a timeout that the server did not cause."""
    if file.target.load.tls:
        why = "httperf cannot read long answers over TLS on connections that stay open"
        raise file.document.error(["load", key], why, hint="load: {generator: k6, requests: FILE}")


def digests(file: TargetFile) -> dict[str, str]:
    """SHA-256 of the files that describe the requests, by their names in the target; empty for a file
    that is gone."""
    load = file.target.load
    listed = (name for name in (load.requests, load.uris, load.sessions, load.script) if name)
    paths = {name: _beside(file, name) for name in listed}
    return {name: sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
            for name, path in paths.items()}  # fmt: skip


def _asking(file: TargetFile, load: Load, path: str) -> Load:
    """The generator with what a file of requests says."""
    visits = requests.read(_beside(file, path))
    if isinstance(load, Httperf) and any(len(visit.steps) > 1 for visit in visits):
        _check_sessions(file, "requests")
        load = HttperfSessions(())
    with _telling(file, "requests", path):
        return load.asking(visits)


def _read(file: TargetFile, key: str, path: str, reader: Callable[[str], Made]) -> Made:
    """What a file named in the target says."""
    with _telling(file, key, path):
        return reader(foreign_files.read_named(_beside(file, path), foreign_files.RECORD).decode())


def _beside(file: TargetFile, path: str) -> Path:
    """A file that the target names is looked for beside it."""
    return file.path.resolve().parent / path


@contextmanager
def _telling(file: TargetFile, key: str, path: str) -> Iterator[None]:
    """Report what is wrong with a file at the place in the target that names it."""
    try:
        yield
    except OSError as error:
        why = f"{path} cannot be read: {error.strerror}"
        raise file.document.error(["load", key], why) from error
    except ValueError as error:
        raise file.document.error(["load", key], f"{path}: {error}") from error


def _own(file: TargetFile, command: tuple[str, ...]) -> Load:
    """A program on this machine is looked for beside the target, on load hosts as it is written."""
    program = _beside(file, command[0])
    here = not file.target.load.hosts and "/" in command[0]
    if here and not program.exists():
        raise file.document.error(["load", "command", 0], f"there is no program {command[0]!r}")
    return OwnLoad((str(program), *command[1:]) if here else command)
