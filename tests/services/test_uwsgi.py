"""What uWSGI says of itself in its stats."""

from __future__ import annotations

from pathlib import Path

from autotune.services.diagnosis import WORKING
from autotune.services.uwsgi.service import counters, in_effect

STATS = (Path(__file__).parent / "fixtures" / "uwsgi.txt").read_text()


def test_its_stats_show_processes_and_threads_and_requests_in_hand() -> None:
    assert in_effect(STATS) == {"processes": 3, "threads": 2}
    assert counters(STATS) == {WORKING: 2.0, "harakiri": 0.0}


def test_what_is_no_stats_says_nothing() -> None:
    odd = ('{"a":' * 9999, '{"workers": [{"cores": 3}]}', '{"workers": ["busy"]}')
    for text in ("", "HTTP/1.1 404", '{"workers": 3}', "[]", STATS[: len(STATS) // 2], *odd):
        assert (in_effect(text), counters(text)) == ({}, {})
