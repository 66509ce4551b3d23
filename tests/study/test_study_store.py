from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from optuna.storages import InMemoryStorage

from autotune.diagnose.bottleneck import Bottleneck
from autotune.environments.peak import Peak
from autotune.environments.preparation import prepare
from autotune.errors import AutotuneError
from autotune.estimate import InstanceCapacity
from autotune.loads.closed_load import ClosedLoopCeiling
from autotune.measure import Reading
from autotune.measure.benchmark import BenchmarkValue
from autotune.monitor.activity import HostUsage
from autotune.report.page_summary import list_provenance
from autotune.report.status import build_status
from autotune.report.studies import open_study
from autotune.report.view import build_study_view
from autotune.services.diagnosis import Resource
from autotune.space.space import Candidate
from autotune.study import start
from autotune.study.ceiling_records import StackCeiling, StackCeilings
from autotune.study.reading_records import RecordedReading, encode_command_call, record_reading
from autotune.study.record_codec import decode, encode
from autotune.study.study_state import Phase
from autotune.study.study_store import JournalTail, StudyStore, load_state
from autotune.study.verdict import Verdict
from autotune.target.read_target import read_target
from tests.modelled import noisy
from tests.optimize.test_searcher import told
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


def test_the_seconds_of_a_command_call_are_recorded_in_milliseconds() -> None:
    call = encode_command_call(3, "2026-03-02T09:00:00", 1.23456, BenchmarkValue(9.0))
    assert (call["seconds"], call["value"]) == (1.235, 9.0)


def test_trials_are_numbered_in_order_and_keep_their_capacities(tmp_path: Path) -> None:
    capacities = {"web.web1.nginx": InstanceCapacity(7.5, 0.1, ("web", "store"))}
    with closing(StudyStore(tmp_path)) as store:
        trials = [store.begin_trial(Phase.BASELINE, Candidate({})) for _ in range(3)]
        store.record_capacities(trials[0], {})
        store.record_capacities(trials[1], capacities)
    assert [trial.number for trial in trials] == [0, 1, 2]
    state = load_state(tmp_path)
    assert [trial.number for trial in state.trials] == [0, 1, 2]
    assert state.capacities == {1: capacities}


def test_a_verdict_of_a_study_without_beds_names_none() -> None:
    assert encode(Verdict("no-improvement")).keys().isdisjoint({"beds", "disagree"})


def test_fields_with_a_default_may_be_missing() -> None:
    counts = {"rate": 100.0, "seconds": 2.0, "intended": 200, "violations": 3}
    record = {"trial": 0, "at": "", "purpose": "peak", **counts}
    assert decode(RecordedReading, record).reading == Reading(100.0, 2.0, 200, 3)


class Noting(Silent):
    """Keeps the notes of a study."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.mark.parametrize("keeps_winner", [False, True])
def test_a_proven_winner_stays_on_the_hosts_only_on_request(
    tmp_path: Path, keeps_winner: bool
) -> None:
    (tmp_path / "modelled.yaml").write_text(noisy("budget: {trials: 3, time: 10m}\n"))
    environment, progress = prepare(read_target(tmp_path / "modelled.yaml")), Noting()
    start.start_study(environment, tmp_path / "study", progress, keeps_winner=keeps_winner)
    assert any("stays on the hosts" in note for note in progress.notes) is keeps_winner
    state = load_state(tmp_path / "study")
    assert state.verdict is not None
    assert state.kept_trial == (state.verdict.best if keeps_winner else None)


@pytest.mark.parametrize("keeps_winner", [False, True])
def test_a_resumed_study_keeps_its_winner_only_on_request(
    tmp_path: Path, keeps_winner: bool
) -> None:
    path, directory = tmp_path / "modelled.yaml", tmp_path / "studies" / "modelled"
    path.write_text(noisy("budget: {trials: 3, time: 10m}\n"))
    with pytest.raises(KeyboardInterrupt):
        start.start_study(prepare(read_target(path)), directory, Silent(1), keeps_winner=True)
    assert load_state(directory).kept_trial is None
    assert open_study(directory).resume_argument.endswith(" --keep")
    environment, progress = start.prepare_unfinished(directory), Noting()
    start.resume_study(environment, directory, progress, keeps_winner=keeps_winner)
    assert any("stays on the hosts" in note for note in progress.notes) is keeps_winner
    with closing(StudyStore(directory)) as store:
        assert store.state.keeps_winner is keeps_winner
        assert store.resume_argument.endswith(" --keep") is keeps_winner


def test_the_search_of_a_study_stores_all_active_parameters(tmp_path: Path) -> None:
    (tmp_path / "modelled.yaml").write_text(noisy(""))
    environment = prepare(read_target(tmp_path / "modelled.yaml"))
    space, storage = environment.space, InMemoryStorage()
    searcher = start.create_searcher(environment, "s", storage)
    searcher.record_outcome(None, space.baseline, told(0, 500.0))
    (trial,) = storage.get_all_trials(0)
    active = space.active_parameters(space.baseline)
    assert trial.params.keys() == {d.name for d in space.tunable_dimensions if d.name in active}


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
    modes = {path.name: path.stat().st_mode & 0o777 for path in directory.iterdir()}
    assert {modes[name] for name in ("lock", "seal", "events.jsonl", "study.db")} == {0o600}


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


def test_no_secret_that_a_load_generator_prints_is_recorded(tmp_path: Path) -> None:
    """The generator knows the headers of the requests, and its last line explains a failure."""
    text = "ab printed no result: cannot send password=S3cret99"
    reading = Reading(100.0, 1.0, 100, 100, {"not sent": 100}, limited=text)
    peak = Peak(100.0, 100.0, 100.0, 0.03, "limited", limit=text)
    bottleneck = Bottleneck("load", "generator", "", Resource.GENERATOR, text, 0.9)
    ceiling = StackCeiling.from_result(ClosedLoopCeiling(1, failure=text))
    with closing(StudyStore(tmp_path)) as store:
        trial = store.begin_trial(Phase.BASELINE, Candidate({}))
        store.record_reading(record_reading(trial.number, "now", "peak", reading, {}))
        store.record_peak(trial, peak, reading_count=1, load_seconds=1.0)
        store.record_bottleneck(trial, bottleneck)
        store.record_ceilings(StackCeilings("ab", (ceiling,)))
    texts = [(tmp_path / name).read_text() for name in ("events.jsonl", "readings.jsonl")]
    assert [text.count("ab printed no result") for text in texts] == [3, 1]
    assert not any("S3cret99" in text for text in texts)
