"""Servers of a private stack: the directory they live in, and their processes."""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import psutil

from autotune.deploy.runtime import ApplyFailed
from autotune.deploy.stack import local_of
from autotune.errors import AutotuneError
from autotune.services.base import Endpoint
from autotune.strict import split_lines
from autotune.target.read import TargetFile

# The shell writes down its own process id, then *becomes* the server: the next command recognises every
# server that a tuner leaves, whenever that was killed. Values are arguments.
_RECORD_AND_EXEC = 'echo $$ > "$0" && exec "$@"'
PID_SUFFIX = ".pid-of"
FIRST_PORT = 20_000
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


class ProcessFailed(ApplyFailed):
    """A server did not start, did not come up in time, or died; the message holds its own words."""


@dataclass(frozen=True)
class Running:
    """A server that was started in ``directory``; it leads a session of its own."""

    name: str
    process: subprocess.Popen[bytes]
    directory: Path
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def children(self) -> frozenset[int]:
        try:
            return frozenset(child.pid for child in psutil.Process(self.pid).children())
        except psutil.NoSuchProcess:
            return frozenset()

    def listens(self, port: int) -> bool:
        """Whether this server itself, or one of its children, listens on a TCP port."""
        return port in _listening(self.pid) or any(port in _listening(p) for p in self.children())

    def last_words(self, lines: int = 12) -> str:
        """The end of what it printed."""
        try:
            return "\n".join(split_lines(self.log.read_text(errors="replace"))[-lines:])
        except FileNotFoundError:
            return ""


def account() -> tuple[str, str] | None:
    """User and group that servers drop to: ``None`` unless root starts them."""
    if os.geteuid() != 0:
        return None
    for name in ("www-data", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return name, grp.getgrgid(entry.pw_gid).gr_name
    raise AutotuneError("there is neither a user www-data nor nobody to run the servers as")


def run_directory(study: Path, owner: tuple[str, str] | None) -> Path:
    """An empty directory for the stack's files, seen as ``<study>/run``.

    Where an unprivileged account could not reach into the study (a checkout in /root, say), the
    files live in a temporary directory and ``run`` links to it.
    """
    link = study / "run"
    remove_run_directory(study)
    if owner is None or reachable_by_others(study.resolve()):
        link.mkdir(mode=0o755, parents=True)
        return link.resolve()
    directory = Path(tempfile.mkdtemp(prefix="autotune-"))
    directory.chmod(0o755)
    link.symlink_to(directory)
    return directory


def remove_run_directory(study: Path) -> None:
    """Take away ``<study>/run`` and, if it is a link, what it leads to."""
    link = study / "run"
    if link.is_symlink():
        shutil.rmtree(link.resolve(), ignore_errors=True)
        link.unlink()
    elif link.exists():
        shutil.rmtree(link)


def reachable_by_others(path: Path) -> bool:
    """Whether any account may pass through every directory down to ``path``."""
    return all(
        directory.stat().st_mode & stat.S_IXOTH
        for directory in (path, *path.parents)
        if directory.exists()
    )


def is_free(address: str, port: int) -> bool:
    """Whether a server could listen there now."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As servers do: ports whose connections are only winding down count as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def allocate_ports(file: TargetFile) -> dict[tuple[str, str], int]:
    """A port for every host of every tier: the target's own, or a free one below ephemeral ones.

    The load's own connections could take an ephemeral port while its server restarts. Raises
    AutotuneError where a port the target names is in use.
    """
    candidates = _candidates(file)
    chosen: dict[tuple[str, str], int] = {}
    for name, tier in file.target.tiers.items():
        for host in tier.hosts:
            address = file.target.hosts[host].address
            if tier.port is not None:
                if not is_free(address, tier.port):
                    line, column = file.document.position(["tiers", name, "port"])
                    raise AutotuneError(
                        f"{file.path}:{line}:{column}: port {tier.port} on {address} is in use",
                        hint="end what listens there, or leave `port:` out to have a free one",
                    )
                chosen[name, host] = tier.port
            else:
                chosen[name, host] = next(p for p in candidates if is_free(address, p))
            if tier.local_cache:
                free = (p for p in candidates if is_free("127.0.0.1", p))
                chosen[local_of(name), host] = next(free)
    return chosen


def _candidates(file: TargetFile) -> Iterator[int]:
    """Ports, from a start that depends on the target and this process: two studies seldom collide."""
    ports = range(FIRST_PORT, _first_ephemeral())
    start = crc32(f"{file.path.resolve()} {os.getpid()}".encode()) % len(ports)
    yield from (*ports[start:], *ports[:start])


def _first_ephemeral() -> int:
    try:
        return max(FIRST_PORT + 1000, int(EPHEMERAL.read_text().split()[0]))
    except (OSError, ValueError):
        return 32_768


def start(name: str, argv: Sequence[str], directory: Path) -> Running:
    """Start a server in the foreground of its own session, output to ``<name>.out``."""
    log = directory / f"{name}.out"
    record = directory / f"{name}{PID_SUFFIX}"
    with log.open("ab") as output:
        process = subprocess.Popen(
            ["/bin/sh", "-c", _RECORD_AND_EXEC, str(record), *argv],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    return Running(name, process, directory, log)


def wait_until(condition: Callable[[], bool], running: Running, seconds: float, what: str) -> None:
    """Wait for ``condition``. Raises ProcessFailed when the server dies or the time is up."""
    deadline = time.monotonic() + seconds
    while not condition():
        if not running.alive:
            raise ProcessFailed(f"{running.name} died while {what}: {running.last_words()}")
        if time.monotonic() > deadline:
            raise ProcessFailed(
                f"{running.name} was not done {what} after {seconds:g} s: {running.last_words()}"
            )
        time.sleep(0.005)


def is_up(running: Running, place: Endpoint | str) -> bool:
    """Whether this very server listens at an endpoint, or accepts at a socket in its directory.

    Connecting to the endpoint would not tell: another server may listen there while ours still tries.
    """
    if isinstance(place, Endpoint):
        return running.listens(place.port)
    try:
        unix_connection(running.directory, place, 1.0).close()
    except OSError:
        return False
    return True


def unix_connection(directory: Path, name: str, timeout: float) -> socket.socket:
    """A connection to a unix socket, by its path or its name in ``directory``. Raises OSError."""
    path = directory / name
    # Through the open directory: a socket's own path may be longer than the kernel takes.
    handle = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        client.settimeout(timeout)
        client.connect(f"/proc/self/fd/{handle}/{path.name}")
    except OSError:
        client.close()
        raise
    finally:
        os.close(handle)
    return client


def _listening(pid: int) -> frozenset[int]:
    try:
        connections = psutil.Process(pid).net_connections(kind="tcp")
    except psutil.Error:
        return frozenset()
    return frozenset(c.laddr.port for c in connections if c.status == psutil.CONN_LISTEN)


def reload(running: Running, signal_name: str, seconds: float = 20.0) -> None:
    """Signal the server to read its files again and wait until its old workers are gone.

    An Apache process that waits on a kept-alive connection stays until that has been idle too long.
    """
    old = running.children()
    os.kill(running.pid, getattr(signal, f"SIG{signal_name}"))
    wait_until(lambda: not (old & running.children()), running, seconds, "reloading")


def stop(running: Running, seconds: float = 5.0) -> None:
    """End the server and all of its session: by SIGTERM, then by SIGKILL."""
    _end(_session(running.pid, running.directory), seconds)
    running.process.wait()
    (running.directory / f"{running.name}{PID_SUFFIX}").unlink(missing_ok=True)


def end_left_behind(directory: Path) -> tuple[str, ...]:
    """End servers that an earlier, killed tuner left running under ``directory``; their names."""
    ended = []
    for record in sorted(directory.glob(f"*/*{PID_SUFFIX}")):
        try:
            pid = int(record.read_text())
        except (OSError, ValueError):
            pid = 0
        processes = _session(pid, record.parent) if pid else []
        if processes:
            _end(processes, 5.0)
            ended.append(record.name.removesuffix(PID_SUFFIX))
        record.unlink(missing_ok=True)
    return tuple(ended)


def _session(leader: int, directory: Path) -> list[psutil.Process]:
    """Processes of the session ``leader`` that work in ``directory``; those of a reused id do not."""
    session = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == leader and _works_in(process, directory):
                session.append(process)
        except (ProcessLookupError, psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return session


def _works_in(process: psutil.Process, directory: Path) -> bool:
    return Path(process.cwd()).is_relative_to(directory.resolve())


def _end(processes: list[psutil.Process], seconds: float) -> None:
    # The leader first: masters end their workers in good order.
    leaders = [p for p in processes if p.pid == _sid(p)] or processes
    for process in leaders:
        _quietly(process.terminate)
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    for process in alive:
        _quietly(process.kill)
    psutil.wait_procs(alive, timeout=seconds)


def _sid(process: psutil.Process) -> int:
    try:
        return os.getsid(process.pid)
    except ProcessLookupError:
        return -1


def _quietly(act: Callable[[], None]) -> None:
    try:
        act()
    except psutil.NoSuchProcess:
        return
