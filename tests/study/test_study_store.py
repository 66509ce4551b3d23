from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.errors import AutotuneError
from autotune.measure import Reading
from autotune.monitor.activity import HostUsage
from autotune.study.reading_records import RecordedReading, record_reading
from autotune.study.record_codec import decode, encode
from autotune.study.study_store import JournalTail

USAGE = HostUsage(0.5, 0.0, 1.0, 1.0, 0.1, 9, 3, 1000.0, {"web.php_fpm": 30_000_000})


def test_a_reading_survives_its_record() -> None:
    histogram = {0.001: 5, 0.0123: 990, 2.0: 3}
    reading = Reading(
        1000.5, 2.0, 1000, 5, {"timeout": 2}, histogram, truncated=True, limited="ports",
        looked_at=150, wrong=8, example="/: 1.2 KB instead of 14–15 KB",
    )  # fmt: skip
    record = record_reading(3, "2026-03-02T09:00:00", "peak", reading, {"web1": USAGE})
    again = decode(RecordedReading, json.loads(json.dumps(encode(record))))
    assert again == record
    assert again.reading == reading


def test_fields_with_a_default_may_be_missing() -> None:
    counts = {"rate": 100.0, "seconds": 2.0, "intended": 200, "violations": 3}
    record = {"trial": 0, "at": "", "purpose": "peak", **counts}
    assert decode(RecordedReading, record).reading == Reading(100.0, 2.0, 200, 3)


def test_a_study_is_followed_record_by_record(tmp_path: Path) -> None:
    follow = JournalTail(tmp_path)
    assert follow().started is None
    with (tmp_path / "events.jsonl").open("a") as events:
        for text, seconds in (
            ('{"event":"spent","seconds":{"load":1}}\n', 1.0),
            ('{"event":"spent","sec', 1.0),
            ('onds":{"load":2}}\n', 3.0),
        ):
            events.write(text)
            events.flush()
            assert follow().elapsed_seconds == seconds


@pytest.mark.parametrize("line", ["no record", "[]", '{"event":"spent"}', 9999 * "["])
def test_following_a_damaged_study_says_so(tmp_path: Path, line: str) -> None:
    (tmp_path / "events.jsonl").write_text(f"{line}\n")
    with pytest.raises(AutotuneError, match="the study is damaged"):
        JournalTail(tmp_path)()
