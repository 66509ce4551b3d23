"""httperf's sessions and lists of URIs: recorded output, and httperf itself with a small server."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from autotune.loads.base import LoadGenerator, LoadProcess, LoadResult, LoadSpec, Request
from autotune.loads.httperf import (
    MAX_LINE_BYTES,
    MAX_SESSIONS,
    HttperfGenerator,
    find_request_error,
)
from autotune.loads.httperf_sessions import SessionGenerator, SessionProcess
from autotune.loads.reading_run import take_reading
from autotune.loads.workload import format_session_line, parse_sessions
from autotune.services.base import Endpoint
from autotune.target.requests_file import SessionStep, WeightedVisit
from autotune.transports.local import LocalTransport
from tests.loads.server import recording

FIXTURES = Path(__file__).parent / "fixtures" / "httperf-sessions"
REQUEST = Request(Endpoint("198.18.0.1", 80), "/")
ORDER = LoadSpec(60, 1.0, latency_limit=0.050, timeout=0.4, seed=5)
BROWSING = "/s1 think=0.1\n   /img1\n   /img2\n/s2\n"
THREE = "/s1\n/other\n/s3\n"


def parse(name: str, sessions: str = THREE) -> LoadResult:
    load = SessionGenerator().with_visits(parse_sessions(sessions))
    (process,) = load.build_processes(REQUEST, ORDER)
    return load.parse_checked(process, (FIXTURES / f"{name}.txt").read_text(), REQUEST, ORDER)


def split_sessions(process: LoadProcess) -> list[str]:
    """Return the sessions in the session log of a process."""
    return (process.input or b"").decode().removesuffix("\n").split("\n\n")


def test_pauses_are_no_latency() -> None:
    result = parse("healthy", BROWSING)
    assert (result.intended, result.sent, result.right_answers) == (60, 60, 60)
    assert result.count_later_than(0.050) == 0
    assert max(result.histogram) < 0.1 / 4 + 0.050
    assert result.limited is None


# What is wrong with it → errors, right answers, late ones
@pytest.mark.parametrize(
    ("name", "errors", "right", "late"),
    [
        # 200 ms in one of three requests: 67 ms a request, and all of them late.
        ("slow", {"given up": 2, "timeout": 1}, 57, 57),
        ("broken", {"5xx": 20}, 40, 0),
        ("timeouts", {"given up": 40, "timeout": 20}, 0, 0),
        ("refused", {"given up": 40, "refused": 20}, 0, 0),
    ],
)
def test_recorded(name: str, errors: dict[str, int], right: int, late: int) -> None:
    result = parse(name)
    assert result.errors == errors
    assert result.right_answers == right
    assert result.count_later_than(0.050) == late
    assert result.right_answers + result.error_count == result.intended == 60
    assert result.limited is None


def test_a_timeout_after_a_pause_is_a_fault_of_the_server() -> None:
    """The last session starts after 0.95 s, pauses for 0.7 s and gives up one of its requests."""
    load = SessionGenerator().with_visits(parse_sessions("/s1 think=0.7\n/other\n/s3\n"))
    (process,) = load.build_processes(REQUEST, ORDER)
    printed = (FIXTURES / "slow.txt").read_text()
    printed = printed.replace(" max 520.1 ", " max 1380.0 ").replace(
        "test-duration 1.287 s", "test-duration 2.330 s"
    )
    result = load.parse_checked(process, printed, REQUEST, ORDER)
    assert result.errors == {"given up": 2, "timeout": 1}
    assert result.limited is None


def test_output_cut_anywhere_is_no_result() -> None:
    load = SessionGenerator().with_visits(parse_sessions(BROWSING))
    (process,) = load.build_processes(REQUEST, ORDER)
    text = (FIXTURES / "healthy.txt").read_text()
    for end in range(0, text.index("Session rate"), 53):
        assert load.parse_checked(process, text[:end], REQUEST, ORDER).limited


@pytest.mark.parametrize("hosts", [1, 3])
@pytest.mark.parametrize("rate", [30.0, 600.0, 9000.0])
def test_kinds_make_the_rate_in_requests_together(rate: float, hosts: int) -> None:
    spec = LoadSpec(rate, 4.0, latency_limit=0.050)
    load = SessionGenerator().with_visits(parse_sessions(f"{BROWSING}\n{BROWSING}\n/a\n"))
    processes = load.build_processes(REQUEST, spec, hosts)
    assert len(processes) >= min(2 * hosts, 20)
    assert sum(one.request_count for one in processes) == pytest.approx(rate * 4, rel=0.02, abs=4)
    started: Counter[int] = Counter()
    for one in processes:
        assert isinstance(one, SessionProcess)
        assert one.request_count == one.session_count * one.kind.request_count
        assert sorted(split_sessions(one)) == sorted(one.kind.sessions)
        started[one.kind.request_count] += one.session_count
    # Two sessions of four requests to one of a single one, as in the file.
    assert started[4] == pytest.approx(2 * started[1], abs=2)


@pytest.mark.stack
@pytest.mark.parametrize(
    "load",
    [
        SessionGenerator().with_visits(parse_sessions("/s1 think=0.2\n   /img1\n   /img2\n/s2\n")),
        SessionGenerator().with_visits(
            (
                WeightedVisit.model_validate(
                    {
                        "session": [
                            {"path": "/s1", "think": "200ms"},
                            {"path": "/img1"},
                            {"path": "/img2"},
                        ]
                    }
                ),
                WeightedVisit(path="/s2"),
            )
        ),
    ],
    ids=["of httperf's file", "of visits"],
)
def test_real_sessions_ask_for_what_the_file_says(load: LoadGenerator) -> None:
    with recording() as (endpoint, asked):
        spec = LoadSpec(40, 1.0, timeout=20.0, latency_limit=20.0, ramp_seconds=0.0)
        result = take_reading(
            load, Request(endpoint, "/"), spec, LocalTransport(), max_rate=20_000.0
        )
    assert (result.intended, result.right_answers) == (40, 40)
    assert Counter(asked) == dict.fromkeys(("/s1", "/s2", "/img1", "/img2"), 10)


@pytest.mark.stack
def test_real_uris_are_asked_for_in_turn() -> None:
    paths = ("/a", "/b?x=1", "/c", "/broken")
    with recording() as (endpoint, asked):
        spec = LoadSpec(40, 1.0, timeout=20.0, latency_limit=20.0, ramp_seconds=0.0)
        result = take_reading(
            HttperfGenerator(uris=paths),
            Request(endpoint, "/never"),
            spec,
            LocalTransport(),
            max_rate=20_000.0,
        )
    assert result.errors == {"5xx": 10}
    assert result.right_answers == 30
    assert Counter(asked) == dict.fromkeys(paths, 10)


@pytest.mark.stack
@pytest.mark.quiet
@pytest.mark.parametrize(
    "load",
    [
        SessionGenerator().with_visits(parse_sessions("/s1 think=0.2\n   /img1\n   /img2\n/s2\n")),
        HttperfGenerator(uris=("/a", "/b")),
    ],
)
def test_a_generator_that_has_its_cpu_makes_the_load(load: LoadGenerator) -> None:
    with recording() as (endpoint, _):
        result = take_reading(
            load,
            Request(endpoint, "/"),
            LoadSpec(40, 1.0, latency_limit=1.0),
            LocalTransport(),
            max_rate=20_000.0,
        )
    assert (result.right_answers, result.limited) == (40, None)


def test_each_reading_begins_elsewhere_in_the_list() -> None:
    load = HttperfGenerator(uris=tuple(f"/{n}" for n in range(1000)))
    begun = {load.build_processes(REQUEST, ORDER)[0].input for _ in range(2) if ORDER.seed}
    assert len(begun) == 1  # the same seed asks for the same again
    some = [load.build_processes(REQUEST, LoadSpec(60, 1.0))[0].input or b"" for _ in range(20)]
    assert len({text.split(b"\0")[0] for text in some}) > 1
    assert all(len(text.split(b"\0")) == 1001 for text in some)


def test_processes_of_a_reading_begin_far_from_each_other() -> None:
    paths = [f"/{n}" for n in range(1000)]
    load = HttperfGenerator(uris=tuple(paths))
    processes = load.build_processes(REQUEST, LoadSpec(60, 1.0, seed=7), hosts=5)
    places = sorted(paths.index((p.input or b"").split(b"\0")[0].decode()) for p in processes)
    gaps = [(after - before) % 1000 for before, after in pairwise([*places, places[0]])]
    assert len(processes) == 5
    assert min(gaps) > 1000 / 5 / 2


MANY = "\n\n".join(f"/{n}\n/{n}/next" for n in range(1500))


@pytest.mark.parametrize(
    "load",
    [
        SessionGenerator().with_visits(parse_sessions(MANY)),
        HttperfGenerator().with_visits(
            tuple(WeightedVisit(path=f"/{n}", method="HEAD") for n in range(1500))
        ),
    ],
    ids=["sessions", "requests"],
)
def test_readings_send_each_session_of_a_long_list(load: LoadGenerator) -> None:
    """httperf starts with the first session of its log, and reads at most a thousand of them."""
    first, sent = set[str](), set[str]()
    for _ in range(60):
        (process,) = load.build_processes(REQUEST, LoadSpec(60, 1.0))
        listed = split_sessions(process)
        assert len(listed) == MAX_SESSIONS
        first.add(listed[0])
        sent |= set(listed)
    assert len(first) > 30
    assert len(sent) == 1500


def test_a_part_of_a_list_has_the_mix_of_the_whole() -> None:
    rare = tuple(WeightedVisit(path=f"/rare{n}", method="HEAD") for n in range(300))
    often = tuple(WeightedVisit(path=f"/often{n}", method="HEAD", weight=297) for n in range(10))
    load = HttperfGenerator().with_visits((*often, *rare))
    for seed in range(0, 60_000, 3001):
        (process,) = load.build_processes(REQUEST, LoadSpec(60, 1.0, seed=seed))
        rare_count = sum("/rare" in one for one in split_sessions(process))
        assert rare_count / MAX_SESSIONS == pytest.approx(300 / 3270, abs=0.01)


@pytest.mark.stack
def test_the_longest_accepted_request_is_sent_once_and_whole() -> None:
    """httperf reads the rest of a longer line as another request."""
    step = SessionStep(path="/a", method="POST", body="x" * 9000)
    step = step.model_copy(
        update={"body": "x" * (MAX_LINE_BYTES - len(format_session_line(step)) + 9000)}
    )
    assert find_request_error(step) is None
    assert step.body is not None
    assert find_request_error(step.model_copy(update={"body": f"{step.body}x"}))
    with recording() as (endpoint, asked):
        spec = LoadSpec(20, 1.0, timeout=20.0, latency_limit=20.0, ramp_seconds=0.0)
        request = Request(endpoint, "/a", method="POST", body=step.body)
        result = take_reading(
            HttperfGenerator(), request, spec, LocalTransport(), max_rate=20_000.0
        )
    assert (result.errors, result.right_answers) == ({}, 20)
    assert asked == [f"/a: {len(step.body)} bytes"] * 20
