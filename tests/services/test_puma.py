"""What Puma says of itself, and what of that is too late to count."""

from __future__ import annotations

import json
from pathlib import Path

from autotune.services.diagnosis import BUSY_WORKERS
from autotune.services.puma.service import parse_counters, parse_effective, parse_effective_stats

RECORDED = (Path(__file__).parent / "fixtures" / "puma.txt").read_text()
SINGLE = '{"backlog": 2, "running": 3, "pool_capacity": 1, "max_threads": 4, "requests_count": 9}'


def test_its_options_and_its_workers_are_read() -> None:
    assert parse_effective(RECORDED) == {
        "workers": 2, "min_threads": 1, "max_threads": 3, "persistent_timeout": 30, "max_fast_inline": 10,
        "worker_timeout": 60, "first_data_timeout": 30,
    }  # fmt: skip
    assert parse_effective_stats(RECORDED) == {"workers": 2, "max_threads": 3}


def test_a_single_process_says_how_many_threads_are_at_work() -> None:
    assert parse_effective_stats(SINGLE) == {"workers": 0, "max_threads": 4}
    assert parse_counters(SINGLE) == {BUSY_WORKERS: 3.0}
    assert parse_counters(RECORDED) == {}


def test_what_is_no_stats_says_nothing() -> None:
    booting = json.dumps({"workers": 1, "worker_status": [{"last_status": {}}]})
    odd = ('{"a":' * 9999, '{"worker_status": [{"last_status": "busy"}]}')
    for text in ("", "HTTP/1.0 403 Forbidden", "[]", "{", booting, '{"worker_status": 3}', *odd):
        assert (parse_effective_stats(text), parse_counters(text)) == ({}, {})
