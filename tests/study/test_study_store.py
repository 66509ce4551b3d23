from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.errors import AutotuneError
from autotune.measure import Reading
from autotune.study.study_store import JournalTail, reading_from_record, reading_to_record


def test_a_reading_survives_its_record() -> None:
    histogram = {0.001: 5, 0.0123: 990, 2.0: 3}
    reading = Reading(
        1000.5, 2.0, 1000, 5, {"timeout": 2}, histogram, truncated=True, limited="ports",
        looked_at=150, wrong=8, example="/: 1.2 KB instead of 14–15 KB",
    )  # fmt: skip
    assert reading_from_record(json.loads(json.dumps(reading_to_record(reading)))) == reading


def test_a_record_of_an_earlier_version_lacks_fields() -> None:
    record = {"rate": 100.0, "seconds": 2.0, "intended": 200, "violations": 3}
    assert reading_from_record(record) == Reading(100.0, 2.0, 200, 3)


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
