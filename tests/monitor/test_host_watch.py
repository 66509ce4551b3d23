"""Watching never fails a reading, whatever the hosts do."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.deploy.host_state import ServiceManager
from autotune.deploy.private_servers import PID_SUFFIX
from autotune.deploy.stack import ServiceInstance
from autotune.monitor import counters
from autotune.monitor.counters import ServerCounters
from autotune.monitor.host_watch import (
    HostWatch,
    Observations,
    WatchedHost,
    count_complaints,
    find_log,
    find_process_owners,
    read_groups,
)
from autotune.monitor.process_table import sum_by_service
from autotune.services.apache.service import Apache
from autotune.services.base import Endpoint, Placement, Role, Service
from autotune.services.memcached.service import Memcached
from autotune.services.nginx.service import Nginx
from autotune.services.php_fpm.service import PhpFpm
from autotune.services.postgresql.service import Postgresql
from autotune.services.registry import SHIPPED
from autotune.services.varnish.service import Varnish
from autotune.transports.base import Argv, CommandResult, HostUnreachable, Transport
from autotune.transports.local import LocalTransport

PATIENT = 240.0  # seconds; a wait that only a defect lasts to its end


@pytest.fixture(autouse=True)
def _in_no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy this machine is, hosts send their last samples."""
    monkeypatch.setattr("autotune.monitor.host_watch.LAST_SAMPLE_SECONDS", PATIENT)


class Elsewhere(LocalTransport):
    """This machine, reached as if it were another one; it may break in several ways."""

    def __init__(
        self, output: str | None = None, error: Exception | None = None, complaint: str = ""
    ) -> None:
        self._output, self._error, self._complaint = output, error, complaint

    def run(
        self,
        argv: Argv,
        *,
        input: bytes | None = None,  # as the Protocol has it
        timeout: float = 30.0,
        sudo: bool = False,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        if self._error:
            raise self._error
        if self._output is not None:
            return CommandResult(tuple(argv), 1, self._output, self._complaint)
        return super().run(argv, input=input, timeout=timeout, sudo=sudo, cwd=cwd, env=env)


def host(directory: Path, transport: Transport | None) -> WatchedHost:
    site = Placement(
        tier="lb", host="a", role=Role.PROXY, directory=str(directory),
        listen=Endpoint("127.0.0.1", 1), programs={"memcached-tool": "/no/such/program"},
    )  # fmt: skip
    cache = replace(site, tier="cache", role=Role.CACHE)
    return WatchedHost(
        "a", 2.0, (ServiceInstance(Nginx(), site), ServiceInstance(Memcached(), cache)), transport
    )


@pytest.mark.parametrize("transport", [None, Elsewhere()], ids=["here", "elsewhere"])
def test_a_host_ends_with_a_last_look_when_it_is_left(
    tmp_path: Path, transport: Transport | None
) -> None:
    with HostWatch([host(tmp_path, transport)], 600.0) as watch:
        whoami = Path(watch._streams["a"]._pid_file)
        while not whoami.exists():
            time.sleep(0.01)
        (tmp_path / "nginx-error.log").write_text("8 worker_connections are not enough\n")
    seen = watch.observations
    assert len(seen.samples["a"]) >= 1
    assert seen.sampling_cpu_seconds["a"] > 0
    assert not whoami.exists()
    assert seen.log_complaints == {"lb.a.nginx": {"worker_connections": 1}}
    assert set(seen.counters["cache.a.memcached"]) == {None}
    assert not seen.failures
    assert not seen.unsampled


def test_a_host_that_hangs_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.monitor.host_watch.LAST_SAMPLE_SECONDS", 0.1)
    over = threading.Event()

    class Hanging(LocalTransport):
        def run(self, argv: Argv, **options: object) -> CommandResult:  # type: ignore[override]
            over.wait()
            return CommandResult(tuple(argv), 0, "", "")

    with HostWatch([host(tmp_path, Hanging())], 1.0) as watch:
        pass
    seen = watch.observations
    over.set()
    assert "a did not send its samples in time" in seen.failures
    assert seen.unsampled == {"a": "none arrived within 0.1 s after the load"}


def test_a_host_may_end_while_those_that_hang_are_listed() -> None:
    watch = HostWatch([], 1.0)

    class Ending(list[str]):
        def append(self, text: str) -> None:
            super().append(text)
            watch._streams.clear()

    watch._failures = Ending()
    stuck: Any = SimpleNamespace(_pid_file="", _run_script=lambda *_: None)
    watch._streams |= {"a": stuck, "b": stuck}
    with watch:
        pass
    assert watch.observations.failures[0] == "a did not send its samples in time"


@pytest.mark.parametrize(
    "transport",
    [
        Elsewhere(error=HostUnreachable("no route")),
        Elsewhere(error=OSError("broken pipe")),
        Elsewhere(error=RuntimeError("a bug in there")),
        Elsewhere(output=""),
        Elsewhere(output="sh: tail: not found\n"),
        Elsewhere(output="== sample ==\n==> /proc/stat <==\ncpu x y z\n== sample ==\n"),
    ],
    ids=["unreachable", "broken", "bug", "silent", "no tools", "garbled"],
)
def test_a_host_that_fails_is_a_host_without_samples(tmp_path: Path, transport: Transport) -> None:
    with HostWatch([host(tmp_path, transport)], 1.0) as watch:
        reading = "taken"
    assert reading == "taken"
    assert watch.observations.samples.get("a", ()) == ()


@pytest.mark.parametrize(
    ("transport", "reason"),
    [
        (Elsewhere(error=HostUnreachable("no route")), "no route"),
        (Elsewhere(output=""), "its output contained none"),
        (Elsewhere(output="", complaint="sh: 9: cannot create /tmp/w:\n  No space left\n"),
         "sh: 9: cannot create /tmp/w: No space left"),
        (Elsewhere(output="", complaint="x" * 1000), "x" * 200),
    ],
    ids=["unreachable", "silent", "full disk", "long"],
)  # fmt: skip
def test_the_reason_is_known_why_a_host_has_no_samples(
    tmp_path: Path, transport: Transport, reason: str
) -> None:
    with HostWatch([host(tmp_path, transport)], 1.0) as watch:
        pass
    assert watch.observations.unsampled == {"a": reason}


def test_servers_whose_counters_cannot_be_read_are_listed() -> None:
    counted, refused, empty = (
        ServerCounters(0.1, {"hits": 0.0}),
        ServerCounters(0.1, error="too many clients"),
        ServerCounters(0.1),
    )
    answers: dict[str, tuple[ServerCounters | None, ...]] = {
        "silent": (None, None),
        "denied": (empty, None),
        "busy": (counted, None, None),
        "full": (refused, None),
        "unasked": (),
    }
    assert Observations(counters=answers).uncounted_instances == ["silent", "denied"]


def test_what_the_reading_raises_comes_through(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), HostWatch([host(tmp_path, None)], 1.0):
        raise KeyboardInterrupt


def test_private_processes_are_known_by_their_session(tmp_path: Path) -> None:
    (tmp_path / f"nginx{PID_SUFFIX}").write_text(Path("/proc/self/stat").read_text())
    assert find_process_owners(host(tmp_path, None)).sessions == {os.getpid(): "lb.a.nginx"}
    elsewhere = find_process_owners(host(tmp_path, Elsewhere()))
    assert elsewhere.sessions == {}
    assert elsewhere.programs["nginx"] == "lb.a.nginx"


def test_a_process_that_serves_under_another_name_than_its_program_belongs_to_its_service() -> None:
    varnish = ServiceInstance(Varnish(), site_of(Role.HTTP_CACHE, installed=True))
    owners = find_process_owners(WatchedHost("a", 2.0, (varnish,), Elsewhere()))
    stat = "{} ({}) S {} 1 1 0 -1 0 0 0 0 0 {} 0 0 0 20 0 {} 0 7 0 {} 0"
    files = {
        "/proc/7/stat": stat.format(7, "varnishd", 1, 2, 1, 300),
        "/proc/8/stat": stat.format(8, "cache-main", 7, 500, 210, 90_000),
    }
    found = sum_by_service(files, owners)[varnish.name]
    assert (found.workers, found.threads) == (1, 210)
    assert found.cpu == pytest.approx(5.02)
    assert found.max_rss >= 90_000 * 4096


class Root(LocalTransport):
    """Root's shell, whichever account runs the tests."""

    def run(self, argv: Argv, **options: Any) -> CommandResult:
        return super().run(argv, **{**options, "sudo": False})


# `web` and `lb` run in containers, `cache` in no container at all.
IN_CONTAINERS = ServiceManager(
    'group() { case $1 in absent) return 1 ;; lost) echo ;; *) echo "$1-id" ;; esac; }\n',
    lambda *_: {},
    "/units",
    wrap_command=lambda placement, argv: ("inside", placement.unit, *argv),
)


@pytest.mark.parametrize(
    ("manager", "units", "groups"),
    [
        (IN_CONTAINERS, ("lb", "web"),
         {"lb-id": {"nginx": "lb.a.nginx"}, "web-id": {"nginx": "web.a.nginx"}}),
        (IN_CONTAINERS, ("lb", "absent"), {"lb-id": {"nginx": "lb.a.nginx"}}),
        (IN_CONTAINERS, ("lost", "web"), {"web-id": {"nginx": "web.a.nginx"}}),
        # Units that run the same program, and the same unit.
        (replace(IN_CONTAINERS, wrap_command=None), ("lb", "web"),
         {"lb-id": {"nginx": "lb.a.nginx"}, "web-id": {"nginx": "web.a.nginx"}}),
        (replace(IN_CONTAINERS, wrap_command=None), ("web", "web"), {}),
        (None, ("lb", "web"), {}),
    ],
)  # fmt: skip
def test_units_with_the_same_program_have_groups(
    manager: ServiceManager | None, units: tuple[str, str], groups: dict[str, dict[str, str]]
) -> None:
    instances = tuple(
        ServiceInstance(Nginx(), replace(site_of(Role.PROXY, installed=True), tier=tier, unit=unit))
        for tier, unit in zip(("lb", "web"), units, strict=True)
    )
    assert read_groups(WatchedHost("a", 2.0, instances, Root(), manager)) == groups


def test_processes_of_one_container_belong_to_the_services_of_their_programs() -> None:
    instances = tuple(
        ServiceInstance(service, replace(site_of(role, installed=True), unit="web"))
        for service, role in ((PhpFpm(), Role.APP), (Nginx(), Role.WEB))
    )
    app, web = (instance.name for instance in instances)
    groups = read_groups(WatchedHost("a", 2.0, instances, Root(), IN_CONTAINERS))
    assert (groups["web-id"]["php-fpm8.2"], groups["web-id"]["nginx"]) == (app, web)


def test_samples_do_not_wait_for_control_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container engine may take seconds on a busy host."""
    monkeypatch.setattr("autotune.monitor.host_watch.LATE_GROUP_SECONDS", PATIENT)
    is_sampled, program = threading.Event(), Path("/proc/self/comm").read_text().strip()

    class Busy(Root):
        def run(self, argv: Argv, **options: Any) -> CommandResult:
            if b"step group" in (options.get("input") or b""):
                assert is_sampled.wait(2 * PATIENT)
            return super().run(argv, **options)

    manager = replace(IN_CONTAINERS, shell_functions="group() { echo /no/such/group; }\n")
    site = replace(site_of(Role.PROXY, installed=False), unit="lb")
    monkeypatch.setattr(Nginx, "programs", {"nginx": (program,)})
    host = WatchedHost("a", 2.0, (ServiceInstance(Nginx(), site),), Busy(), manager)
    with HostWatch([host], 600.0) as watch:
        pid_file, deadline = Path(watch._streams["a"]._pid_file), time.monotonic() + PATIENT
        while not (has_started := pid_file.exists()) and time.monotonic() < deadline:
            time.sleep(0.01)
        is_sampled.set()
    assert has_started
    assert not watch.observations.failures
    assert not watch.observations.samples["a"][-1].processes  # this process is in another group


def test_the_log_of_the_host_is_not_that_of_a_container() -> None:
    instances = (ServiceInstance(Nginx(), replace(site_of(Role.PROXY, installed=True), unit="lb")),)
    for manager, logs in ((IN_CONTAINERS, ()), (None, ("/var/log/nginx/error.log",))):
        watch = HostWatch([], 1.0)
        watch._take_first_sample(WatchedHost("a", 2.0, instances, Root(), manager), 0.0)
        assert watch._streams["a"]._logs == logs


AT = "2026/11/21 04:50:12 [alert] 812#812: "
APACHE = "[Sat Nov 21 07:18:04.461156 2026] [{0}:error] [pid 812:tid 812] {1}"


def site_of(role: Role, installed: bool) -> Placement:
    return Placement(
        tier="lb", host="a", role=role, directory="/srv/lb", listen=Endpoint("127.0.0.1", 1),
        installed=installed, programs={"php-fpm": "/usr/sbin/php-fpm8.2"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("line", "about"),
    [
        (AT + "*9 64 worker_connections are not enough while connecting to upstream",
         "worker_connections"),
        (AT + "64 worker_connections are not enough, reusing connections", "worker_connections"),
        (AT + "accept4() failed (24: Too many open files)", "open_files"),
        (AT + "*1 socket() failed (24: Too many open files) while connecting to upstream",
         "open_files"),
        (AT + "*7 connect() to unix:web.here.php-fpm.sock failed (11: Resource temporarily "
         "unavailable) while connecting to upstream", "upstream_queue_full"),
        (AT + "*7 connect() failed (111: Connection refused) while connecting to upstream",
         "upstream_refused"),
        (AT + "*3 upstream timed out (110: Connection timed out)", "upstream_timed_out"),
        (AT + "*3 no live upstreams while connecting to upstream", "no_live_upstreams"),
        (AT + "*3 connect() to 127.0.0.1:80 failed (99: Cannot assign requested address)",
         "no_ports"),
        ("[21-Nov-2026 05:01:01] WARNING: [pool www] server reached pm.max_children setting (5)",
         "max_children"),
        (AT + "signal process started", None),
        (APACHE.format("mpm_prefork", "AH00161: server reached MaxRequestWorkers setting, consider "
         "raising the MaxRequestWorkers setting"), "max_workers"),
        (APACHE.format("mpm_event", "AH03490: scoreboard is full, not at MaxRequestWorkers."
         "Increase ServerLimit."), "max_workers"),
        (APACHE.format("mpm_event", "AH10159: server is within MinSpareThreads of "
         "MaxRequestWorkers, consider raising the MaxRequestWorkers setting"), None),
        (APACHE.format("proxy", "(111)Connection refused: AH00957: http: attempt to connect to "
         "127.0.0.1:80 (127.0.0.1:80) failed"), "upstream_refused"),
        (APACHE.format("proxy", "(11)Resource temporarily unavailable: AH02454: FCGI: attempt to "
         "connect to Unix domain socket /run/php/php8.2-fpm.sock (localhost:8000) failed"),
         "upstream_queue_full"),
        (APACHE.format("proxy", "(99)Cannot assign requested address: AH00957: http: attempt to "
         "connect to 127.0.0.1:80 (127.0.0.1:80) failed"), "no_ports"),
        (APACHE.format("proxy_http", "(70007)The timeout specified has expired: AH01102: error "
         "reading status line from remote server 127.0.0.1:80"), "upstream_timed_out"),
        (APACHE.format("proxy_balancer", "AH01167: balancer://web: All workers are in error state "
         "for route ()"), "no_live_upstreams"),
        (APACHE.format("core", "(24)Too many open files: AH00052: child pid 9 exit signal"),
         "open_files"),
    ],
)  # fmt: skip
def test_complaints(line: str, about: str | None) -> None:
    writer = Apache() if ":error]" in line else PhpFpm() if "[pool " in line else Nginx()
    part = ServiceInstance(writer, site_of(Role.PROXY, installed=False))
    assert count_complaints(f"{line}\n{line}\n", part) == ({about: 2} if about else {})


@pytest.mark.parametrize(
    ("service", "role", "installed", "expected"),
    [
        (Nginx(), Role.PROXY, False, "/srv/lb/nginx-error.log"),
        (Nginx(), Role.PROXY, True, "/var/log/nginx/error.log"),
        (PhpFpm(), Role.APP, False, "/srv/lb/php-fpm.log"),
        (PhpFpm(), Role.APP, True, "/var/log/php8.2-fpm.log"),
        (Apache(), Role.PROXY, False, "/srv/lb/apache2-error.log"),
        (Apache(), Role.PROXY, True, "/var/log/apache2/error.log"),
        (Memcached(), Role.CACHE, False, None),
        (Memcached(), Role.CACHE, True, "memcached.service"),
    ],
)
def test_where_a_service_says_what_is_wrong(
    service: Service, role: Role, installed: bool, expected: str | None
) -> None:
    assert find_log(ServiceInstance(service, site_of(role, installed))) == expected


class Asked(LocalTransport):
    """Answers the command that asks for counters; a reading is over after the third time."""

    def __init__(self) -> None:
        self.times = 0
        self.often = threading.Event()

    def run(self, argv: Argv, **options: object) -> CommandResult:  # type: ignore[override]
        if "psql" not in str(options.get("input")):
            return CommandResult(tuple(argv), 1, "", "")
        self.times += 1
        if self.times == 3:
            self.often.set()
        return CommandResult(tuple(argv), 0, f"active {self.times}\nlock_waits 0\n", "")


def test_a_server_that_is_asked_by_a_command_alone_is_asked_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    query = SHIPPED.find_diagnosis("postgresql").counter_query
    assert query is not None
    assert query.interval_seconds > 0
    monkeypatch.setattr(
        counters, "find_counter_query", lambda _: replace(query, interval_seconds=0.01)
    )
    site = Placement(
        tier="db", host="a", role=Role.DATABASE, directory="/run/t", installed=True,
        listen=Endpoint("127.0.0.1", 1), programs={"postgres": "/usr/lib/postgresql/15/bin/postgres"},
    )  # fmt: skip
    transport = Asked()
    with HostWatch(
        [WatchedHost("a", 2.0, (ServiceInstance(Postgresql(), site),), transport)], 60.0
    ) as watch:
        assert transport.often.wait(PATIENT)
    answers = watch.observations.counters["db.a.postgresql"]
    assert len(answers) >= 4
    assert [answer.values["active"] for answer in answers[:4] if answer] == [1, 2, 3, 4]


def test_a_unit_of_this_machine_is_asked_by_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection without a request would occupy a server, and show no counter."""
    asked = Asked()
    monkeypatch.setattr("autotune.monitor.host_watch.LocalTransport", lambda *_: asked)
    with socket.create_server(("127.0.0.1", 0)) as server:
        site = Placement(
            tier="db", host="a", role=Role.DATABASE, directory="/run/t", installed=True,
            listen=Endpoint("127.0.0.1", server.getsockname()[1]),
            programs={"postgres": "/usr/lib/postgresql/15/bin/postgres"},
        )  # fmt: skip
        with HostWatch(
            [WatchedHost("a", 2.0, (ServiceInstance(Postgresql(), site),))], 60.0
        ) as watch:
            pass
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
    answers = watch.observations.counters["db.a.postgresql"]
    assert [answer.values["active"] for answer in answers if answer] == [1, 2]


def test_the_load_is_recorded_from_its_last_start_to_its_planned_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moments = iter((100.0, 100.5, 102.0, 110.0))
    clock = SimpleNamespace(monotonic=lambda: next(moments))
    monkeypatch.setattr("autotune.monitor.host_watch.time", clock)
    with HostWatch((), 5.0) as watch:
        watch.mark_load(1.0)  # a ramp-up
        watch.mark_load(3.0)
    assert (watch.observations.load_start, watch.observations.load_end) == (2.0, 5.0)
