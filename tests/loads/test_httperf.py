from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from autotune.loads.base import LoadProcess, LoadResult, LoadSpec, Request
from autotune.loads.httperf import (
    CLIENT_NUMBERS,
    FEW_REQUESTS,
    SLOW_RATE,
    HttperfGenerator,
    HttperfOutput,
    compute_mean_gap,
    draw_request_count,
    sum_unit_gaps,
)
from autotune.loads.reading_run import take_reading
from autotune.services.base import Endpoint
from autotune.transports.local import LocalTransport
from autotune.transports.request import TlsOptions

RECORDED = Path(__file__).parent / "fixtures" / "httperf"
CASES = sorted(path.stem for path in RECORDED.glob("*.json"))
REQUEST = Request(Endpoint("198.18.0.1", 8080), "/kv.php?a=[1]", b"found 0100 of 0100\n")


def read_fixture(name: str) -> tuple[str, dict[str, Any]]:
    return (RECORDED / f"{name}.txt").read_text(), json.loads(
        (RECORDED / f"{name}.json").read_text()
    )


def parse(printed: str, case: dict[str, Any]) -> LoadResult:
    body = case["expect"]
    request = Request(Endpoint("127.0.0.1", 1), "/", body.encode() if body else None)
    process = LoadProcess(argv=(), **case["process"])
    return HttperfGenerator().parse_checked(process, printed, request, LoadSpec(**case["order"]))


@pytest.mark.parametrize("name", CASES)
def test_recorded_output_gives_the_recorded_tally(name: str) -> None:
    printed, case = read_fixture(name)
    expected = case["tally"]
    expected["histogram"] = {float(edge): n for edge, n in expected["histogram"].items()}
    assert replace(parse(printed, case), sizes={}) == LoadResult(**expected)


@pytest.mark.parametrize("name", CASES)
def test_every_intended_request_is_answered_right_or_an_error(name: str) -> None:
    printed, case = read_fixture(name)
    result = parse(printed, case)
    assert result.intended == case["process"]["request_count"]
    assert result.right_answers + result.error_count == result.intended
    assert result.sent <= result.intended


@pytest.mark.parametrize("name", CASES)
def test_output_cut_anywhere_never_passes_for_a_whole_reading(name: str) -> None:
    printed, case = read_fixture(name)
    for end in range(0, len(printed) - 60, 97):
        result = parse(printed[:end], case)
        assert result.limited is not None
        assert result.error_count == result.intended


FAULTS = {
    "5xx": "5xx", "4xx": "4xx", "3xx": "3xx", "refused": "refused", "reset": "reset",
    "timeouts": "timeout", "wrong-body": "wrong body", "fd-unavailable": "fd-unavailable",
}  # fmt: skip


@pytest.mark.parametrize(("name", "kind"), FAULTS.items())
def test_a_fault_of_the_server_is_counted_and_not_blamed_on_the_generator(
    name: str, kind: str
) -> None:
    result = parse(*read_fixture(name))
    assert result.errors[kind] > 0.4 * result.intended
    assert result.limited is None


@contextmanager
def breaking_handshakes(after: int) -> Iterator[Endpoint]:
    """Where TLS connections are closed before or after the server has read the client's first words."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            if after:
                self.request.recv(after)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Endpoint("127.0.0.1", server.server_address[1])
        server.shutdown()


@pytest.mark.stack
@pytest.mark.parametrize("after", [0, 1, 65536])
def test_a_handshake_that_the_server_breaks_is_a_fault_of_the_server(after: int) -> None:
    spec = LoadSpec(20, 1.0, latency_limit=2.0, ramp_seconds=0.0)
    with breaking_handshakes(after) as endpoint:
        request = Request(endpoint, "/", tls=TlsOptions())
        result = take_reading(
            HttperfGenerator(), request, spec, LocalTransport(), max_rate=20_000.0
        )
    assert (result.limited, result.truncated, result.errors) == (None, True, {"reset": 20})


GENERATORS_FAULT = ("interrupted", "killed", "starved-to-the-end", "burst-of-its-own")


@pytest.mark.parametrize("name", GENERATORS_FAULT)
def test_a_fault_of_the_generator_is_never_the_servers(name: str) -> None:
    assert parse(*read_fixture(name)).limited


def test_a_server_that_fails_at_less_than_was_ordered_fails() -> None:
    result = parse(*read_fixture("starved-but-overloaded"))
    assert result.limited is None
    assert result.truncated


def test_slow_answers_stay_late_where_fast_errors_are_taken_out() -> None:
    printed, case = read_fixture("one-in-ten-5xx")
    late = printed.replace("\n\nTotal:", "\n           400.5 10\n\nTotal:", 1)
    assert parse(late, case).count_later_than(0.050) == 10


# rate, seconds, timeout, limit, hosts → requests of each process, connections it may hold
COMMANDS = [
    ((200, 3, 2, 0.05, 1), [600], 100),
    ((2000, 3, 2, 0.05, 1), [6000], 1000),
    ((4000, 2, 2, 0.05, 1), [8000], 1000),
    ((8000, 1, 2, 0.05, 1), [4000, 4000], 1000),
    ((8000, 1, 2, 0.05, 3), [2667, 2667, 2666], 1000),
    ((13_000, 1, 2, 0.01, 1), [4334, 4333, 4333], 434),
    ((1000, 1, 2, 1.0, 1), [500, 500], 1000),  # never more than the timeout can fill
    ((0.5, 2, 2, 0.05, 3), [1], 64),
]


@pytest.mark.parametrize(("spec", "requests", "held"), COMMANDS)
def test_as_few_processes_as_can_do_the_job(
    spec: tuple[float, float, float, float, int], requests: list[int], held: int
) -> None:
    rate, seconds, timeout, limit, hosts = spec
    ordered = LoadSpec(rate, seconds, timeout, limit, seed=5)
    found = HttperfGenerator().build_processes(REQUEST, ordered, hosts)
    assert [process.request_count for process in found] == requests
    assert {process.open_connections for process in found} == {held}
    assert sum(requests) == ordered.request_count
    assert all(process.span_seconds <= seconds + 1 / rate for process in found)
    assert all(process.stop_seconds > process.span_seconds + timeout for process in found)


def test_a_command_line() -> None:
    (process,) = HttperfGenerator().build_processes(REQUEST, LoadSpec(500, 2.0, seed=70_000))
    assert process.argv == (
        "sh", "-c", 'exec "$@" 2>&1', "sh", "prlimit", "--nofile=266",
        "timeout", "--signal=INT", "--kill-after=1", "9",
        "httperf", "-v", "-v", "--client=4464/65536", "--server", "198.18.0.1", "--port", "8080",
        process.argv[18], "--timeout=2", "--uri", "/kv.php?a=[1]", "--num-conns=1000",
        "--num-calls=1",
    )  # fmt: skip
    assert process.argv[18].startswith("--period=e0.00")


@given(st.integers(0, 2**40), st.sampled_from([100, 9000]))
def test_a_seed_repeats_the_arrivals_and_processes_do_not_share_them(seed, rate) -> None:
    spec = LoadSpec(rate, 0.05, seed=seed)
    once, again = (HttperfGenerator().build_processes(REQUEST, spec) for _ in range(2))
    assert once == again
    clients = [word for process in once for word in process.argv if word.startswith("--client")]
    assert len(set(clients)) == len(once)


def test_without_a_seed_no_two_readings_are_alike() -> None:
    found = {HttperfGenerator().build_processes(REQUEST, LoadSpec(100, 1.0)) for _ in range(20)}
    assert len(found) > 15


def test_few_requests_vary_as_random_arrivals_do() -> None:
    counts = [draw_request_count(LoadSpec(2.0, 25.0)) for _ in range(1000)]
    mean = sum(counts) / len(counts)
    variance = sum((count - mean) ** 2 for count in counts) / len(counts)
    assert 48 < mean < 52
    assert 35 < variance < 70


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        (LoadSpec(FEW_REQUESTS / 40, 40.0), FEW_REQUESTS),  # many
        (LoadSpec(SLOW_RATE, 3.0), 60),  # at a higher rate
        (LoadSpec(2.0, 25.0, seed=7), 50),  # to be repeated
    ],
)
def test_many_requests_and_those_to_be_repeated_do_not_vary(spec: LoadSpec, count: int) -> None:
    assert {draw_request_count(spec) for _ in range(50)} == {count}


@given(rate=st.floats(0.01, 30.0), share=st.floats(0.3, 1.0), seconds=st.floats(0.25, 10.0))
@example(rate=20.75, share=1.0, seconds=1.0)
def test_few_requests_never_exceed_the_maximum_rate(
    rate: float, share: float, seconds: float
) -> None:
    spec = LoadSpec(share * rate, seconds, max_rate=rate)
    assert 1 <= draw_request_count(spec) <= max(1, rate * seconds + 1e-9)
    found = HttperfGenerator().build_processes(REQUEST, spec)
    assert sum(process.max_rate for process in found) <= rate * (1 + 1e-9)


@given(st.text())
def test_anything_can_be_printed(text) -> None:
    assert HttperfOutput.parse(text) is None or "Total: connections" in text


# What httperf 0.9.0-9 took, in test-duration (1 ms resolution), to send 1000 requests with a mean
# gap of 1 ms to a server that answered at once.
TOOK = {0: 0.958, 1: 1.005, 777: 1.025}


@pytest.mark.parametrize(("client", "took"), TOOK.items())
def test_the_sequence_is_httperfs_own(client: int, took: float) -> None:
    assert sum_unit_gaps(client, 999) / 1000 == pytest.approx(took, abs=0.002)


@given(st.integers(0, CLIENT_NUMBERS - 1), st.integers(2, 400), st.floats(1, 10_000))
def test_the_gaps_add_up_to_the_time_the_rate_asks_for(client, requests, rate) -> None:
    gap = compute_mean_gap(client, requests, rate)
    assert gap * sum_unit_gaps(client, requests - 1) == pytest.approx((requests - 1) / rate)


def test_clients_send_at_different_moments_and_stray_as_poisson_arrivals_do() -> None:
    n = 1000
    spans = [
        sum_unit_gaps(client, n) / n for client in range(0, CLIENT_NUMBERS, CLIENT_NUMBERS // 200)
    ]
    mean = sum(spans) / len(spans)
    sd = sqrt(sum((span - mean) ** 2 for span in spans) / (len(spans) - 1))
    assert len(set(spans)) == len(spans)
    assert mean == pytest.approx(1, abs=4 / sqrt(n * len(spans)))
    assert sd == pytest.approx(1 / sqrt(n), rel=0.2)


def test_a_single_request_needs_no_gap() -> None:
    assert compute_mean_gap(3, 1, 5.0) == 0.2
