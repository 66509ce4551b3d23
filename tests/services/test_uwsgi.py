"""What uWSGI says of itself in its stats."""

from __future__ import annotations

from pathlib import Path

from autotune.services.diagnosis import BUSY_WORKERS
from autotune.services.uwsgi.service import parse_counters, parse_effective

STATS = (Path(__file__).parent / "fixtures" / "uwsgi.txt").read_text()


def test_its_stats_show_processes_and_threads_and_requests_in_hand() -> None:
    assert parse_effective(STATS) == {"processes": 3, "threads": 2}
    assert parse_counters(STATS) == {BUSY_WORKERS: 2.0, "harakiri": 0.0}


def test_what_is_no_stats_says_nothing() -> None:
    odd = ('{"a":' * 9999, '{"workers": [{"cores": 3}]}', '{"workers": ["busy"]}')
    for text in ("", "HTTP/1.1 404", '{"workers": 3}', "[]", STATS[: len(STATS) // 2], *odd):
        assert (parse_effective(text), parse_counters(text)) == ({}, {})
