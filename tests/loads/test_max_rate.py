"""No path offers more than ``load.max_rate``: read from the command lines of every generator."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.environments import load_session
from autotune.environments.answer_check import AnswerCheck
from autotune.environments.load_meter import LoadMeter
from autotune.loads import headroom, start_times
from autotune.loads.answer_validation import AnswerValidator, LoadPage
from autotune.loads.base import LoadError, LoadGenerator, LoadSpec
from autotune.loads.closed_load import ClosedLoopClients, WrkGenerator
from autotune.loads.custom_generator import CustomGenerator
from autotune.loads.headroom import list_rates
from autotune.loads.httperf import HttperfGenerator
from autotune.loads.httperf_sessions import SessionGenerator
from autotune.loads.k6 import K6Generator
from autotune.loads.k6_script import K6ScriptGenerator
from autotune.loads.load_commands import (
    LoadCommand,
    RateTooHigh,
    compute_highest_rate,
    run_together,
)
from autotune.loads.oha import OhaGenerator
from autotune.loads.reading_run import count_requests, take_reading
from autotune.loads.workload import parse_sessions
from autotune.measure import Reading, SearchLimits, Slo, search_peak
from autotune.measure.warm_up import run_warm_up
from autotune.services.base import Argv, Endpoint
from autotune.study import ceilings
from autotune.study.ceilings import CacheLoadTest, CeilingRequest
from autotune.target.requests_file import SessionStep, WeightedVisit
from autotune.transports.base import CommandResult, ConnectionLost
from autotune.transports.local import LocalTransport
from autotune.transports.request import Request
from tests.loads.offered import Recorder, highest, offered
from tests.study import simulated
from tests.study.simulated import FormulaFleet

ROUNDING = 1 + 1e-6
LISTED = (
    WeightedVisit(
        weight=3.0, session=(SessionStep(path="/a", think="500ms"), SessionStep(path="/b"))
    ),
    WeightedVisit(path="/c", method="POST", body="x=1"),
)
PAGES = (WeightedVisit(weight=2.0, path="/a"), WeightedVisit(path="/b"))
SESSIONS = "/a think=1\n/b\n/c\n\n/d\n\n/e\n /e.css\n /e.js\n"


def script(most: int | None) -> LoadGenerator:
    text = "import http from 'k6/http';\nexport default () => http.get('/');\n"
    return K6ScriptGenerator(files=(("visit.js", text),), max_requests_per_run=most)


LOADS: dict[str, Callable[[], LoadGenerator]] = {
    "httperf": HttperfGenerator,
    "httperf, paths": lambda: HttperfGenerator(uris=("/a", "/b")),
    "httperf, forms": lambda: HttperfGenerator().with_visits((LISTED[1],)),
    "httperf, visits": lambda: SessionGenerator().with_visits(LISTED),
    "httperf, sessions": lambda: SessionGenerator().with_visits(parse_sessions(SESSIONS)),
    "oha": OhaGenerator,
    "oha, paths": lambda: OhaGenerator().with_visits(PAGES),
    "k6": K6Generator,
    "k6, visits": lambda: K6Generator().with_visits(LISTED),
    "k6, script of one request": lambda: script(1),
    "k6, script of several requests": lambda: script(7),
    "command": lambda: CustomGenerator(("own",)),
}
RATES = st.one_of(st.floats(0.3, 60.0), st.floats(60.0, 40_000.0), st.sampled_from([1.0, 500.0]))


def entry(entries: int, *, expect: bool) -> Request:
    others = tuple(Endpoint(f"198.18.0.{number + 2}", 80) for number in range(entries - 1))
    return Request(
        Endpoint("198.18.0.1", 80), "/", b"right" if expect else None, other_endpoints=others
    )


@pytest.mark.parametrize("name", LOADS)
@given(
    max_rate=RATES,
    share=st.one_of(st.just(1.0), st.floats(0.05, 1.0)),
    seconds=st.sampled_from([1.0, 2.0, 6.667, 10.0]),
    ramp=st.sampled_from([0.0, 0.25, 1.0]),
    hosts=st.integers(1, 4),
    entries=st.integers(1, 4),
    expect=st.booleans(),
    limit=st.sampled_from([0.005, 0.05, 2.0]),
)
@settings(max_examples=25)
def test_all_processes_of_a_reading_stay_below_it(
    name: str, max_rate: float, share: float, seconds: float, ramp: float, hosts: int, entries: int,
    expect: bool, limit: float,
) -> None:  # fmt: skip
    each = [Recorder(f"load{number}") for number in range(hosts)]
    load = LOADS[name]()
    spec = LoadSpec(
        share * max_rate / load.requests_per_iteration,
        seconds,
        latency_limit=limit,
        ramp_seconds=ramp,
    )
    request = entry(entries, expect=expect)
    validator = (
        None
        if expect
        else AnswerValidator((LoadPage(SessionStep(path="/")), LoadPage(SessionStep(path="/b"))))
    )
    with batches() as started:
        result = take_reading(load, request, spec, *each, max_rate=max_rate, validator=validator)
    assert result.limited  # nothing was run
    # A long ramp-in comes first, a short one goes over into the counted part.
    for part in [[batch] for batch in started] if ramp > 0.5 else [each]:
        assert highest(part) <= max_rate * ROUNDING
    assert sum(len(b.ran) for b in started) == sum(len(host.ran) for host in each)
    # Each process begins at once, so each may be one request, or one run, ahead of its rate.
    # Whole answers may be requested a little longer, at a rate below their share.
    runs = list(offered(each))
    duration = max([ramp + seconds, *(run.ends for run in runs)])
    ahead = load.requests_per_iteration * sum(len(host.ran) for host in each)
    assert sum(run.requests for run in runs) <= max_rate * duration + ahead


@contextmanager
def batches() -> Iterator[list[Recorder]]:
    """What was started together, each time on one host of the test's own."""
    started: list[Recorder] = []

    def recorded(commands: Sequence[LoadCommand], max_rate: float) -> list[CommandResult]:
        started.append(Recorder("all", [(command.argv, command.input) for command in commands]))
        return run_together(commands, max_rate)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("autotune.loads.reading_run.run_together", recorded)
        # The clocks of these hosts agree, so that moments on them can be compared.
        patched.setattr(
            start_times, "agree_start_times", lambda hosts: {host.name: 10**18 for host in hosts}
        )
        yield started


@pytest.mark.parametrize("name", LOADS)
@given(max_rate=RATES, beyond=st.floats(1.001, 1000.0))
@settings(max_examples=10)
def test_a_higher_rate_starts_nothing(name: str, max_rate: float, beyond: float) -> None:
    host = Recorder("load1")
    load = LOADS[name]()
    spec = LoadSpec(beyond * max_rate / load.requests_per_iteration, 1.0)
    with pytest.raises(RateTooHigh, match=r"exceed load\.max_rate"):
        take_reading(load, entry(1, expect=True), spec, host, max_rate=max_rate)
    assert not host.ran


def test_a_script_whose_requests_are_not_counted_is_not_started() -> None:
    host = Recorder("load1")
    with pytest.raises(RateTooHigh, match="a program without a rate limit"):
        take_reading(script(None), entry(1, expect=True), LoadSpec(0.1, 1.0), host, max_rate=500.0)
    assert not host.ran


class Counting(Recorder):
    """A load host whose k6 made so many requests in its longest run."""

    most = 5

    def run(
        self, argv: Argv, *, input: bytes | None = None, timeout: float = 30.0
    ) -> CommandResult:
        done = super().run(argv, input=input, timeout=timeout)
        summary = {"counts": {"sent": 30}, "lag": 0, "most": self.most}
        return replace(done, stdout=json.dumps(summary), stderr="")


@given(max_rate=st.floats(0.2, 40_000.0))
@settings(max_examples=25)
def test_requests_of_a_run_are_counted_below_it(max_rate: float) -> None:
    host = Counting("load1")
    load = count_requests(script(None), entry(1, expect=True), host, max_rate)
    assert highest([host]) <= max_rate * ROUNDING
    assert load.requests_per_iteration == host.most
    assert count_requests(load, entry(1, expect=True), host, max_rate) is load
    assert len(host.ran) == 1


def session_of(meter: Any, **options: Any) -> load_session.LoadSession:
    """A session that may offer 500 requests/s."""
    limits, noiseless = SearchLimits(max_rate=500.0), SimpleNamespace(noise=None)
    return load_session.LoadSession(Any, meter, Slo(), limits, noiseless, **options)  # type: ignore[arg-type]


def test_a_session_asks_for_runs_by_their_requests() -> None:
    host = Counting("load1")
    meter = replace(meter_of(host, 500.0), load=script(None))
    session = session_of(meter, highest_rate=meter.compute_highest_rate)
    assert session.limits.max_rate == 100.0
    with pytest.raises(RateTooHigh, match=r"101 requests/s exceed load\.max_rate \(100/s\)"):
        session.take_reading(101.0, 1.0, Any, "sweep")  # type: ignore[arg-type]
    assert len(host.ran) == 1  # the run that counted


def test_a_generator_that_does_not_state_its_rate_is_not_started() -> None:
    host = Recorder("load1")
    command = LoadCommand(host, ("unknown",), float("inf"), 0.0, 1.0, 5.0)
    with pytest.raises(RateTooHigh, match="a program without a rate limit"):
        run_together([command], 500.0)
    assert not host.ran


class Interrupted(Recorder):
    """A load host whose connection is lost as soon as a program runs."""

    def run(self, *_: Any, **__: Any) -> CommandResult:
        raise ConnectionLost("load1: the connection was lost while httperf ran")


def test_a_lost_connection_is_reported_when_no_program_can_be_sending_load() -> None:
    command = LoadCommand(Interrupted("load1"), ("httperf",), 100.0, 0.0, 0.3, 60.0)
    start = time.monotonic()
    with pytest.raises(ConnectionLost):
        run_together([command], 500.0)
    assert time.monotonic() >= start + command.end


def test_rates_add_up_where_they_overlap() -> None:
    def command(rate: float, begins: float, ends: float) -> LoadCommand:
        return LoadCommand(Recorder("load1"), ("x",), rate, begins, ends, 5.0)

    assert compute_highest_rate([]) == 0
    assert compute_highest_rate([command(3, 0, 1), command(4, 1, 2)]) == 4
    assert compute_highest_rate([command(3, 0, 1.5), command(4, 1, 2), command(2, 0, 9)]) == 9


class Weather:
    """A stack that answers at random: fast, slow, not at all, or with a generator that fell short."""

    def __init__(self, seed: int) -> None:
        self.chance, self.rates = random.Random(seed), list[float]()

    def __call__(self, rate: float, seconds: float) -> Reading:
        self.rates.append(rate)
        n = max(1, round(rate * seconds))
        late = self.chance.choice([0, 0, n // 100, n // 3, n])
        limited = "slow" if self.chance.random() < 0.1 else None
        return Reading(
            rate, seconds, n, late, {"timeout": late}, {0.001: n - late}, limited=limited
        )


@given(max_rate=RATES, expected=st.one_of(st.none(), st.floats(0.1, 1e6)), seed=st.integers(0, 999))
def test_a_warm_up_stays_below_it(max_rate: float, expected: float | None, seed: int) -> None:
    stack = Weather(seed)
    run_warm_up(stack, lambda: None, expected, max_rate=max_rate)
    assert 0 < max(stack.rates) <= max_rate


@given(max_rate=RATES, expected=st.one_of(st.none(), st.floats(0.1, 1e6)), seed=st.integers(0, 999))
@settings(max_examples=20)
def test_a_search_for_a_capacity_stays_below_it(
    max_rate: float, expected: float | None, seed: int
) -> None:
    stack = Weather(seed)
    limits = load_session.build_search_limits(max_rate)
    search_peak(stack, Slo(), expected, limits=limits, is_late=lambda: len(stack.rates) > 12)
    assert 0 < max(stack.rates) <= max_rate


def test_a_session_offers_no_more_whoever_asks() -> None:
    session = session_of(Any)
    with pytest.raises(RateTooHigh, match=r"2500 requests/s exceed load\.max_rate \(500/s\)"):
        session.take_reading(2500.0, 1.0, Any, "sweep")  # type: ignore[arg-type]


def meter_of(host: Recorder, max_rate: float) -> LoadMeter:
    stack: Any = SimpleNamespace(instances=(), active_instances=lambda _: ())
    request = entry(2, expect=False)
    return LoadMeter(HttperfGenerator(), request, Slo(), (host,), stack, (), 2.0, max_rate)


@given(max_rate=st.floats(1.0, 20_000.0), clients=st.integers(1, 500))
@settings(max_examples=15)
def test_a_closed_loop_is_paced(max_rate: float, clients: int) -> None:
    host, notes = Recorder("load1"), list[str]()
    context: Any = SimpleNamespace(
        session=SimpleNamespace(fleet=FormulaFleet()),
        space=simulated.space(),
        progress=SimpleNamespace(note=notes.append),
    )
    meter = meter_of(host, max_rate)
    page = AnswerValidator((LoadPage(SessionStep(path="/")),))
    answers = AnswerCheck(meter.request, page, host, 0.01, max_rate, is_learned=True)
    request = CeilingRequest({}, None, (clients,))
    ceilings._measure_stack(context, replace(meter, answer_check=answers), request)
    ran = [one for one in host.ran if "command -v" not in one[0][2]]
    loads = [place for place, one in enumerate(ran) if "wrk" in one[0]]
    assert len(loads) == 2
    assert len(ran) > 2  # whole answers are requested at the same time
    for together in (ran[: loads[1]], ran[loads[1] :]) if loads[0] == 0 else (ran[:2], ran[2:]):
        assert highest([Recorder("load1", together)]) <= max_rate * ROUNDING


class Having(Recorder):
    """A load host that has one program."""

    program = "ab"

    def run(
        self, argv: Argv, *, input: bytes | None = None, timeout: float = 30.0
    ) -> CommandResult:
        done = super().run(argv, input=input, timeout=timeout)
        return replace(done, returncode=0 if argv[-1] == self.program else 1)


def test_an_unpaced_loop_needs_leave() -> None:
    with pytest.raises(LoadError) as refused:
        ceilings._find_closed_generator(Having("load1"), allow_unpaced=False)
    assert "unpaced: true" in (refused.value.hint or "")
    assert ceilings._find_closed_generator(Having("load1"), allow_unpaced=True).name == "ab"


def test_caches_are_offered_what_the_stack_asks_of_them_at_most() -> None:
    host, caches = Recorder("load1"), (Endpoint("198.18.0.9", 11211),)
    alone = CacheLoadTest(caches, {"198.18.0.8": host}, Slo(), 100, 5000.0, allow_unpaced=False)
    results = list(alone.measure_ceilings())
    asked = [one for one in host.ran if "mutilate" in one[0] and "-q" in one[0]]
    assert asked
    assert all(highest([Recorder("load1", [one])]) <= 5000.0 for one in asked)
    assert "unpaced: true" in (results[-1].failure or "")
    assert not any("--servers" in argv for argv, _ in host.ran)


@given(max_rate=RATES)
def test_headroom_is_sought_up_to_it(max_rate: float) -> None:
    assert 0 < max(list_rates(max_rate)) <= max_rate


@given(max_rate=RATES, hosts=st.integers(1, 4))
@settings(max_examples=20)
def test_load_hosts_share_it_when_their_headroom_is_sought(max_rate: float, hosts: int) -> None:
    asked: list[float] = []

    def calibrate(*_: Any, max_rate: float, **__: Any) -> headroom.Headroom:
        asked.append(max_rate)
        return headroom.Headroom(max_rate)

    each = [Recorder(f"load{number}") for number in range(hosts)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(headroom, "measure_host_headroom", calibrate)
        patched.setattr(headroom, "find_free_port", lambda _: 21_000)
        found = headroom.measure_headroom(
            HttperfGenerator(), each, dict.fromkeys([h.name for h in each], "nginx"), max_rate
        )
    assert sum(asked) <= max_rate * ROUNDING
    assert found.find_shortage(max_rate) is None


class Answering(socketserver.BaseRequestHandler):
    """Answers each request, or breaks each connection once its request is there."""

    answer = b""
    moments: list[float]

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            while self.request.recv(65536):
                self.moments.append(time.monotonic())
                if not self.answer:
                    self.request.setsockopt(
                        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                    )
                    return
                self.request.sendall(self.answer)


@pytest.mark.stack
@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", b""])
def test_wrk_keeps_to_it_whatever_the_server_answers(answer: bytes) -> None:
    """Also where every connection ends in an error: wrk opens another one at once."""
    moments: list[float] = []
    handler = type("Handler", (Answering,), {"answer": answer, "moments": moments})
    clients = ClosedLoopClients(5, 2.0, timeout=5.0, max_rate=100.0)
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        request = Request(Endpoint("127.0.0.1", server.server_address[1]), "/")
        load = WrkGenerator()
        printed = LocalTransport().run(
            load.build_command(request, clients), input=load.build_input(clients), timeout=30
        )
        server.shutdown()
    assert len(moments) > 1
    # What waits in sockets may arrive later, together, but never earlier than it was sent.
    assert (
        len(moments) <= clients.max_rate * (max(moments) - min(moments)) + 1 + clients.concurrency
    )
    ceiling = load.parse_checked(printed.stdout, clients)
    assert ceiling.failure is None
    assert ceiling.is_rate_limited is (ceiling.sent_rate >= 0.9 * clients.max_rate)
