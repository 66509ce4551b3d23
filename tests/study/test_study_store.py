from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.environments.preparation import prepare
from autotune.errors import AutotuneError
from autotune.measure import Reading
from autotune.monitor.activity import HostUsage
from autotune.report.page_summary import list_provenance
from autotune.report.status import build_status
from autotune.report.studies import open_study
from autotune.report.view import build_study_view
from autotune.study import start
from autotune.study.reading_records import RecordedReading, record_reading
from autotune.study.record_codec import decode, encode
from autotune.study.study_store import JournalTail
from autotune.target.read_target import read_target
from tests.modelled import noisy
from tests.sweep.modelled import Silent

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


def test_a_resumed_study_is_reported_with_its_current_budget(tmp_path: Path) -> None:
    path, directory = tmp_path / "modelled.yaml", tmp_path / "studies" / "modelled"
    path.write_text(noisy("budget: {trials: 40, time: 30m}\n"))
    with pytest.raises(KeyboardInterrupt):
        start.start_study(prepare(read_target(path)), directory, Silent(1))
    assert open_study(directory).target.budget.trials == 40
    path.write_text(noisy("budget: {trials: 3, time: 10m}\n"))
    start.resume_study(start.prepare_unfinished(directory), directory, Silent())
    view = build_study_view(open_study(directory))
    assert (view.target.budget.trials, view.target.budget.time) == (3, 600.0)
    assert build_status(view)["trials"]["budget"] == 3
    assert "3 of 3 configurations" in " ".join(text for _, text in list_provenance(view))


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


def test_no_secret_that_a_command_prints_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "bench.sh").write_text(
        "echo cannot connect to postgresql://bench:S3cret99@db1/shop >&2\necho password=S3cret99\n"
    )
    (tmp_path / "toy.yaml").write_text(
        "name: toy\ncommand: [sh, bench.sh]\nmaximize: rows\nparameters: {x: {range: [1, 9]}}\n"
    )
    directory = tmp_path / "studies" / "toy"
    with pytest.raises(AutotuneError, match="the baseline could not be measured") as raised:
        start.start_study(prepare(read_target(tmp_path / "toy.yaml")), directory, Silent())
    calls = open_study(directory).command_calls
    assert calls
    for call in calls:
        assert call.why == "the last line of output is not JSON: password=autotune-masked-1-of-1"
        assert call.said == "cannot connect to postgresql://bench:autotune-masked-1-of-1@db1/shop"
    assert "S3cret99" not in raised.value.message
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert not [path.name for path in files if b"S3cret99" in path.read_bytes()]
