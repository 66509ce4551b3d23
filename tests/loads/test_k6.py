"""k6's scenario: what it is ordered to ask for, and what is made of what it counted."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.loads.answer_validation import AnswerValidator
from autotune.loads.base import LoadProcess, LoadResult, LoadSpec
from autotune.loads.k6 import K6Generator, list_bin_edges, read_source
from autotune.loads.reading_run import take_reading
from autotune.loads.workload import UnusableWorkload
from autotune.services.base import Endpoint
from autotune.target.requests_file import SessionStep, WeightedVisit
from autotune.transports.local import LocalTransport
from autotune.transports.request import Request, TlsOptions
from tests.loads.tls import Site, serving

FIXTURES = Path(__file__).parent / "fixtures" / "k6"
CASES = sorted(path.stem for path in FIXTURES.glob("*.json"))
REQUEST = Request(Endpoint("198.18.0.1", 443), "/a", b"ok", host="shop.example", tls=TlsOptions())
SPEC = LoadSpec(100, 2.0)


def read_fixture(name: str) -> tuple[str, dict[str, Any]]:
    return (FIXTURES / f"{name}.txt").read_text(), json.loads(
        (FIXTURES / f"{name}.json").read_text()
    )


def parse(text: str, case: dict[str, Any]) -> LoadResult:
    process = LoadProcess((), **case["process"])
    return K6Generator().parse_checked(process, text, REQUEST, LoadSpec(**case["order"]))


@pytest.mark.parametrize("name", CASES)
def test_recorded(name: str) -> None:
    text, case = read_fixture(name)
    expected = case["tally"]
    expected["histogram"] = {float(edge): n for edge, n in expected["histogram"].items()}
    assert parse(text, case) == LoadResult(**expected)


@pytest.mark.parametrize("name", CASES)
def test_output_cut_anywhere_never_passes_for_a_whole_reading(name: str) -> None:
    text, case = read_fixture(name)
    for end in range(0, len(text) - 2, 13):
        assert parse(text[:end], case).limited is not None


def test_a_stall_counts_for_everybody_who_came_during_it() -> None:
    """A second at 40/s, of which those of the first 0.8 s waited for more than the limit."""
    text, case = read_fixture("tls-frozen-a-second")
    assert parse(text, case).count_later_than(0.2) >= 32


def build_order(
    load: K6Generator, request: Request, spec: LoadSpec = SPEC
) -> tuple[list[LoadProcess], Any]:
    processes = load.build_processes(request, spec)
    text = (processes[0].input or b"").decode()
    assert text.startswith("const order = ")
    return list(processes), json.loads(text.split("\n", 1)[0].removeprefix("const order = ")[:-1])


# Runs k6.js without k6: prints whether an iteration that starts after some ms sends its request.
ARRIVAL = """
const [source, span, lasts, index] = process.argv.slice(1);
const scenario = { startTime: Date.now() - Number(lasts), iterationInTest: Number(index) };
const Metric = class { add() {} };
const modules = {
  'k6': {}, 'k6/http': {}, 'k6/execution': { scenario },
  'k6/metrics': { Counter: Metric, Trend: Metric },
};
const order = { edges: [], kinds: [], visits: [], iterations: 100, span: Number(span), expect: null };
const arrive = new Function('require', 'order', `${source}; return arrive;`)(
  (name) => modules[name], order);
console.log(arrive(() => 'sent'));
"""


@pytest.mark.stack
@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
@pytest.mark.parametrize(
    ("span", "lasts", "index", "sent"),
    [
        (250, 100, 40, "sent"),
        (250, 249, 99, "sent"),
        (250, 600, 40, "null"),  # instead of an iteration that k6 dropped
        (2000, 1990, 99, "sent"),
        (2000, 2500, 99, "sent"),  # k6 itself ends longer scenarios
        (2000, 1990, 100, "null"),
    ],
)
def test_a_short_ramp_ends_before_the_counted_load(
    span: int, lasts: int, index: int, sent: str
) -> None:
    """k6 runs each scenario for at least a second, and both together would exceed the rate."""
    words = ("node", "-e", ARRIVAL, "--", read_source("k6.js"), *map(str, (span, lasts, index)))
    assert subprocess.run(words, capture_output=True, check=True, text=True).stdout.strip() == sent


def test_the_order() -> None:
    (process,), order = build_order(K6Generator(), REQUEST)
    # Load goes to the target's entry, never through a proxy of the load host's.
    assert process.argv[:4] == ("env", "NO_PROXY=*", "no_proxy=*", "GODEBUG=http2client=0")
    assert process.request_count == 200
    assert (order["site"], order["hosts"]) == (
        "https://shop.example:443", {"shop.example": "198.18.0.1"},
    )  # fmt: skip
    assert order["visits"] == [
        {"weight": 1.0, "steps": [{"path": "/a", "method": "GET", "body": None, "think": 0.0}]}
    ]
    assert (order["iterations"], order["span"], order["expect"]) == (200, 2000, "ok")
    http2 = build_order(K6Generator(), replace(REQUEST, http2=True))[0][0]
    assert not any(word.startswith("GODEBUG") for word in http2.argv)


def test_a_host_known_by_name_alone_is_asked_by_its_own_name() -> None:
    _, order = build_order(K6Generator(), replace(REQUEST, endpoint=Endpoint("lb1", 8443)))
    assert (order["site"], order["hosts"]) == ("https://lb1:8443", {})
    assert order["headers"] == {"Host": "shop.example:8443"}


@pytest.mark.parametrize(
    ("host", "port", "names"),
    [
        (None, 80, ["[fd00::1]", "[fd00::1]:80"]),
        ("Shop.example", 80, ["shop.example", "[fd00::1]", "shop.example:80", "[fd00::1]:80"]),
        ("shop.example", 8080, ["shop.example", "shop.example:8080", "[fd00::1]:8080"]),
    ],
)
def test_an_ipv6_address_is_in_brackets_as_in_urls(
    host: str | None, port: int, names: list[str]
) -> None:
    """A script may request this address without a port, and so may a redirect."""
    _, order = build_order(K6Generator(), Request(Endpoint("fd00::1", port), "/a", host=host))
    assert order["names"] == names


def test_the_rate_is_in_requests_whatever_the_sessions() -> None:
    session = {"weight": 1, "session": [{"path": "/a", "think": "2s"}, {"path": "/b"}]}
    visits = (WeightedVisit(path="/", weight=2), WeightedVisit.model_validate(session))
    (process,), order = build_order(K6Generator(visits), REQUEST, replace(SPEC, rate=80))
    assert (process.request_count, order["iterations"]) == (160, 120)
    assert process.open_connections >= 80 * (
        5 * SPEC.latency_limit + 2 / K6Generator(visits).requests_per_visit
    )
    assert order["expect"] is None


VISITS = (
    WeightedVisit.model_validate({"session": [{"path": "/b"}] * 9}),
    WeightedVisit(path="/a"),
)


@pytest.mark.parametrize(
    ("counts", "errors"),
    [
        # Few of the visits were the longer ones.
        ({"visits": 300, "planned": 1428, "sent": 1428, "bin_0": 1428}, {}),
        (
            {"visits": 290, "dropped_iterations": 10, "planned": 1450, "sent": 1448, "bin_0": 1447},
            {"given up": 2, "not sent": 50, "unanswered": 1},
        ),
        ({"visits": 290, "planned": 1450, "sent": 1450, "bin_0": 1450}, {"not sent": 50}),
        ({}, {"not sent": 1500}),
    ],
)
def test_visits_that_were_not_made_are_not_sent(
    counts: dict[str, int], errors: dict[str, int]
) -> None:
    load = K6Generator(VISITS)
    (process,), order = build_order(load, REQUEST, LoadSpec(750, 2.0))
    assert (process.request_count, order["iterations"]) == (1500, 300)
    output = json.dumps({"counts": counts, "lag": 0.001})
    result = load.parse_checked(process, output, REQUEST, SPEC)
    assert (result.errors, result.limited is None) == (errors, not errors)


@pytest.mark.parametrize("rate", [4.0, 33.3, 449.0, 1200.0])
def test_no_reading_makes_more_requests_than_ordered(rate: float) -> None:
    """The scenario takes places 0 … n - 1 of n, in the order of its steps, as shares of all weights."""
    for _ in range(20):
        (process,), order = build_order(K6Generator(VISITS), REQUEST, LoadSpec(rate, 2.0))
        n, step, first = (order[key] for key in ("iterations", "stride", "first"))
        assert sorted((turn * step + first) % n for turn in range(n)) == list(range(n))
        assert [len(visit["steps"]) for visit in order["visits"]] == [1, 9]
        made = sum(1 if turn / n * 2 < 1 else 9 for turn in range(n))
        assert process.request_count - 9 < made <= process.request_count


@pytest.mark.parametrize("hosts", [1, 3, 4])
@pytest.mark.parametrize(("rate", "seconds"), [(6.0, 2.0), (33.3, 2.0), (449.0, 2.0), (997.0, 1.5)])
def test_all_processes_together_send_the_requested_rate(
    rate: float, seconds: float, hosts: int
) -> None:
    load = K6Generator(VISITS)
    processes = load.build_processes(REQUEST, LoadSpec(rate, seconds), hosts)
    orders = [json.loads((p.input or b"").split(b"\n", 1)[0][14:-1]) for p in processes]
    visits = sum(order["iterations"] for order in orders)
    assert visits == int(rate * seconds / load.requests_per_visit)
    (span,) = {order["span"] for order in orders}
    assert seconds - load.requests_per_visit / rate < span / 1000 <= seconds
    sent_rate = 1000 * visits * load.requests_per_visit / span
    assert sent_rate == pytest.approx(rate, rel=0.001)
    assert sent_rate <= rate * (1 + 1e-9)
    assert sum(process.max_rate for process in processes) == pytest.approx(rate)


PAUSES = WeightedVisit.model_validate(
    {"session": [{"path": "/a", "think": "2s"}, {"path": "/b", "think": "9s"}]}
)


def test_sessions_have_time_for_their_pauses() -> None:
    load = K6Generator().with_visits((PAUSES,))
    assert isinstance(load, K6Generator)
    spec = LoadSpec(40, 2.0, timeout=0.5)
    (process,), order = build_order(load, REQUEST, spec)
    assert [step["think"] for step in order["visits"][0]["steps"]] == [2.0, 0.0]
    assert order["grace"] >= 1000 * (2.0 + spec.timeout)
    assert process.stop_seconds > spec.seconds + order["grace"] / 1000


def test_pauses_longer_than_a_reading_are_refused() -> None:
    longer = PAUSES.model_copy(
        update={"session": (SessionStep(path="/", think="5s"), *PAUSES.session_steps)}
    )
    with pytest.raises(UnusableWorkload, match="pauses for 7 s; the maximum is 2 s"):
        K6Generator().with_visits((PAUSES, longer))


def read_until_sent(
    generator: K6Generator, site: Site, spec: LoadSpec
) -> tuple[LoadResult, list[str]]:
    """Repeat a reading until the machine lets k6 send all in time, and return what it asked."""
    for _ in range(10):
        before = len(site.asked())
        result = take_reading(
            generator, site.request(), spec, LocalTransport(), max_rate=spec.rate,
            validator=AnswerValidator(()),
        )  # fmt: skip
        if "not sent" not in result.errors:
            break
    return result, site.asked()[before:]


@pytest.mark.stack
@pytest.mark.built
def test_a_real_k6_makes_all_requests_of_sessions_with_pauses(tmp_path: Path) -> None:
    spec = LoadSpec(20, 1.0, timeout=0.5, latency_limit=0.25, ramp_seconds=0.0)
    with serving(tmp_path) as site:
        result, _ = read_until_sent(K6Generator().with_visits((PAUSES,)), site, spec)
    assert (result.limited, result.errors, result.intended) == (None, {}, 20)


@pytest.mark.stack
@pytest.mark.built
def test_a_real_k6_makes_the_visits_of_a_reading(tmp_path: Path) -> None:
    spec = LoadSpec(40, 1.5, timeout=8.0, latency_limit=4.0, ramp_seconds=0.0)
    with serving(tmp_path) as site:
        result, lines = read_until_sent(K6Generator(VISITS), site, spec)
        asked = Counter(line.split()[4] for line in lines)
    assert (result.limited, result.errors, result.right_answers) == (None, {}, 60)
    assert asked == {"/a": 6, "/b": 54}


def test_late_answers_are_counted_exactly() -> None:
    assert SPEC.latency_limit in list_bin_edges(SPEC)
    assert list_bin_edges(SPEC) == sorted(set(list_bin_edges(SPEC)))
    assert list_bin_edges(SPEC)[-1] >= 2 * SPEC.timeout
