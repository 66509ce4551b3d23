"""A reading whose load host could not make the load says nothing about the server."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import ClassVar

import pytest

from autotune.deploy.stack import ServiceInstance, Stack
from autotune.environments import load_meter
from autotune.environments.answer_check import AnswerCheck
from autotune.environments.load_meter import LoadMeter
from autotune.loads.answer_validation import AnswerValidator, LoadPage
from autotune.loads.base import LoadGenerator, LoadSpec, Request
from autotune.loads.httperf import HttperfGenerator
from autotune.loads.httperf_sessions import SessionGenerator
from autotune.loads.k6 import K6Generator
from autotune.loads.oha import OhaGenerator
from autotune.monitor.host_watch import Observations, WatchedHost
from autotune.monitor.procfs import HostSample
from autotune.services.base import Endpoint, Placement, Role
from autotune.services.memcached.service import Memcached
from autotune.services.varnish.service import Varnish
from autotune.target.requests_file import SessionStep, WeightedVisit
from autotune.target.slo import Slo
from autotune.transports.base import Argv, CommandResult, HostUnreachable
from autotune.transports.local import LocalTransport
from tests.loads.offered import Recorder, offered

ENTRY = Endpoint("10.0.0.1", 80)
SLOW_SECONDS = 0.5


def gauge(cpus: float) -> LoadMeter:
    transport = LocalTransport("load1")
    return LoadMeter(
        HttperfGenerator(), Request(ENTRY, "/"), Slo(), (transport,), Stack((), ENTRY), (), timeout=2.0,
        max_rate=20_000.0, generator_hosts=(WatchedHost("load1", cpus, (), transport),),
    )  # fmt: skip


SESSIONS = (
    WeightedVisit.model_validate({"session": [{"path": "/a", "think": "2s"}, {"path": "/b"}]}),
)


@pytest.mark.parametrize("generator", [SessionGenerator(), K6Generator()], ids=["httperf", "k6"])
def test_a_reading_of_sessions_offers_the_whole_rate_after_the_pauses(
    generator: LoadGenerator,
) -> None:
    """During the pauses of the first sessions, no session sends its second request."""
    host = Recorder("load1")
    meter = replace(
        gauge(1.0), load=generator.with_visits(SESSIONS), load_hosts=(host,), generator_hosts=()
    )
    meter.take_reading(100.0, 3.0, ramp_seconds=0.0)
    (load,) = offered([host])
    starts_per_second = load.requests / 2 / (load.ends - load.begins)
    seconds_of_both = load.ends - load.begins - 2.0
    assert starts_per_second == pytest.approx(50.0, rel=0.02)
    assert seconds_of_both == pytest.approx(3.0, rel=0.02)


LONG_VISITS = (WeightedVisit.model_validate({"session": [{"path": "/a"}] * 10}),)


@pytest.mark.parametrize("generator", [SessionGenerator(), K6Generator()], ids=["httperf", "k6"])
@pytest.mark.parametrize("entries", [1, 3])
@pytest.mark.parametrize("rate", [0.7, 6.0, 9.0])
def test_a_reading_at_a_low_rate_is_long_enough_for_a_visit_to_each_entry(
    generator: LoadGenerator, entries: int, rate: float
) -> None:
    host = Recorder("load1")
    others = tuple(Endpoint(f"10.0.0.{number + 2}", 80) for number in range(entries - 1))
    page = AnswerValidator((LoadPage(SessionStep(path="/a")),))
    request = Request(ENTRY, "/", other_endpoints=others)
    meter = replace(
        gauge(1.0),
        load=generator.with_visits(LONG_VISITS),
        load_hosts=(host,),
        generator_hosts=(),
        request=request,
        answer_check=AnswerCheck(request, page, host, 0.01, 20_000.0, is_learned=True),
    )
    reading = meter.take_reading(rate, 1.5, ramp_seconds=0.0).reading
    assert not reading.is_rate_too_low
    visits = [one.requests for one in offered([host]) if one.requests >= 10]
    assert len(visits) == entries


@pytest.mark.parametrize(
    ("rate", "max_rate", "recorded"), [(3.4, 20.0, 3.0), (3.6, 3.7, 3.0), (100.5, 200.0, 100.0)]
)
def test_a_reading_has_the_whole_rate_that_oha_sends(
    rate: float, max_rate: float, recorded: float
) -> None:
    host = Recorder("load1")
    meter = replace(
        gauge(1.0), load=OhaGenerator(), load_hosts=(host,), generator_hosts=(), max_rate=max_rate
    )
    watched = meter.take_reading(rate, 10.0, ramp_seconds=0.0)
    (load,) = offered([host])
    assert watched.reading.rate == recorded
    assert load.requests == 10.0 * recorded


@pytest.mark.parametrize("entries", [1, 3])
@pytest.mark.parametrize("rate", [2.0, 3.0, 7.0, 100.0])
def test_requests_that_check_responses_leave_a_whole_rate_to_oha(entries: int, rate: float) -> None:
    host = Recorder("load1")
    others = tuple(Endpoint(f"10.0.0.{number}", 80) for number in range(2, 1 + entries))
    request = replace(Request(ENTRY, "/"), other_endpoints=others)
    page = AnswerValidator((LoadPage(SessionStep(path="/")),))
    meter = replace(
        gauge(1.0),
        request=request,
        load=OhaGenerator(),
        load_hosts=(host,),
        generator_hosts=(),
        answer_check=AnswerCheck(request, page, host, 0.01, 20_000.0, is_learned=True),
    )
    watched = meter.take_reading(entries * rate, 10.0, ramp_seconds=0.0)
    assert watched.reading.rate == entries * rate
    assert sum(one.rate for one in offered([host])) == pytest.approx(entries * rate, rel=0.01)


def test_a_rate_that_oha_cannot_send_at_all_is_too_low() -> None:
    """It sends only whole requests/s, however long a reading is."""
    host = Recorder("load1")
    meter = replace(gauge(1.0), load=OhaGenerator(), load_hosts=(host,), generator_hosts=())
    reading = meter.take_reading(0.4, 10.0, ramp_seconds=0.0).reading
    assert reading.is_rate_too_low
    assert reading.seconds == 0.0
    assert not host.ran


def seen(*throttled: float) -> Observations:
    samples = tuple(
        HostSample(uptime=float(at), throttled_seconds=value) for at, value in enumerate(throttled)
    )
    return Observations(samples={"load1": samples})


@pytest.mark.parametrize(
    ("cpus", "throttled", "rate", "said"),
    [
        (0.02, (0.0, 0.9, 1.8), 400.0, "throttled at its quota of 0.02 CPUs for 0.9 s per second"),
        (0.02, (), 400.0, "too busy to report its CPU use (0.02 CPUs)"),
        (0.02, (0.0, 0.9, 1.8), 50.0, None),  # as little as it can make
        (1.0, (0.0, 0.9, 1.8), 400.0, None),
        (2.0, (0.0, 0.0, 0.0), 7000.0, None),  # no quota at all: httperf itself tells
        (0.1, (0.0, 0.01, 0.02), 400.0, None),
    ],
)
def test_a_load_host_with_too_little_cpu(
    cpus: float, throttled: tuple[float, ...], rate: float, said: str | None
) -> None:
    found = gauge(cpus)._find_throttled_host(seen(*throttled), LoadSpec(rate, 2.0))
    assert (found is None) == (said is None)
    if said:
        assert said in str(found)


class Counted(LocalTransport):
    """A host whose caches print the same counters at any time."""

    def run(self, argv: Argv, **options: object) -> CommandResult:
        values = {"client_req": 100, "cache_hit": 70, "cache_miss": 20, "n_lru_nuked": 0}
        printed = json.dumps({"counters": {f"MAIN.{k}": {"value": n} for k, n in values.items()}})
        memcached = "STAT cmd_get 8\r\nSTAT get_hits 5\r\nSTAT get_misses 3\r\nEND\r\n"
        is_varnish = "varnishstat" in str(options.get("input"))
        return CommandResult(tuple(argv), 0, printed if is_varnish else memcached, "")


def placed(role: Role) -> Placement:
    """Where nothing listens."""
    return Placement(
        tier=str(role), host="web1", role=role, directory="/nowhere", listen=Endpoint("127.0.0.1", 1),
        installed=True, programs={name: f"/usr/bin/{name}" for name in ("varnishstat", "memcached-tool")},
    )  # fmt: skip


VARNISH = ServiceInstance(Varnish(), placed(Role.HTTP_CACHE))
MEMCACHED = ServiceInstance(Memcached(), placed(Role.CACHE))


@pytest.mark.parametrize(
    ("instances", "lookups"),
    [((), None), ((VARNISH,), (70, 20)), ((VARNISH, MEMCACHED), (75, 23))],
)
def test_the_lookups_of_all_caches_show_whether_they_are_still_filling(
    instances: tuple[ServiceInstance, ...], lookups: tuple[int, int] | None
) -> None:
    host = WatchedHost("web1", 1.0, instances, Counted("web1"))
    meter = replace(gauge(1.0), stack=Stack(instances, ENTRY), hosts=(host,))
    assert meter.count_cache_lookups() == lookups


class SlowMemcached(Counted):
    """A host whose memcached takes longer to print its counters than a query may take."""

    def run(self, argv: Argv, **options: object) -> CommandResult:
        if "varnishstat" not in str(options.get("input")):
            self.queries.append(argv)
            time.sleep(SLOW_SECONDS)
            raise HostUnreachable(f"{self.name}: sh did not finish within {SLOW_SECONDS:g} s")
        return super().run(argv, **options)

    queries: ClassVar[list[Argv]] = []


def test_a_cache_that_is_slow_to_count_its_lookups_is_asked_only_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("autotune.monitor.counters._COMMAND_SECONDS", SLOW_SECONDS)
    host = WatchedHost("web1", 1.0, (VARNISH, MEMCACHED), SlowMemcached("web1"))
    stack = Stack((VARNISH, MEMCACHED), ENTRY)
    meter = replace(gauge(1.0), stack=stack, hosts=(host,))
    assert [meter.count_cache_lookups() for _ in range(3)] == [None, (70, 20), (70, 20)]
    assert len(SlowMemcached.queries) == 1
    assert replace(meter, stack=Stack((MEMCACHED,), ENTRY)).count_cache_lookups() is None


def test_a_sum_without_one_of_the_caches_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise, the next sum would seem to rise by all lookups since the start of that cache."""
    monkeypatch.setattr(load_meter.CounterReader, "read", lambda *_, **_options: None)
    meter = replace(gauge(1.0), stack=Stack((MEMCACHED,), ENTRY))
    assert meter.count_cache_lookups() is None
    assert not meter.slow_caches


def test_a_cache_on_this_machine_is_asked_by_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.environments.load_meter.LocalTransport", Counted)
    host = WatchedHost("web1", 1.0, (VARNISH,))
    meter = replace(gauge(1.0), stack=Stack((VARNISH,), ENTRY), hosts=(host,))
    assert meter.count_cache_lookups() == (70, 20)
