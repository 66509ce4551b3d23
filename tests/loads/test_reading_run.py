"""Real load on a private nginx for a second or less, and what of it is left afterwards."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from autotune.loads import start_times
from autotune.loads.answer_validation import AnswerValidator, LoadPage
from autotune.loads.base import LoadError, LoadResult, LoadSpec, Request
from autotune.loads.httperf import OTHER_DESCRIPTORS, HttperfGenerator
from autotune.loads.reading_run import has_run_away, take_reading
from autotune.services.base import Argv, Endpoint
from autotune.target.requests_file import SessionStep
from autotune.transports.base import CommandResult
from autotune.transports.local import LocalTransport
from tests.loads.offered import Recorder
from tests.loads.server import recording
from tests.loads.servers import nginx
from tests.meanwhile import asked_meanwhile
from tests.ports import free_port
from tests.undisturbed import undisturbed

RIGHT = b"found 0100 of 0100\n"
ORDER = LoadSpec(200, 1.0, timeout=2.0, latency_limit=0.5, ramp_seconds=0.3)
# However slow the machine is, nothing is given up or late: a load that one process holds for so long.
PATIENT = LoadSpec(40, 1.5, timeout=20.0, latency_limit=20.0, ramp_seconds=0.5)
CONFIG = """daemon off; master_process off; pid pid; error_log error.log;
events {{ worker_connections 1024; }}
http {{
  log_format times '$msec';
  access_log off;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  server {{
    listen 127.0.0.1:{port};
    location /right {{ return 200 "found 0100 of 0100\\n"; }}
    location /logged {{ access_log times.log times; return 200 "found 0100 of 0100\\n"; }}
    location /same-size {{ return 200 "found 0000 of 0100\\n"; }}
    location /502 {{ return 502; }}
    location /reset {{ return 444; }}
  }}
}}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    directory = tmp_path_factory.mktemp("nginx")
    port = free_port()
    with nginx(directory, CONFIG.format(port=port)):
        yield Endpoint("127.0.0.1", port)


def offer(endpoint: Endpoint, path: str, spec: LoadSpec = ORDER) -> LoadResult:
    return take_reading(
        HttperfGenerator(),
        Request(endpoint, path, RIGHT),
        spec,
        LocalTransport(),
        max_rate=20_000.0,
    )


@pytest.mark.parametrize(
    ("ramp_seconds", "announced"),
    [
        (0.0, [(0, 2.0)]),
        (0.25, [(0, 2.25)]),  # the short ramp-up goes over into the reading
        (1.0, [(0, 1.0), (1, 2.0)]),
    ],
)
def test_each_start_of_the_load_is_announced_with_its_duration(
    ramp_seconds: float, announced: list[tuple[int, float]]
) -> None:
    host = Recorder("load1")
    found: list[tuple[int, float]] = []
    take_reading(
        HttperfGenerator(),
        Request(Endpoint("198.18.0.1", 80), "/"),
        replace(PATIENT, seconds=2.0, ramp_seconds=ramp_seconds),
        host,
        max_rate=20_000.0,
        on_start=lambda seconds: found.append((len(host.ran), seconds)),
    )
    assert found == announced


@pytest.mark.stack
def test_every_request_is_answered_and_counted(server: Endpoint) -> None:
    result = offer(server, "/right", PATIENT)
    assert result.errors == {}
    assert result.right_answers == result.sent == result.intended == 60
    assert not result.truncated


@pytest.mark.stack
def test_bodies_that_end_early_are_wrong_answers() -> None:
    """httperf counts them as complete."""
    validator = AnswerValidator((LoadPage(SessionStep(path="/cut")),))
    with recording() as (endpoint, _):
        result = undisturbed(
            lambda: take_reading(
                HttperfGenerator(),
                Request(endpoint, "/cut"),
                PATIENT,
                LocalTransport(),
                max_rate=20_000.0,
                validator=validator,
            ),
            lambda result: result.limited is None,
        )
    assert result.errors == {"wrong answer": result.intended}
    assert result.example == "/cut: the body ends after 1 B"


@pytest.mark.stack
@pytest.mark.quiet
def test_a_healthy_server(server: Endpoint) -> None:
    result = offer(server, "/right")
    assert result.errors == {}
    assert result.right_answers == result.sent == result.intended == 200
    assert not result.truncated
    assert result.limited is None


@pytest.mark.stack
@pytest.mark.quiet
def test_the_load_is_sent_in_the_time_ordered(server: Endpoint) -> None:
    """Whatever the arrivals: httperf draws those that ``arrivals`` foresees."""
    for seed in (1, 4000, 65_000):
        result = offer(server, "/right", replace(ORDER, seed=seed, ramp_seconds=0))
        assert result.limited is None
        assert result.duration >= 0.99 * (result.intended - 1) / ORDER.rate


@pytest.mark.stack
@pytest.mark.parametrize("hosts", [1, 2])
def test_a_short_ramp_goes_over_into_the_reading_and_is_in_no_count(
    server: Endpoint, tmp_path_factory: pytest.TempPathFactory, hosts: int
) -> None:
    begins: dict[str, list[float]] = {}

    class Host(LocalTransport):
        def run(self, argv: Argv, **options: Any) -> CommandResult:
            if "httperf" in argv:
                begins.setdefault(self.name, []).append(begin(argv))
            return super().run(argv, **options)

    request = Request(server, "/logged")  # no look at whole answers, which the server would log too
    log = next(tmp_path_factory.getbasetemp().glob("nginx*/times.log"))
    log.write_text("")
    spec = replace(PATIENT, rate=200, ramp_seconds=0.25)
    result = take_reading(
        HttperfGenerator(),
        request,
        spec,
        *[Host(f"load{number}") for number in range(hosts)],
        max_rate=20_000.0,
    )
    assert (result.intended, result.right_answers, result.errors) == (300, 300, {})
    while len(asked := log.read_text().split()) < 300 + 50:
        time.sleep(0.05)
    assert len(asked) == 300 + 50
    # Told at once, each host begins with the rest when the ramp is to be over, whether it is or not.
    assert len(begins) == hosts
    for moments in begins.values():
        assert {round(moment - min(moments), 3) for moment in moments} == {0.0, 0.25}


@pytest.mark.parametrize("ramp_seconds", [0.0, 0.25, 1.0])
def test_complete_responses_are_requested_together_with_the_load_of_all_hosts(
    ramp_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that start earlier and the ramp-up could together exceed the maximum rate."""
    clocks = {"load0": 10**18, "load1": 3 * 10**18}
    monkeypatch.setattr(start_times, "agree_start_times", lambda _: clocks)
    hosts = [Recorder(name) for name in clocks]
    take_reading(
        HttperfGenerator(),
        Request(Endpoint("198.18.0.1", 80), "/", RIGHT),
        replace(PATIENT, seconds=2.0, ramp_seconds=ramp_seconds),
        *hosts,
        max_rate=40.0,
    )
    (sample,) = [begin(argv) for argv, _ in hosts[0].ran if "curl --disable" in " ".join(argv)]
    assert sample == max(begin(argv) for argv, _ in hosts[0].ran if "httperf" in argv)


def begin(argv: Argv) -> float:
    """Seconds from now, or on the host's clock, at which a command is to begin."""
    if argv[4] == "prlimit":
        return 0.0
    return float(argv[4]) / (1e9 if argv[2] == start_times._WAIT_SCRIPT else 1.0)


@pytest.mark.stack
def test_several_hosts_share_the_load(server: Endpoint) -> None:
    request = Request(server, "/right", RIGHT)
    result = take_reading(
        HttperfGenerator(), request, PATIENT, LocalTransport(), LocalTransport(), max_rate=20_000.0
    )
    assert (result.intended, result.right_answers) == (60, 60)


@pytest.mark.stack
@pytest.mark.parametrize("ramp", [0.25, 0.5])
def test_a_wrong_body_of_the_right_size_is_seen(server: Endpoint, ramp: float) -> None:
    result = offer(server, "/same-size", replace(PATIENT, ramp_seconds=ramp))
    assert result.errors == {"wrong body": 60}
    assert result.right_answers == 0


@pytest.mark.stack
def test_several_load_hosts_share_a_reading(server: Endpoint) -> None:
    hosts = [LocalTransport(name) for name in ("a", "b", "c")]
    result = take_reading(
        HttperfGenerator(), Request(server, "/right", RIGHT), PATIENT, *hosts, max_rate=20_000.0
    )
    assert (result.intended, result.right_answers) == (60, 60)


@pytest.mark.stack
@pytest.mark.parametrize(("path", "kind"), [("/502", "5xx"), ("/reset", "reset")])
def test_runaway_errors_end_the_reading_with_its_ramp(
    server: Endpoint, path: str, kind: str
) -> None:
    result = offer(server, path, PATIENT)
    assert result.errors == {kind: 20}
    assert result.intended == 20
    assert result.truncated
    assert result.limited is None


@pytest.mark.stack
def test_nobody_listens() -> None:
    result = offer(Endpoint("127.0.0.1", free_port()), "/right", PATIENT)
    assert result.errors == {"refused": 20}
    assert result.truncated


@pytest.mark.parametrize(
    ("result", "away"),
    [
        (LoadResult(100, histogram={0.01: 100}), False),
        (LoadResult(100, histogram={0.01: 30, 0.2: 70}), False),
        (LoadResult(100, histogram={0.01: 29, 0.2: 71}), True),
        (LoadResult(100, errors={"5xx": 25}, histogram={0.01: 75}), False),
        (LoadResult(100, errors={"5xx": 26}, histogram={0.01: 74}), True),
        (LoadResult(100, errors={"5xx": 20}, histogram={0.01: 29, 0.2: 51}), True),
    ],
)
def test_what_ends_a_reading_early(result: LoadResult, away: bool) -> None:
    assert has_run_away(result, 0.050) == away


@pytest.mark.stack
def test_an_overload_ends_with_the_ramp() -> None:
    def build_overload() -> LoadResult:
        with silent() as endpoint:
            return offer(
                endpoint, "/", LoadSpec(500, 2.0, timeout=5.0, latency_limit=0.02, ramp_seconds=0.5)
            )

    result = undisturbed(build_overload, lambda result: result.limited is None)
    assert result.truncated
    assert result.intended == 250
    assert result.limited is None


@pytest.mark.stack
def test_a_server_that_never_answers_holds_a_bounded_number_of_requests() -> None:
    def load() -> tuple[LoadResult, int, list[int]]:
        with silent() as endpoint:
            spec = LoadSpec(1000, 1.0, timeout=1.0, latency_limit=0.02, ramp_seconds=0)
            processes = HttperfGenerator().build_processes(Request(endpoint, "/"), spec)
            with asked_meanwhile(partial(count_connections, endpoint.port), every=0.02) as counts:
                result = offer(endpoint, "/", spec)
        bound = sum(process.open_connections + OTHER_DESCRIPTORS for process in processes)
        return result, bound, [count for count in counts if count]

    # The generator came to its end, and was looked at meanwhile.
    result, bound, counts = undisturbed(
        load, lambda taken: bool(taken[2]) and not {"not sent", "unanswered"} & {*taken[0].errors}
    )
    # The kernel's table may list a connection twice while others come and go.
    assert 0 < statistics.median(counts) <= bound < 500
    assert result.right_answers == 0
    # How many of them there are depends on when a process that waits for a CPU gets to the next one.
    assert result.errors["timeout"] + result.errors["fd-unavailable"] == 1000


@contextlib.contextmanager
def silent() -> Iterator[Endpoint]:
    """Where everybody may connect and nobody is answered."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(2000)
        yield Endpoint("127.0.0.1", listening.getsockname()[1])


def count_connections(port: int) -> int:
    """Connections that clients on this machine have open to ``port`` at this moment."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return len({row[1] for row in rows if row[2].endswith(f":{port:04X}") and row[3] == "01"})


@pytest.mark.stack
def test_no_process_outlives_its_reading(server: Endpoint) -> None:
    offer(server, "/right", PATIENT)
    port = str(server.port).encode()
    left = [argv for argv in command_lines() if port in argv and b"nginx" not in argv]
    assert left == []


def command_lines() -> Iterator[list[bytes]]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            yield path.read_bytes().split(b"\0")


def offer_completely(endpoint: Endpoint) -> None:
    """A busy machine may end a reading after its ramp-up, before all programs are needed."""
    while offer(endpoint, "/right").truncated:
        pass


@pytest.mark.stack
@pytest.mark.parametrize(("missing", "package"), [("httperf", "httperf"), ("curl", "curl")])
def test_a_missing_program_is_said_with_what_to_install(
    server: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str, package: str
) -> None:
    tools = {"sh", "sleep", "cat", "prlimit", "timeout", "httperf", "curl", "mktemp", "flock", "find",
             "awk", "head", "tail", "rm", "id"}  # fmt: skip
    for tool in tools - {missing}:
        (tmp_path / tool).symlink_to(shutil.which(tool) or tool)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LoadError, match=missing) as raised:
        offer_completely(server)
    assert raised.value.hint is not None
    assert re.search(rf"apt-get install {package}\b", raised.value.hint)
