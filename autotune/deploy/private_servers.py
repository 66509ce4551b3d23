"""Servers of a private stack: their ports, directories and processes."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import psutil

from autotune import foreign_files
from autotune.deploy import run_directories
from autotune.deploy.host_lock import read_start_ticks
from autotune.deploy.run_directories import RunDirectory
from autotune.deploy.runtime import ApplyFailed
from autotune.deploy.stack import build_local_cache_name
from autotune.errors import AutotuneError
from autotune.foreign_files import ForeignFileError
from autotune.services.base import Endpoint
from autotune.strict_parsing import parse_uint, split_lines
from autotune.target.read_target import TargetFile
from autotune.target.runtimes import format_runtime_names

# The shell records its process ID and is then replaced by the server. A later autotune command can
# thus find every server that a killed tuner left. Paths and words are arguments, which the shell does
# not interpret.
_RECORD_AND_EXEC = 'read -r stat < "/proc/$$/stat" && echo "$stat" > "$0" && exec "$@"'
PID_SUFFIX = ".pid-of"
FIRST_PORT = 20_000
DRAINING_SECONDS = 3.0  # time for old workers to finish their connections
EPHEMERAL_PORTS_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")


@dataclass(frozen=True)
class SessionLeader:
    """The first process in a server's session: its ID, and its start in clock ticks since boot."""

    pid: int
    ticks: int


class ProcessFailed(ApplyFailed):
    """A server did not start in time, or exited. The message contains the server's output."""


@dataclass(frozen=True)
class ServerProcess:
    """A server that runs in ``directory`` and leads a separate session."""

    name: str
    process: subprocess.Popen[bytes]
    directory: Path
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def child_pids(self) -> frozenset[int]:
        try:
            return frozenset(child.pid for child in psutil.Process(self.pid).children())
        except psutil.NoSuchProcess:
            return frozenset()

    def is_listening(self, port: int) -> bool:
        """True if the server or one of its children listens on a TCP port."""
        return port in _find_listening_ports(self.pid) or any(
            port in _find_listening_ports(p) for p in self.child_pids()
        )

    def read_log_tail(self, line_count: int = 12) -> str:
        """Return the last lines of the server's output."""
        try:
            return "\n".join(split_lines(self.log.read_text(errors="replace"))[-line_count:])
        except FileNotFoundError:
            return ""


def find_server_account() -> tuple[str, str] | None:
    """Return the user and group for servers that root starts, or ``None`` if this account is not
    root.
    """
    if os.geteuid() != 0:
        return None
    for account_name in ("www-data", "nobody"):
        try:
            account = pwd.getpwnam(account_name)
        except KeyError:
            continue
        return account_name, grp.getgrgid(account.pw_gid).gr_name
    raise AutotuneError("servers need the account www-data or nobody, but neither exists")


def is_port_free(address: str, port: int) -> bool:
    """True if a server could currently listen on this address and port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe_socket:
        # Servers set the same option, so a port with only closing connections counts as free.
        probe_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe_socket.bind((address, port))
            probe_socket.listen(1)
        except OSError:
            return False
    return True


def allocate_ports(file: TargetFile) -> dict[tuple[str, str], int]:
    """Return a port for every host of every tier: the target's port, or a free port below the
    ephemeral ports.

    An ephemeral port is not safe: while a server restarts, a connection of the load generator could
    take the port. Raises AutotuneError if a port in the target is in use.
    """
    candidates = _list_candidate_ports(file)
    allocated_ports: dict[tuple[str, str], int] = {}
    for tier_name, tier in file.target.tiers.items():
        for host in tier.hosts:
            address = file.target.hosts[host].address
            _check_local_address(file, host, address)
            if tier.port is not None:
                if not is_port_free(address, tier.port):
                    line, column = file.document.find_position(["tiers", tier_name, "port"])
                    raise AutotuneError(
                        f"{file.path}:{line}:{column}: port {tier.port} on {address} is in use",
                        hint="stop the process that listens there, or remove `port:` to use a free port",
                    )
                allocated_ports[tier_name, host] = tier.port
            else:
                allocated_ports[tier_name, host] = next(
                    p for p in candidates if is_port_free(address, p)
                )
            if tier.local_cache:
                free_ports = (p for p in candidates if is_port_free("127.0.0.1", p))
                allocated_ports[build_local_cache_name(tier_name), host] = next(free_ports)
    return allocated_ports


def _check_local_address(file: TargetFile, host: str, address: str) -> None:
    """Raise AutotuneError unless ``address`` is an address of this machine."""
    if is_port_free(address, 0):
        return
    line, column = file.document.find_position(["hosts", host])
    raise AutotuneError(
        f"{file.path}:{line}:{column}: this machine has no address {address}",
        hint="use 127.0.0.1, or an address that `ip address` shows; services on other machines "
        f"need `transport: ssh` and {format_runtime_names(installed=True)}",
    )


def _list_candidate_ports(file: TargetFile) -> Iterator[int]:
    """Yield candidate ports. The first port depends on the target and the process, so that
    concurrent studies rarely try the same ports.
    """
    ports = range(FIRST_PORT, _read_first_ephemeral_port())
    start_index = crc32(f"{file.path.resolve()} {os.getpid()}".encode()) % len(ports)
    yield from (*ports[start_index:], *ports[:start_index])


def _read_first_ephemeral_port() -> int:
    try:
        return max(FIRST_PORT + 1000, int(EPHEMERAL_PORTS_FILE.read_text().split()[0]))
    except (OSError, ValueError):
        return 32_768


def start_server(name: str, argv: Sequence[str], directory: Path) -> ServerProcess:
    """Start a server in the foreground of a new session, and write its output to ``<name>.out``."""
    log_path = directory / f"{name}.out"
    record = directory / f"{name}{PID_SUFFIX}"
    with log_path.open("ab") as output:
        process = subprocess.Popen(
            ["/bin/sh", "-c", _RECORD_AND_EXEC, str(record), *argv],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    return ServerProcess(name, process, directory, log_path)


def wait_until(
    condition: Callable[[], bool], server: ServerProcess, timeout_seconds: float, activity: str
) -> None:
    """Wait until ``condition()`` is true. Raises ProcessFailed if the server exits, or after
    ``timeout_seconds``.
    """
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if not server.is_alive:
            raise ProcessFailed(f"{server.name} exited while {activity}: {server.read_log_tail()}")
        if time.monotonic() > deadline:
            raise ProcessFailed(
                f"{server.name} was still {activity} after {timeout_seconds:g} s: "
                f"{server.read_log_tail()}"
            )
        time.sleep(0.005)


def is_accepting(server: ServerProcess, address: Endpoint | str) -> bool:
    """True if this server listens at an endpoint, or accepts connections on a socket in its
    directory.

    A successful connection to the endpoint is not enough, because another server could listen on
    the same endpoint.
    """
    if isinstance(address, Endpoint):
        return server.is_listening(address.port)
    try:
        open_unix_connection(server.directory, address, 1.0).close()
    except OSError:
        return False
    return True


def open_unix_connection(directory: Path, socket_name: str, timeout: float) -> socket.socket:
    """Return a connection to a Unix socket, by path or by name in ``directory``. Raises OSError."""
    path = directory / socket_name
    # Connect through the open directory, because the socket's full path may be too long for the kernel.
    directory_descriptor = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        client.settimeout(timeout)
        client.connect(f"/proc/self/fd/{directory_descriptor}/{path.name}")
    except OSError:
        client.close()
        raise
    finally:
        os.close(directory_descriptor)
    return client


def _find_listening_ports(pid: int) -> frozenset[int]:
    try:
        connections = psutil.Process(pid).net_connections(kind="tcp")
    except psutil.Error:
        return frozenset()
    return frozenset(c.laddr.port for c in connections if c.status == psutil.CONN_LISTEN)


def reload_server(server: ServerProcess, signal_name: str, timeout_seconds: float = 20.0) -> int:
    """Signal the server to reread its files, and wait until new workers have replaced the old workers.

    Old workers that only finish their connections get a few seconds. Returns the number of old workers
    that still serve earlier connections.
    """
    earlier_pids, start_time = server.child_pids(), time.monotonic()
    os.kill(server.pid, getattr(signal, f"SIG{signal_name}"))

    def is_replaced() -> bool:
        old_pids = earlier_pids & server.child_pids()
        return not old_pids or (
            time.monotonic() > start_time + DRAINING_SECONDS and _are_draining(server, old_pids)
        )

    wait_until(is_replaced, server, timeout_seconds, "reloading")
    return len(earlier_pids & server.child_pids())


def _are_draining(server: ServerProcess, old_pids: frozenset[int]) -> bool:
    """True if no process of ``old_pids`` accepts connections, and a newer process does."""
    new_pids = server.child_pids() - old_pids
    listening_sockets = _find_listening_sockets(server.pid)
    serving_pids = {
        pid
        for pid in (server.pid, *new_pids, *old_pids)
        if _find_socket_inodes(pid) & listening_sockets
    }
    return bool(new_pids and serving_pids) and not serving_pids & old_pids


def _find_listening_sockets(pid: int) -> frozenset[str]:
    """Return the inodes of a process's listening sockets, in its network namespace (proc(5))."""
    net_directory, inodes = Path(f"/proc/{pid}/net"), set[str]()
    for table_name, state_column, listening_state, inode_column in (
        ("tcp", 3, "0A", 9),
        ("tcp6", 3, "0A", 9),
        ("unix", 3, "00010000", 6),
    ):
        try:
            table_rows = split_lines((net_directory / table_name).read_text(errors="replace"))[1:]
        except OSError:
            continue
        inodes |= {
            row.split()[inode_column]
            for row in table_rows
            if row.split()[state_column] == listening_state
        }
    return frozenset(inodes)


def _find_socket_inodes(pid: int) -> frozenset[str]:
    inodes = set[str]()
    with contextlib.suppress(OSError):  # the process exited
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # the descriptor was closed in between
                inodes.add(str(descriptor.readlink()).removeprefix("socket:[").rstrip("]"))
    return frozenset(inodes)


def stop_server(server: ServerProcess, timeout_seconds: float = 5.0) -> None:
    """Stop the server and its session with SIGTERM, then with SIGKILL."""
    leader = SessionLeader(server.pid, read_start_ticks(server.pid) or 0)
    _terminate(_find_session_processes(leader, server.directory), timeout_seconds)
    server.process.kill()  # no effect after the leader has ended
    server.process.wait()
    (server.directory / f"{server.name}{PID_SUFFIX}").unlink(missing_ok=True)


def stop_orphaned(run_directory: RunDirectory) -> tuple[str, ...]:
    """Stop servers that a killed tuner left in its run directory. Return their names."""
    stopped_names: list[str] = []
    if not run_directories.is_run_directory(directory := run_directory.path):
        return ()
    subdirectories = [
        n
        for n in foreign_files.list_names(directory)
        if foreign_files.describe_kind(directory, n) == "a directory"
    ]
    for server_directory, file_name in (
        (directory / p, n) for p in subdirectories for n in foreign_files.list_names(directory, p)
    ):
        if not file_name.endswith(PID_SUFFIX):
            continue
        server = file_name.removesuffix(PID_SUFFIX)
        leader = read_session_leader(server_directory, server)
        if leader and (processes := _find_session_processes(leader, server_directory)):
            _terminate(processes, 5.0)
            stopped_names.append(server)
        (server_directory / file_name).unlink(missing_ok=True)
    return tuple(stopped_names)


def read_session_leader(directory: Path, server: str) -> SessionLeader | None:
    """Return the process that ``start_server`` recorded for a server, or ``None`` without a record."""
    record_name = f"{server}{PID_SUFFIX}"
    try:
        content = foreign_files.read_bytes(
            directory, record_name, foreign_files.MAX_SMALL_FILE_BYTES
        )
        pid, _, stat_fields = content.decode().partition(" ")
        return SessionLeader(
            parse_uint(pid), parse_uint(stat_fields.rpartition(")")[2].split()[19])
        )
    except (OSError, ValueError, IndexError, ForeignFileError):
        return None


def _find_session_processes(leader: SessionLeader, directory: Path) -> list[psutil.Process]:
    """Return the processes of a session in ``directory`` that belong to this account or to its
    servers' account.

    The result is empty if another process now has the leader's ID, because the session has then
    ended.
    """
    if read_start_ticks(leader.pid) not in (None, leader.ticks):
        return []
    session_processes = []
    # `process_iter` would return a cached object for a reused process ID, and refuse to signal it.
    for pid in psutil.pids():
        try:
            if os.getsid(pid) != leader.pid:
                continue
            process = psutil.Process(pid)
            if process.uids().real in _find_server_uids() and _works_in_directory(
                process, directory
            ):
                session_processes.append(process)
        except (ProcessLookupError, psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return session_processes


def _find_server_uids() -> set[int]:
    """Return the user IDs under which servers run."""
    server_account = find_server_account()
    return {os.geteuid(), *([pwd.getpwnam(server_account[0]).pw_uid] if server_account else ())}


def _works_in_directory(process: psutil.Process, directory: Path) -> bool:
    return Path(process.cwd()).is_relative_to(directory.resolve())


def _terminate(processes: list[psutil.Process], timeout_seconds: float) -> None:
    # Stop the leader first, because master processes stop their workers gracefully.
    leaders = [p for p in processes if p.pid == _read_session_id(p)] or processes
    for process in leaders:
        _ignore_ended_process(process.terminate)
    _, remaining_processes = psutil.wait_procs(processes, timeout=timeout_seconds)
    for process in remaining_processes:
        _ignore_ended_process(process.kill)
    psutil.wait_procs(remaining_processes, timeout=timeout_seconds)


def _read_session_id(process: psutil.Process) -> int:
    try:
        return os.getsid(process.pid)
    except ProcessLookupError:
        return -1


def _ignore_ended_process(action: Callable[[], None]) -> None:
    try:
        action()
    except psutil.NoSuchProcess:
        return
