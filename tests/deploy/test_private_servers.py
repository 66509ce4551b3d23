"""Servers that listen themselves, and those whose children do."""

from __future__ import annotations

import os
import pwd
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from autotune.deploy import private_servers
from autotune.deploy.host_commands import Command, run_commands
from autotune.deploy.private_servers import (
    ProcessFailed,
    ServerProcess,
    allocate_ports,
    is_accepting,
    reload_server,
    start_server,
    stop_server,
    wait_until,
)
from autotune.errors import AutotuneError
from autotune.services.base import Endpoint
from autotune.target.read_target import read_target
from tests.deploy.doubles import Here

LOCAL = Path(__file__).parents[2] / "targets" / "local.yaml"
LISTENS = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1])"
LAST_PID = Path("/proc/sys/kernel/ns_last_pid")
WAITS = "import sys; sys.stdout.flush(); sys.stdin.read()"


@pytest.mark.parametrize("by_child", [True, False])
def test_it_is_up_whichever_of_its_processes_listens(tmp_path: Path, by_child: bool) -> None:
    argv = [sys.executable, "-c", f"{LISTENS}; {WAITS}"]
    if by_child:
        argv = [sys.executable, "-c", f"import subprocess; subprocess.run({argv!r})"]
    with subprocess.Popen(
        argv, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        running = ServerProcess("server", process, tmp_path, tmp_path / "log")
        assert is_accepting(running, Endpoint("127.0.0.1", port))
        assert not is_accepting(running, Endpoint("127.0.0.1", 1))
        assert not is_accepting(running, "none.sock")
        stop_server(running, timeout_seconds=0.5)  # a child that ignores its parent's end is killed


def test_a_server_that_has_stopped_leaves_no_record_of_its_process(tmp_path: Path) -> None:
    running = start_server("server", [sys.executable, "-c", WAITS], tmp_path)
    wait_until((tmp_path / "server.pid-of").exists, running, 60.0, "starting")
    stop_server(running, timeout_seconds=0.5)
    assert [path.name for path in tmp_path.iterdir()] == ["server.out"]


@pytest.mark.skipif(
    not os.access(LAST_PID, os.W_OK), reason="this account cannot choose process IDs"
)
def test_a_server_with_the_process_id_of_an_earlier_process_is_stopped(tmp_path: Path) -> None:
    for _ in range(100):
        with subprocess.Popen(("sleep", "60")) as earlier:
            # The library remembers this process by its ID.
            assert earlier.pid in {process.pid for process in psutil.process_iter()}
            earlier.kill()
        LAST_PID.write_text(str(earlier.pid - 1))
        server = start_server("sleeper", ("sleep", "600"), tmp_path)
        is_reused = server.pid == earlier.pid
        stopping = threading.Thread(target=stop_server, args=(server, 300.0), daemon=True)
        stopping.start()
        stopping.join(240)
        server.process.kill()
        stopping.join()
        assert server.process.returncode != -signal.SIGKILL
        if is_reused:
            return
    pytest.fail("no process ID was used again")


@pytest.mark.parametrize("depth", [0, 60], ids=["short", "too long for the kernel"])
def test_a_socket_is_reached_whatever_the_length_of_its_path(tmp_path: Path, depth: int) -> None:
    directory = tmp_path.joinpath(*["deep"] * depth)
    directory.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        if depth:
            (tmp_path / "s").rename(directory / "s")
        listening.listen()
        with private_servers.open_unix_connection(directory, "s", 60.0) as client:
            accepted, _ = listening.accept()
            with accepted:
                client.sendall(b"?")
                assert accepted.recv(100) == b"?"


RELOADING = str(Path(__file__).with_name("reloading_server.py"))


@contextmanager
def held(directory: Path, replaced: str) -> Iterator[tuple[ServerProcess, socket.socket, int]]:
    """A server, a connection that one of its workers serves, and that worker."""
    path = str(directory / "s")
    running = start_server("server", [sys.executable, RELOADING, path, replaced], directory)
    try:
        wait_until(Path(f"{path}.up").exists, running, 60.0, "starting")
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
            client.settimeout(60)
            yield running, client, int(client.recv(100))
    finally:
        stop_server(running, timeout_seconds=0.5)


def test_a_reload_goes_on_while_an_old_worker_finishes_a_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_servers, "DRAINING_SECONDS", 0.1)
    with held(tmp_path, "closes") as (running, client, worker):
        assert reload_server(running, "HUP", timeout_seconds=60.0) == 1
        client.sendall(b"?")
        assert client.recv(100) == b"still here\n"
        with socket.socket(socket.AF_UNIX) as later:
            later.connect(str(tmp_path / "s"))
            later.settimeout(60)
            assert int(later.recv(100)) != worker


@pytest.mark.parametrize("replaced", ["keeps", "alone"])
def test_an_old_worker_that_still_accepts_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: str
) -> None:
    monkeypatch.setattr(private_servers, "DRAINING_SECONDS", 0.1)
    with held(tmp_path, replaced) as (running, _, _), pytest.raises(ProcessFailed, match="reload"):
        reload_server(running, "HUP", timeout_seconds=1.0)


@pytest.mark.parametrize(
    ("family", "address"),
    [
        (socket.AF_INET, ("127.0.0.1", 0)),
        (socket.AF_INET6, ("::1", 0)),
        (socket.AF_UNIX, "listening.sock"),
    ],
)
def test_listening_sockets_are_told_from_bound_sockets_by_their_inodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: socket.AddressFamily, address: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(family) as listening, socket.socket(family) as bound:
        try:
            listening.bind(address)
            bound.bind("bound.sock" if family is socket.AF_UNIX else address)
        except OSError:
            pytest.skip(f"this machine has no address {address}")
        listening.listen()
        inodes = private_servers._find_listening_sockets(os.getpid())
        assert str(os.fstat(listening.fileno()).st_ino) in inodes
        assert str(os.fstat(bound.fileno()).st_ino) not in inodes


def test_servers_run_under_this_account_or_as_root_under_another_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    assert private_servers._find_server_uids() == {1234}
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    account = private_servers.find_server_account()
    assert account is not None
    assert private_servers._find_server_uids() == {0, pwd.getpwnam(account[0]).pw_uid}


@pytest.mark.stack
@pytest.mark.parametrize("replaced", ["closes", "keeps", "alone"])
def test_a_host_tells_workers_that_finish_from_those_that_accept(
    tmp_path: Path, replaced: str
) -> None:
    with held(tmp_path, replaced) as (running, _, worker):
        before = running.child_pids()
        os.kill(running.pid, signal.SIGHUP)
        if replaced != "alone":
            wait_until(lambda: running.child_pids() > before, running, 60.0, "forking")
        words = ("children_replaced", "web.service", str(running.pid), str(worker))
        (done,) = run_commands(Here(tmp_path), [Command(words)])
        if replaced == "closes":
            assert (done.returncode, done.stdout) == (0, "finishing web.service 1")
        else:
            assert done.returncode == 1
            assert f"old processes still accept connections: {worker}" in done.stdout


def test_an_address_of_another_machine_is_refused_with_what_to_use_instead(tmp_path: Path) -> None:
    text = LOCAL.read_text()
    assert "address: 127.0.0.1" in text
    (tmp_path / "t.yaml").write_text(text.replace("address: 127.0.0.1", "address: 192.0.2.7"))
    with pytest.raises(AutotuneError, match="this machine has no address") as refused:
        allocate_ports(read_target(tmp_path / "t.yaml"))
    assert "`runtime: containers` or `runtime: systemd`" in (refused.value.hint or "")
