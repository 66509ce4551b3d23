"""A study on several test beds at once: models of a stack, in virtual time."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from math import log
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from autotune.cli import app
from autotune.environments import multi_bed
from autotune.environments.evaluation import Evaluation
from autotune.environments.simulated import SimulatedEnvironment
from autotune.errors import AutotuneError, NotRestoredError
from autotune.measure.reading import TODAY_PURPOSE
from autotune.optimize.bed_offset import BedOffset
from autotune.report.page import render_page as whole_page
from autotune.report.studies import open_study
from autotune.report.view import build_study_view
from autotune.study import journal, start
from autotune.study.ranking import find_baseline
from autotune.study.reading_records import load_readings
from autotune.study.schedule import select_next_step
from autotune.study.schedule_steps import ConcludeStep, MeasureStep, SuggestStep, WaitStep
from autotune.study.state_replay import replay_records
from autotune.study.study_state import COUNTED_PHASES, Phase, State, Trial
from autotune.study.study_store import StudyStore, load_state
from autotune.target.model import Budget
from autotune.target.read_target import TargetFile, read_target
from tests.modelled import noisy
from tests.printed import printed
from tests.study.test_opening import PEAK

LEVELS = {"a": 1.0, "b": 0.8, "c": 1.25}
BEDS = "".join(
    f"  {bed}: {{simulated: {{seed: {seed}, capacity: {level}, noise: 2%, outliers: 0%}}}}\n"
    for seed, (bed, level) in enumerate(LEVELS.items(), 3)
)


class Silent:
    """Ignores progress."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def target(directory: Path, budget: str = "{trials: 8, time: 30m}") -> TargetFile:
    directory.mkdir(exist_ok=True)
    path = directory / "modelled.yaml"
    path.write_text(noisy(f"budget: {budget}\nsearch: {{sampler: tpe}}\nbeds:\n{BEDS}"))
    return read_target(path)


def study(directory: Path, *names: str) -> State:
    environment = multi_bed.prepare(target(directory), names)
    start.start_study(environment, directory / "study", Silent())
    return load_state(directory / "study")


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("three")
    study(directory, "a", "b", "c")
    return directory / "study"


@pytest.mark.long
def test_every_bed_has_its_baseline_and_every_trial_its_bed(three: Path) -> None:
    state = load_state(three)
    assert {t.bed for t in state.list_finished_trials(Phase.BASELINE)} == set(LEVELS)
    assert all(trial.bed in LEVELS for trial in state.trials)
    assert len(state.list_counted_trials()) == 8
    assert len(state.list_finished_trials(*COUNTED_PHASES)) == 10  # two more baselines
    assert not state.list_running_trials()


@pytest.mark.long
def test_offsets_are_those_of_the_models(three: Path) -> None:
    state, mean = load_state(three), sum(map(log, LEVELS.values())) / len(LEVELS)
    for bed, level in LEVELS.items():
        offset = state.offsets[bed]
        assert abs(offset.log - (log(level) - mean)) < 3 * offset.sd + 0.02


@pytest.mark.long
def test_the_gain_is_confirmed_within_two_beds_at_least(three: Path) -> None:
    state = load_state(three)
    assert state.verdict is not None
    assert state.verdict.verdict == "improved"
    assert len(state.verdict.beds) >= 2
    assert state.verdict.gain is not None
    assert state.verdict.gain.pairs == sum(gain.pairs for gain in state.verdict.beds.values())
    # Pairs are A B B A on each bed by itself.
    for bed in LEVELS:
        sides = [
            t.source_trial == 0 for t in state.list_finished_trials(Phase.CONFIRM) if t.bed == bed
        ]
        assert sides == [True, False, False, True, True, False][: len(sides)]


def pace(state: State) -> float:
    """Trials in a second of the study."""
    return len(state.list_finished_trials()) / state.elapsed_seconds


@pytest.mark.long
def test_three_beds_measure_much_faster_than_one(three: Path, tmp_path: Path) -> None:
    """Each has a first measurement, which takes long, and the study ends with what one is enough for."""
    alone = study(tmp_path, "a")
    assert alone.beds == ("a",)
    assert pace(load_state(three)) > 1.7 * pace(alone)


@pytest.mark.long
def test_a_study_of_models_is_the_same_every_time(three: Path, tmp_path: Path) -> None:
    study(tmp_path, "a", "b", "c")
    again, first = (
        [{k: v for k, v in json.loads(line).items() if k not in ("at", "started", "source", "name")}
         for line in (directory / "events.jsonl").read_text().splitlines()]
        for directory in (tmp_path / "study", three)
    )  # fmt: skip
    assert again == first


@pytest.mark.long
def test_reports_show_beds_side_by_side(three: Path) -> None:
    def autotune(*words: str) -> str:
        done = CliRunner().invoke(app, [*words, "--studies", str(three.parent)])
        assert done.exit_code == 0, done.output
        return done.stdout

    report = printed("study", autotune("report", "study", "--json"))
    each = report["beds"]["each"]
    assert set(each) == set(LEVELS)
    assert sum(bed["trials"] for bed in each.values()) == len(
        load_state(three).list_finished_trials()
    )
    assert (
        each["b"]["offset"]["ratio"] < each["a"]["offset"]["ratio"] < each["c"]["offset"]["ratio"]
    )
    seconds = report["seconds"]
    assert sum(v for k, v in seconds.items() if k != "total") == pytest.approx(
        seconds["total"], abs=1
    )
    text = autotune("report", "study")
    assert "on 3 test beds" in text.splitlines()[0] or "on 2 test beds" in text.splitlines()[0]
    assert "Test beds" in text
    assert "bed b" in autotune("status", "study")
    page = whole_page(build_study_view(open_study(three)))
    table = page.split('id="beds"')[1].split("</section>")[0]
    assert re.findall(r"<tr><td>(\w)</td>", table) == list(LEVELS)
    assert len(re.findall(" pairs?</td>", table)) == sum(
        bed["gain"] is not None for bed in each.values()
    )
    assert (three / "report.html").exists() or "improved" in report["verdict"]


class Failing(SimulatedEnvironment):
    """A model that breaks down in its n-th trial, or stops the study there."""

    at: int
    error: BaseException

    @contextmanager
    def open_session(self, directory: Path, note: Any, history: Any) -> Iterator[Any]:
        with super().open_session(directory, note, history) as session:
            evaluate, count = session.evaluate, iter(range(1000))

            def failing(settings: Any, request: Any, record: Any) -> Evaluation:
                if next(count) == self.at:
                    raise self.error
                return evaluate(settings, request, record)

            session.evaluate = failing  # type: ignore[method-assign]
            yield session


def failing(
    environment: multi_bed.MultiBedEnvironment, bed: str, at: int, error: BaseException
) -> multi_bed.MultiBedEnvironment:
    model = environment.environments[bed]
    assert isinstance(model, SimulatedEnvironment)
    broken = Failing(**{key: getattr(model, key) for key in model.__dataclass_fields__})
    object.__setattr__(broken, "at", at)
    object.__setattr__(broken, "error", error)
    return replace(environment, environments={**environment.environments, bed: broken})


@pytest.mark.long
def test_a_bed_that_fails_is_set_aside_and_its_trial_repeated_once(tmp_path: Path) -> None:
    environment = multi_bed.prepare(target(tmp_path), ("a", "b", "c"))
    broken = failing(environment, "b", 2, AutotuneError("web1 cannot be reached"))
    start.start_study(broken, tmp_path / "study", Silent())
    state = load_state(tmp_path / "study")
    assert state.exclusion_reasons == {"b": "web1 cannot be reached"}
    (lost,) = (trial for trial in state.trials if not trial.is_finished)
    assert lost.bed == "b"
    repeated = [trial for trial in state.trials if trial.replaced_trial is not None]
    assert [(t.replaced_trial, t.settings) for t in repeated] == [(lost.number, lost.settings)]
    assert repeated[0].is_finished
    assert repeated[0].bed in ("a", "c")
    assert len(state.list_counted_trials()) == 8
    assert state.verdict is not None
    assert set(state.verdict.beds) <= {"a", "c"}


class Noting(Silent):
    """Keeps the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_a_bed_is_removed_with_a_note_and_only_beds_of_a_study_resume_it(tmp_path: Path) -> None:
    environment = multi_bed.prepare(target(tmp_path), ("a", "b"))
    for bed in ("a", "b"):
        environment = failing(environment, bed, 1, AutotuneError(f"{bed}1 cannot be reached"))
    directory, progress = tmp_path / "study", Noting()
    with pytest.raises(AutotuneError, match="no test bed is usable"):
        start.start_study(environment, directory, progress)
    for bed in ("a", "b"):
        assert f"bed {bed}: removed from the study: {bed}1 cannot be reached" in progress.notes
    with pytest.raises(AutotuneError, match="bed c is not a bed of study") as refused:
        start.prepare_unfinished(directory, "a,c")
    assert refused.value.hint == "its beds: a, b"
    resumed = start.prepare_unfinished(directory, "b")
    assert isinstance(resumed, multi_bed.MultiBedEnvironment)
    assert list(resumed.environments) == ["b"]


@pytest.mark.parametrize(("joined", "prepared"), [("xcb", ["c"]), ("xy", [])])
def test_a_shared_study_is_read_on_a_joined_bed_that_its_target_lists(
    tmp_path: Path, joined: str, prepared: list[str]
) -> None:
    records = [{"event": "session"}, *({"event": "joined", "bed": bed} for bed in joined)]
    with closing(journal.Journal(tmp_path / "events.jsonl")) as events:
        for record in records:
            events.append_record(record)
    if prepared:
        environment = start._prepare_joined_bed(target(tmp_path), tmp_path)
        assert isinstance(environment, multi_bed.MultiBedEnvironment)
        assert list(environment.environments) == prepared
        return
    with pytest.raises(AutotuneError, match="lists no test bed that joined"):
        start._prepare_joined_bed(target(tmp_path), tmp_path)


@pytest.mark.long
def test_without_a_bed_left_a_study_stops_and_can_be_resumed(tmp_path: Path) -> None:
    environment = multi_bed.prepare(target(tmp_path), ("a", "b"))
    for bed, at in (("a", 2), ("b", 3)):
        environment = failing(environment, bed, at, AutotuneError(f"{bed} is down"))
    with pytest.raises(AutotuneError, match="no test bed is usable"):
        start.start_study(environment, tmp_path / "study", Silent())
    before = load_state(tmp_path / "study")
    with pytest.raises(AutotuneError, match="bed c is not a bed of study"):
        start.prepare_unfinished(tmp_path / "study", "a,c")
    start.resume_study(start.prepare_unfinished(tmp_path / "study"), tmp_path / "study", Silent())
    state = load_state(tmp_path / "study")
    assert state.verdict is not None
    assert state.trials[: len(before.list_finished_trials())][0].peak == before.trials[0].peak
    assert len(state.list_counted_trials()) == 8
    # Each configuration that was interrupted was measured once more, on the bed it was on.
    interrupted = [t for t in state.trials if not t.is_finished]
    assert len(interrupted) == 2
    for trial in interrupted:
        later = [t for t in state.trials if t.number > trial.number and t.bed == trial.bed]
        assert (later[0].phase, later[0].settings) == (trial.phase, trial.settings)
    told = Counter(r.trial for r in load_readings(tmp_path / "study") if r.purpose == "peak")
    assert set(told) <= {t.number for t in state.trials}


@pytest.mark.long
def test_an_interruption_stops_every_bed(tmp_path: Path) -> None:
    environment = multi_bed.prepare(target(tmp_path), ("a", "b", "c"))
    stopped = failing(environment, "b", 2, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        start.start_study(stopped, tmp_path / "study", Silent())
    state = load_state(tmp_path / "study")
    assert state.verdict is None
    assert not state.exclusion_reasons
    start.resume_study(start.prepare_unfinished(tmp_path / "study"), tmp_path / "study", Silent())
    assert load_state(tmp_path / "study").verdict is not None


@pytest.mark.long
@pytest.mark.parametrize("other_error", [None, AutotuneError("a is down"), KeyboardInterrupt()])
def test_hosts_of_a_bed_that_are_not_restored_are_an_error(
    other_error: BaseException | None, tmp_path: Path
) -> None:
    environment = multi_bed.prepare(target(tmp_path), ("a", "b"))
    unrestored = NotRestoredError("not restored: web1", hint="autotune restore study")
    environment = failing(environment, "b", 2, unrestored)
    if other_error:
        environment = failing(environment, "a", 3, other_error)
    with pytest.raises(NotRestoredError, match=r"^bed b: not restored: web1$") as raised:
        start.start_study(environment, tmp_path / "study", Silent())
    assert raised.value.hint == "autotune restore study"
    assert (load_state(tmp_path / "study").verdict is None) is bool(other_error)


@pytest.mark.long
def test_a_bed_that_cannot_be_excluded_stops_the_other_beds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise AutotuneError("the disk is full")

    environment = multi_bed.prepare(target(tmp_path), ("a", "b"))
    environment = failing(environment, "b", 2, AutotuneError("web1 cannot be reached"))
    monkeypatch.setattr(StudyStore, "exclude_bed", fail)
    with pytest.raises((AutotuneError, KeyboardInterrupt)):
        start.start_study(environment, tmp_path / "study", Silent())
    assert load_state(tmp_path / "study").verdict is None


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> multi_bed.MultiBedEnvironment:
    return multi_bed.prepare(target(tmp_path_factory.mktemp("beds")), tuple(LEVELS))


BUDGET = Budget.model_validate({"trials": 8, "time": "30m"})


def begun(
    number: int, phase: Phase, bed: str, settings: Any, *, over: bool = True, **more: Any
) -> Trial:
    return Trial(number, phase, settings, bed=bed, peak=PEAK if over else None, **more)


def test_what_is_under_way_is_not_begun_again(environment: multi_bed.MultiBedEnvironment) -> None:
    space = environment.space
    state, steps = State(beds=tuple(LEVELS), seconds={"load": 1.0}), []
    for number, bed in enumerate("abcabc"):
        step = select_next_step(state, space, BUDGET, 1.0, bed)
        steps.append(step)
        if isinstance(step, MeasureStep):
            settings = space.build_candidate(step.settings).settings
            trial = begun(number, step.phase, bed, settings, over=number < 3)
            state = replace(state, trials=(*state.trials, trial))
    phases = [step.phase for step in steps if isinstance(step, MeasureStep)]
    assert phases == [*[Phase.BASELINE] * 3, Phase.RECOMMENDED, Phase.PUBLISHED]
    assert steps[5] == SuggestStep()


def test_a_stage_begins_when_the_last_one_is_over(
    environment: multi_bed.MultiBedEnvironment,
) -> None:
    stock = environment.space.baseline
    trials = [begun(n, Phase.BASELINE, bed, stock) for n, bed in enumerate("abc")]
    trials += [begun(3 + n, Phase.SEARCH, "abc"[n % 3], stock, over=n < 6) for n in range(7)]
    state = State(beds=tuple(LEVELS), trials=tuple(trials), seconds={"load": 1.0})
    assert select_next_step(state, environment.space, BUDGET, 1.0, "b") == WaitStep()


def test_the_trial_of_a_bed_that_is_gone_is_given_to_another_one_once(
    environment: multi_bed.MultiBedEnvironment,
) -> None:
    stock = environment.space.baseline
    trials = [begun(n, Phase.BASELINE, bed, stock) for n, bed in enumerate("abc")]
    trials.append(begun(3, Phase.RECOMMENDED, "c", {**stock, "x": 1}, over=False))
    state = State(beds=tuple(LEVELS), trials=tuple(trials), exclusion_reasons={"c": "down"})
    step = select_next_step(state, environment.space, BUDGET, 1.0, "a")
    assert isinstance(step, MeasureStep)
    assert (step.phase, step.replaced_trial) == (Phase.RECOMMENDED, 3)
    again = begun(4, step.phase, "a", step.settings, over=False, replaced_trial=step.replaced_trial)
    state = replace(state, trials=(*state.trials, again))
    other = select_next_step(state, environment.space, BUDGET, 1.0, "b")
    assert isinstance(other, MeasureStep)
    assert other.replaced_trial is None


@pytest.mark.parametrize("repeating_bed", [None, "a"])
def test_a_bed_repeats_its_interrupted_trial_unless_another_bed_did(
    environment: multi_bed.MultiBedEnvironment, repeating_bed: str | None
) -> None:
    stock = environment.space.baseline
    trials = [begun(n, Phase.BASELINE, bed, stock) for n, bed in enumerate("abc")]
    settings = {**stock, "web.php_fpm.max_children": 33}
    trials.append(begun(3, Phase.SEARCH, "c", settings, over=False, suggested={"x": 1}))
    if repeating_bed is not None:
        trials.append(begun(4, Phase.SEARCH, repeating_bed, settings, replaced_trial=3))
    state = State(beds=tuple(LEVELS), trials=tuple(trials), seconds={"load": 1.0})
    step = select_next_step(state, environment.space, BUDGET, 1.0, "c")
    repeat = MeasureStep(Phase.SEARCH, settings, suggested={"x": 1})
    assert (step == repeat) is (repeating_bed is None)


def test_one_side_of_a_pair_stays_on_its_bed(environment: multi_bed.MultiBedEnvironment) -> None:
    stock = environment.space.baseline
    trials = [begun(n, Phase.BASELINE, bed, stock) for n, bed in enumerate("abc")]
    trials.append(begun(3, Phase.CONFIRM, "c", stock, over=False, source_trial=0))
    state = State(beds=tuple(LEVELS), trials=tuple(trials), exclusion_reasons={"c": "down"})
    step = select_next_step(state, environment.space, Budget(trials=3, time="30s"), 1e6, "a")
    assert isinstance(step, ConcludeStep)


def test_a_peak_is_compared_as_an_average_bed_would_have_had_it() -> None:
    trial = begun(0, Phase.SEARCH, "a", {})
    state = State(trials=(trial,), beds=("a",), offsets={"a": BedOffset(0.2, 0.05, 0.1, 3)})
    level = state.normalize_peak(trial)
    assert level.log_mean == pytest.approx(log(PEAK.peak) - 0.2)
    assert level.sd > PEAK.sd
    assert state.normalize_peak(replace(trial, bed=None)) == PEAK.estimate


def test_a_bed_that_is_left_out_of_a_session_keeps_what_it_proved() -> None:
    state = replay_records(
        [{"event": "session", "beds": ["a", "b"]}, {"event": "session", "beds": ["b"]}]
    )
    assert (state.beds, state.active_beds) == (("a", "b"), ("b",))
    assert replay_records([{"event": "session", "beds": ["a", "b"]}], state).active_beds == (
        "a",
        "b",
    )
    assert replay_records([{"event": "session"}]).beds == ()


def test_beds_spend_their_time_at_once() -> None:
    records = [
        {"event": "spent", "seconds": {"load": 30.0, "deploy": 10.0}, "bed": "a"},
        {"event": "spent", "seconds": {"load": 20.0}, "bed": "b"},
    ]
    state = replay_records(records)
    assert state.elapsed_seconds == 40.0
    assert sum(state.average_seconds.values()) == pytest.approx(40.0)


def test_a_bed_that_returns_has_no_more_time_left_than_the_others() -> None:
    """It was left out after five minutes, and the other bed went on for ten."""
    session = {"event": "session", "beds": ["a", "b"]}
    state = replay_records(
        [
            session,
            {"event": "spent", "seconds": {"load": 300.0}, "bed": "a"},
            {"event": "bed", "bed": "a", "set_aside": "it does not answer"},
            {"event": "spent", "seconds": {"load": 900.0}, "bed": "b"},
            session,
        ]
    )
    assert state.active_beds == ("a", "b")
    assert [state.compute_bed_elapsed_seconds(bed) for bed in "ab"] == [900.0, 900.0]
    more = replay_records([{"event": "spent", "seconds": {"load": 60.0}, "bed": "a"}], state)
    assert more.elapsed_seconds == more.compute_bed_elapsed_seconds("a") == 960.0


def test_every_bed_measures_latency_at_the_same_rate(three: Path) -> None:
    state, baseline = load_state(three), find_baseline(load_state(three))
    assert baseline is not None
    assert baseline.peak is not None
    proof_trials = state.list_finished_trials(Phase.CONFIRM)
    assert len({trial.bed for trial in proof_trials}) > 1, "beds that waited join the next stage"
    proof = {trial.number for trial in proof_trials}
    readings = [r for r in load_readings(three) if r.purpose == TODAY_PURPOSE]
    assert Counter(reading.trial for reading in readings) == Counter(proof)
    assert {reading.rate for reading in readings} == {readings[0].rate}
    assert readings[0].rate == pytest.approx(0.4 * baseline.peak.peak, rel=0.005)
    latency = build_study_view(open_study(three)).latency
    assert latency is not None
    assert latency.baseline is not None
    assert latency.baseline.is_measured
