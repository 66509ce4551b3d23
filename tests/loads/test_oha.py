"""oha's answers: its JSON and, behind it, the SQLite file that it stores them in.

`RECORDED` is output of oha 1.4.7. The rest is put together here, in its form and that of 1.15 (its
source's `print_json`, `db::store`), with SQLite itself.
"""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.loads.base import LoadProcess, LoadResult, LoadSpec, Request
from autotune.loads.oha import OhaGenerator, read_stored_answers
from autotune.services.base import Endpoint

BODY = b"found 0100 of 0100\n"
REQUEST = Request(Endpoint("198.18.0.1", 8080), "/kv.php?a=[1]&b=$(reboot)", BODY)
ORDER = LoadSpec(100, 2.0, latency_limit=0.050)
CONNECTIONS = 25
NO_ERRORS: Mapping[str, int] = {}
OLD = """CREATE TABLE oha (start REAL NOT NULL, start_latency_correction REAL, end REAL NOT NULL,
duration REAL NOT NULL, status INTEGER NOT NULL, len_bytes INTEGER NOT NULL)"""
NEW = """CREATE TABLE IF NOT EXISTS oha (url TEXT NOT NULL, start REAL NOT NULL,
start_latency_correction REAL, end REAL NOT NULL, duration REAL NOT NULL,
status INTEGER NOT NULL, len_bytes INTEGER NOT NULL, run INTEGER NOT NULL)"""
Row = tuple[float, float, float, int, int]  # due, sent, end, status, size


FIXTURES = Path(__file__).parent / "fixtures" / "oha"
# name → spec, connections, body to expect, errors, right answers, late ones
RECORDED = {
    "healthy": (LoadSpec(100, 1.5), 25, b"ok\n", {}, 150, 0),
    # The server stood still for 500 ms: those who came in the first 450 of them were late.
    "frozen-half-a-second": (LoadSpec(100, 2.0), 25, b"ok\n", {}, 200, 45),
    "overloaded": (
        LoadSpec(200, 1.5, latency_limit=0.010),
        16,
        b"ok\n",
        {"not sent": 172},
        128,
        128,
    ),
    "500": (LoadSpec(100, 1.5), 25, b"ok\n", {"5xx": 150}, 0, 0),
    "wrong-body": (LoadSpec(100, 1.5), 25, b"okay\n", {"wrong body": 150}, 0, 0),
    "refused": (LoadSpec(100, 1.5), 25, b"ok\n", {"refused": 150}, 0, 0),
    "timeouts": (LoadSpec(50, 1.5, timeout=0.1), 16, b"ok\n", {"timeout": 75}, 0, 0),
}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded(name: str) -> None:
    spec, connections, body, errors, right, late = RECORDED[name]
    one = LoadProcess((), spec.request_count, spec.seconds, 9.0, connections)
    text = (FIXTURES / f"{name}.txt").read_text()
    result = OhaGenerator().parse_checked(one, text, replace(REQUEST, expected_body=body), spec)
    assert (result.intended, result.errors, result.right_answers) == (
        spec.request_count,
        errors,
        right,
    )
    assert result.count_later_than(spec.latency_limit) == late
    assert result.limited is None


@pytest.mark.parametrize("case", sorted(FIXTURES.glob("tls-*.json")), ids=lambda case: case.stem)
def test_recorded_over_tls(case: Path) -> None:
    recorded = json.loads(case.read_text())
    body, expected = recorded["expect"], recorded["tally"]
    request = replace(REQUEST, expected_body=body and body.encode(), http2=recorded["http2"])
    one = LoadProcess((), **recorded["process"])
    text = case.with_suffix(".txt").read_text()
    expected["histogram"] = {float(edge): n for edge, n in expected["histogram"].items()}
    result = OhaGenerator().parse_checked(one, text, request, LoadSpec(**recorded["order"]))
    assert replace(result, sizes={}) == LoadResult(**expected)


def test_a_real_one_is_asked_and_understood() -> None:
    """`run.json` is what oha 1.16 said to this very command: asked otherwise, record it anew."""
    run = json.loads((FIXTURES / "run.json").read_text())
    request = Request(Endpoint("127.0.0.1", 8080), "/a", b"ok\n")
    spec = LoadSpec(50, 1.0, latency_limit=1.0)
    (process,) = OhaGenerator().build_processes(request, spec)
    assert list(process.argv) == run["argv"]
    result = OhaGenerator().parse_checked(process, run["printed"], request, spec)
    assert result.limited is None
    assert (result.intended, result.right_answers) == (50, 50)


def even(latencies: Iterable[float], status: int = 200, size: int = len(BODY)) -> list[Row]:
    """Answers to requests that went out on time, one every hundredth of a second."""
    return [(i / 100, i / 100, i / 100 + took, status, size) for i, took in enumerate(latencies)]


def format_output(rows: list[Row], errors: Mapping[str, int] = NO_ERRORS, table: str = OLD) -> str:
    store = sqlite3.connect(":memory:")
    store.execute(table)
    for due, sent, end, status, size in rows:
        columns = {"start": sent, "start_latency_correction": due, '"end"': end,
                   "duration": end - due, "status": status, "len_bytes": size}  # fmt: skip
        if table is NEW:
            columns |= {"url": REQUEST.url, "run": 0}
        marks = ", ".join("?" * len(columns))
        store.execute(f"INSERT INTO oha ({', '.join(columns)}) VALUES ({marks})",
                      list(columns.values()))  # fmt: skip
    store.commit()
    found = {"summary": {"total": 2.0}, "errorDistribution": dict(errors)}
    file = base64.b64encode(store.serialize()).decode()
    store.close()
    return f"{json.dumps(found, indent=2)}\n<autotune sqlite>\n{file}"


def process(requests: int = 200) -> LoadProcess:
    return LoadProcess((), requests, 2.0, 9.0, CONNECTIONS)


def parse(text: str, spec: LoadSpec = ORDER, requests: int = 200) -> LoadResult:
    return OhaGenerator().parse_checked(process(requests), text, REQUEST, spec)


@pytest.mark.parametrize("table", [OLD, NEW], ids=["1.4", "1.15"])
def test_healthy(table: str) -> None:
    result = parse(format_output(even([0.005] * 196 + [0.0501] * 4), table=table))
    assert (result.intended, result.sent, result.errors) == (200, 200, {})
    assert result.count_later_than(0.050) == 4
    assert result.limited is None
    assert not result.truncated


@settings(max_examples=40)
@given(
    st.lists(st.floats(0.0005, 1.9), min_size=1, max_size=200),
    st.sampled_from([0.0023, 0.05, 0.3]),
)
def test_late_answers_are_counted_exactly(latencies: list[float], limit: float) -> None:
    rows = even(latencies)
    late = sum(end - due > limit for due, _, end, _, _ in rows)
    result = parse(format_output(rows), replace(ORDER, latency_limit=limit), len(latencies))
    assert result.count_later_than(limit) == late
    assert result.right_answers + result.error_count == result.intended == len(latencies)


def test_a_stall_counts_for_everybody_who_came_during_it() -> None:
    """The server stands still from 0.5 s to 1.0 s; few connections, so most wait to be sent."""
    rows = even([0.005] * 50)
    for i in range(50, 100):
        sent = i / 100 if i < 50 + CONNECTIONS else 1.0
        rows.append((i / 100, sent, 1.005, 200, len(BODY)))
    rows += [(i / 100, i / 100, i / 100 + 0.005, 200, len(BODY)) for i in range(100, 200)]
    result = parse(format_output(rows))
    assert result.count_later_than(0.050) == 46
    assert result.limited is None


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("timeout", "timeout"),
        ("Connection refused (os error 111)", "refused"),
        ("Connection reset by peer (os error 104)", "reset"),
        ("connection closed before message completed", "reset"),
        ("aborted due to deadline", "unanswered"),
        ("invalid HTTP version parsed", "other"),
    ],
)
def test_errors_by_kind(said: str, kind: str) -> None:
    result = parse(format_output(even([0.005] * 150), {said: 50}))
    assert result.errors == {kind: 50}
    assert result.right_answers == 150


def test_errors_are_not_throughput() -> None:
    wrong = even([0.001] * 100, 502, 150) + [
        (i / 100, i / 100, i / 100 + 0.001, 200, 3) for i in range(100, 200)
    ]
    result = parse(format_output(wrong))
    assert result.errors == {"5xx": 100, "wrong body": 100}
    assert result.right_answers == 0


def test_an_overloaded_server_leaves_requests_unsent() -> None:
    """All connections in hand: what was due and not sent is the server's doing."""
    rows = [(i / 100, max(i / 100, i / 25 - 1), i / 25 + 0.1, 200, len(BODY)) for i in range(100)]
    result = parse(format_output(rows))
    assert result.errors == {"not sent": 100}
    assert result.limited is None
    assert result.count_later_than(0.050) == 100


@pytest.mark.parametrize(
    "rows",
    [
        # It noticed nothing for half a second, and then all at once, answered in time.
        [(max(i / 100, 1.0 if i > 50 else 0.0),) * 2 + (max(i / 100, 1.0 if i > 50 else 0) + 0.004,
         200, len(BODY)) for i in range(200)],
        # It sent half of it, and had connections to spare.
        even([0.005] * 100),
        # It sent half a second late, over connections that were free.
        [(i / 100, i / 100 + (0.5 if i == 90 else 0), i / 100 + 0.504, 200, len(BODY))
         if i == 90 else (i / 100, i / 100, i / 100 + 0.004, 200, len(BODY)) for i in range(200)],
    ],
    ids=["late", "half", "idle"],
)  # fmt: skip
def test_a_starved_generator_says_nothing_of_the_server(rows: list[Row]) -> None:
    result = parse(format_output(rows))
    assert result.limited is not None
    assert "fell behind" in result.limited


def test_no_ports_or_descriptors_left_is_the_load_hosts() -> None:
    for said in ("Too many open files (os error 24)", "Cannot assign requested address"):
        assert "load host ran out" in (parse(format_output([], {said: 200})).limited or "")


def test_output_cut_anywhere_is_no_result() -> None:
    text = format_output(even([0.005] * 200))
    for end in [*range(0, 200, 7), *range(200, len(text) - 1, 997)]:
        result = parse(text[:end])
        assert result.limited is not None
        assert result.error_count == result.intended == 200


def test_a_file_without_answers_is_no_result() -> None:
    text = format_output([]).partition("<autotune sqlite>")[0] + "<autotune sqlite>\n"
    assert "no result" in (parse(text).limited or "")
    with pytest.raises(ValueError, match="damaged"):
        read_stored_answers("§§§")


COLUMNS = 'start_latency_correction, start, "end", status, len_bytes'
ENDLESS = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i, i, i, i, i FROM n"
)


@pytest.mark.parametrize("schema", [
    f"CREATE VIEW oha({COLUMNS}) AS {ENDLESS}",
    f"CREATE TABLE oha(a, {COLUMNS.replace('len_bytes', 'len_bytes AS (zeroblob(a))')})",
    "CREATE VIRTUAL TABLE oha USING fts3(start)",
])  # fmt: skip
def test_nothing_in_a_file_of_answers_is_run(schema: str) -> None:
    with closing(sqlite3.connect(":memory:")) as store:
        store.execute(schema)
        file = base64.b64encode(store.serialize()).decode()
    with pytest.raises(ValueError, match="which oha does not create"):
        read_stored_answers(file)


@pytest.mark.parametrize(("rate", "hosts"), [(40.0, 1), (5000.0, 1), (5000.0, 3), (30_000.0, 2)])
def test_processes_share_the_rate_and_hold_enough_connections(rate: float, hosts: int) -> None:
    spec = LoadSpec(rate, 3.0, latency_limit=0.050)
    load = OhaGenerator()
    processes = load.build_processes(REQUEST, spec, hosts)
    assert len(processes) >= hosts
    words = [p.argv[p.argv.index("timeout") :] for p in processes]
    rates = [float(w[w.index("-q") + 1]) for w in words]
    assert sum(rates) == rate
    assert max(rates) <= load.limits.max_rate
    assert sum(p.request_count for p in processes) == rate * 3
    for one, command in zip(processes, words, strict=True):
        held = int(command[command.index("-c") + 1])
        assert held == one.open_connections <= load.limits.open_connections
        assert command[-1] == REQUEST.url
        assert {"--latency-correction", "--no-tui", "-w"} <= set(command)
    assert sum(p.open_connections for p in processes) >= rate * 5 * spec.latency_limit


@pytest.mark.parametrize("headers", [(), (("Accept-Encoding", "gzip"),)])
def test_it_accepts_compressed_responses_only_if_a_header_does(
    headers: tuple[tuple[str, str], ...],
) -> None:
    """Sizes of compressed bodies would differ from the sizes in the sample of responses."""
    (process,) = OhaGenerator().build_processes(replace(REQUEST, headers=headers), ORDER)
    assert "--disable-compression" in process.argv
    written = [after for word, after in pairwise(process.argv) if word == "-H"]
    assert written == [f"{name}: {value}" for name, value in headers]
