"""The stream of samples as it is run, by a shell of this machine."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from autotune.monitor import procfs, stream
from autotune.monitor.process_table import ProcessOwners
from autotune.monitor.stream import MAX_LOG_BYTES, SampleStream, parse_stream
from autotune.transports.base import Argv, CommandResult
from autotune.transports.local import LocalTransport

NAME = Path("/proc/self/comm").read_text().strip()
OWNERS = ProcessOwners(programs={NAME: "me"})


@pytest.fixture(params=["bash", "sh"], autouse=True)
def _shell(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both kinds of shell that a host may have, however long a busy one lets them wait."""
    monkeypatch.setattr(stream, "KILL_AFTER_SECONDS", 300.0)
    if request.param == "sh":
        monkeypatch.setattr(stream, "_START_SCRIPT", 'exec nice -n 19 sh -c "$@"')


@pytest.mark.parametrize(
    ("shell", "lacking"),
    [
        # Like bash before 5.1 in POSIX mode, this shell exits with a syntax error at `<(`.
        ("env BASH_VERSION=5.0.17 sh", ""),
        # bash before 4.4
        ("bash --posix", 'mapfile() { [ "$1" != -d ]; }\n'),
    ],
)
def test_an_old_bash_takes_samples_like_another_shell(
    shell: str, lacking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_START_SCRIPT", f'exec nice -n 19 {shell} -c "$@"')
    monkeypatch.setattr(stream, "_STREAM_SCRIPT", lacking + stream._STREAM_SCRIPT)
    samples = SampleStream(LocalTransport(), OWNERS, 1).run().samples
    assert len(samples) == 2
    assert samples[-1].processes["me"].max_rss > 1 << 20


@pytest.mark.stack
def test_processes_of_the_stack_are_seen_with_their_descriptors() -> None:
    samples = SampleStream(LocalTransport(), OWNERS, 1).run().samples
    assert len(samples) == 2
    for sample in samples:
        mine = sample.processes["me"]
        assert mine.max_rss > 1 << 20
        assert mine.descriptor_limit is not None
        assert sample.queues
        assert sum(sample.cpu.values()) > 0
    wide = Path(f"/proc/{os.getpid()}/fd").stat().st_size > 0  # Linux 6.2 and later
    assert (samples[0].processes["me"].descriptors is not None) == wide


def test_only_devices_have_a_speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, speed in {"eth0": "1000", "eth1": "-1", "tun0": "10", "veth1": "10000"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "speed").write_text(f"{speed}\n")
    for name in ("eth0", "eth1"):
        (tmp_path / name / "device").mkdir()
    script = stream._STREAM_SCRIPT.replace("/sys/class/net", str(tmp_path))
    monkeypatch.setattr(stream, "_STREAM_SCRIPT", script)
    pattern = re.compile(rf"^{re.escape(str(tmp_path))}/([^/]+)/speed$")
    monkeypatch.setattr(procfs, "_LINK_SPEED_PATTERN", pattern)
    samples = SampleStream(LocalTransport(), OWNERS, 0).run().samples
    assert samples[-1].link_speeds == {"eth0": 1000e6 / 8}


@pytest.mark.stack
def test_accepted_connections_with_unread_data_are_counted_at_the_given_ports() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as first,
        socket.create_server(("127.0.0.1", 0)) as second,
        contextlib.ExitStack() as connections,
    ):
        ports = [server.getsockname()[1] for server in (first, second)]
        for port in (ports[0], ports[0], ports[0], ports[1]):
            client = connections.enter_context(socket.create_connection(("127.0.0.1", port)))
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        reader = connections.enter_context(first.accept()[0])
        waiting = connections.enter_context(first.accept()[0])
        assert reader.recv(100)
        assert waiting.recv(100, socket.MSG_PEEK)
        samples = SampleStream(LocalTransport(), OWNERS, 0, request_ports=ports).run().samples
        unwatched = SampleStream(LocalTransport(), OWNERS, 0).run().samples
    queues = {queue.address: queue for queue in samples[-1].queues}
    assert (queues[f":{ports[0]}"].waiting, queues[f":{ports[0]}"].unread_count) == (1, 2)
    assert (queues[f":{ports[1]}"].waiting, queues[f":{ports[1]}"].unread_count) == (1, 1)
    assert not any(queue.unread_count for sample in unwatched for queue in sample.queues)


class Account(LocalTransport):
    """An account that may run `sh` without arguments through sudo, as SECURITY.md allows it."""

    def __init__(self) -> None:
        super().__init__("web1")
        self.scripts: list[bytes] = []

    def run(self, argv: Argv, **options: Any) -> CommandResult:
        if not options.pop("sudo", False) or list(argv) != ["sh"]:
            return CommandResult(tuple(argv), 1, "", "permission denied")
        self.scripts.append(options["input"])
        return super().run(argv, **options)


def test_the_units_of_a_host_are_watched_as_root(tmp_path: Path) -> None:
    log, host = tmp_path / "it's a log", Account()
    log.touch()
    running = SampleStream(host, OWNERS, 600, [str(log)], as_root=True)
    assert running._pid_file.startswith("/run/")  # where only root may create it
    running._pid_file = str(tmp_path / "watch")
    thread = threading.Thread(target=_log_and_stop, args=(running, log))
    thread.start()
    found = running.run()
    thread.join()
    assert found.samples[-1].processes["me"].max_rss > 1 << 20
    assert found.logs[str(log)].strip() == "after"
    assert len(host.scripts) == 2
    assert not (tmp_path / "watch").exists()


def _log_and_stop(running: SampleStream, log: Path) -> None:
    while not Path(running._pid_file).exists():
        time.sleep(0.01)
    log.write_text("after\n")
    running.stop()


def test_processes_are_assigned_by_their_control_groups() -> None:
    own_group = Path("/proc/self/cgroup").read_text().splitlines()[-1]
    for group, name in ((own_group, "mine"), ("/no/such/group", None)):
        running = SampleStream(LocalTransport(), OWNERS, 0, reads_groups=True)
        running.set_groups({group: {NAME: name or "me"}})
        (sample,) = running.run().samples
        assert set(sample.processes) == ({name} if name else set())


def test_a_stream_starts_with_the_size_of_the_host_s_pages() -> None:
    sample = (
        "== sample ==\n==> /proc/uptime <==\n9.0 9.0\n==> /proc/stat <==\ncpu 1 0 0 9\n"
        "==> /proc/7/stat <==\n7 (x) S 0 1 1 0 -1 0 0 0 0 0 9 9 0 0 20 0 1 0 7 0 3 0\n"
    )
    output = f"pagesize 65536\n{sample}{sample}\n== times ==\n"
    parsed = parse_stream(output, ProcessOwners(programs={"x": "x"}))
    assert [found.processes["x"].max_rss for found in parsed.samples] == [3 * 65_536] * 2


def test_only_what_was_logged_meanwhile(tmp_path: Path) -> None:
    log, absent = tmp_path / "it's a log", tmp_path / "absent"
    log.write_text("before\n")
    running = SampleStream(LocalTransport(), ProcessOwners(), 600, [str(log), str(absent)])

    def meanwhile() -> None:
        while not Path(running._pid_file).exists():
            time.sleep(0.01)
        with log.open("a") as more:
            more.write("== sample ==\n==> /proc/uptime <==\nno uptime\n")
        running.stop()

    thread = threading.Thread(target=meanwhile)
    thread.start()
    found = running.run()
    thread.join()
    assert found.logs[str(log)].strip() == "== sample ==\n==> /proc/uptime <==\nno uptime"
    assert found.logs[str(absent)] == ""
    assert all(sample.uptime > 0 for sample in found.samples)
    assert not Path(running._pid_file).exists()


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_neither_links_nor_pipes_are_read_as_logs(tmp_path: Path, kind: str) -> None:
    """The account of a service may make them in its own directory."""
    log, secret = tmp_path / "log", tmp_path / "secret"
    secret.write_text("secret\n" * 99)
    os.mkfifo(log) if kind == "pipe" else log.symlink_to(secret)
    running = SampleStream(LocalTransport(), ProcessOwners(), 1, [str(log)])
    assert running.run().logs[str(log)] == ""


def test_no_more_of_a_log_than_can_be_handled(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    running = SampleStream(LocalTransport(), ProcessOwners(), 600, [str(log)])

    def meanwhile() -> None:
        while not Path(running._pid_file).exists():
            time.sleep(0.01)
        log.write_text("after\n" * MAX_LOG_BYTES)
        running.stop()

    thread = threading.Thread(target=meanwhile)
    thread.start()
    written = running.run().logs[str(log)]
    thread.join()
    assert 0 < len(written) <= MAX_LOG_BYTES
    assert set(written.splitlines()[:-1]) == {"after"}


def test_samples_may_be_asked_for_more_often() -> None:
    assert len(SampleStream(LocalTransport(), OWNERS, 1, interval=0.25).run().samples) == 5


def test_it_can_be_told_to_end_before_it_has_begun() -> None:
    running = SampleStream(LocalTransport(), ProcessOwners(), 600)
    ended = threading.Event()

    def meanwhile() -> None:
        while not ended.is_set():  # a busy host may take longer to begin than one try lasts
            running.stop()

    thread = threading.Thread(target=meanwhile)
    thread.start()
    found = running.run()
    ended.set()
    thread.join()
    assert len(found.samples) >= 1


def test_nothing_at_all() -> None:
    assert parse_stream("", OWNERS).samples == ()
    assert parse_stream("sh: 1: stat: not found\n", OWNERS).logs == {}
