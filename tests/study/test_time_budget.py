"""A study keeps to its time, and to the part of it that belongs to proof."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.deploy.deploy_result import DeployResult
from autotune.diagnose.diagnosis import WatchedReading
from autotune.environments.clock import StudyClock
from autotune.environments.command import REFERENCE_CALLS
from autotune.environments.load_session import LoadSession
from autotune.environments.peak import Peak
from autotune.optimize.confirmation import MIN_PAIRS
from autotune.optimize.ranking import PosteriorPeaks
from autotune.optimize.searcher import Searcher
from autotune.optimize.storage import open_sqlite
from autotune.services.base import Settings
from autotune.study.schedule import select_next_step
from autotune.study.schedule_steps import ConcludeStep, MeasureStep, RankStep, SuggestStep
from autotune.study.state_replay import apply_record
from autotune.study.study_loop import prepare_measurement, run_study_loop
from autotune.study.study_state import Phase, State, Trial
from autotune.study.study_store import StudyStore
from autotune.study.time_budget import (
    LARGE_GAIN_RESERVE_SHARE,
    MAX_OVERRUN_FACTOR,
    MAX_RESERVE_SHARE,
    MIN_MEASUREMENT_SECONDS,
    MIN_PROOF_SECONDS,
    compute_average_trial_seconds,
    compute_reserve_seconds,
    compute_time_limit,
)
from autotune.study.verdict import Verdict
from autotune.target.model import Budget
from tests.study import simulated
from tests.study.ranked import ADVICE, OTHER, STOCK, believed

TEN = Budget(trials=8, time="10m")  # type: ignore[arg-type]  # as a target says it
PEAK = Peak(peak=1000.0, low=950.0, high=1050.0, sd=0.03, verdict="measured")


def measured(*phases: Phase, each: float = 40.0) -> State:
    trials = tuple(Trial(n, phase, {}, peak=PEAK) for n, phase in enumerate(phases))
    return State(trials=trials, seconds={"load": each * len(trials)})


@pytest.mark.parametrize(
    ("done", "phase", "elapsed", "seconds"),
    [
        ((), Phase.BASELINE, 0.0, (1 - MAX_RESERVE_SHARE) * 600),
        # The search may have what is not the proof's, …
        ((Phase.BASELINE,) * 2, Phase.SEARCH, 80.0, 520.0 - MAX_RESERVE_SHARE * 600),
        # … of which each of its measurements has its share, …
        ((Phase.BASELINE,) * 8, Phase.CONFIRM, 480.0, 120.0 / (2 * MIN_PAIRS)),
        ((*(Phase.BASELINE,) * 8, Phase.CONFIRM), Phase.CONFIRM, 500.0, 100.0 / 5),
        # … and those beyond what it needs all that is left, …
        ((*(Phase.BASELINE,) * 2, *(Phase.CONFIRM,) * 6), Phase.CONFIRM, 540.0, 60.0),
        # … but nothing can be measured in no time.
        ((Phase.BASELINE,) * 8, Phase.CONFIRM, 599.0, MIN_MEASUREMENT_SECONDS),
        ((Phase.BASELINE,) * 8, Phase.SEARCH, 599.0, MIN_MEASUREMENT_SECONDS),
    ],
)
def test_a_measurement_may_take_so_long(
    done: tuple[Phase, ...], phase: Phase, elapsed: float, seconds: float
) -> None:
    assert compute_time_limit(measured(*done), phase, TEN, elapsed) == pytest.approx(seconds)


def test_the_finalists_and_a_block_share_the_time_before_the_proof() -> None:
    state = measured(*(Phase.BASELINE,) * 8, each=20.0)
    proof_seconds = 2 * MIN_PAIRS * 20.0
    first_limit = compute_time_limit(state, Phase.FINALIST, TEN, 160.0)
    assert first_limit == pytest.approx((440.0 - proof_seconds) / 3)
    later = measured(*(Phase.BASELINE,) * 8, Phase.FINALIST, each=20.0)
    assert compute_time_limit(later, Phase.FINALIST, TEN, 180.0) == (420.0 - proof_seconds) / 2


def test_a_rough_incumbent_is_measured_again_only_long_before_the_finals() -> None:
    rough = replace(PEAK, peak=1100.0, sd=0.13, verdict="rough")
    presets = (Phase.RECOMMENDED, Phase.ADVISED, Phase.PUBLISHED)
    flat = measured(Phase.BASELINE, *presets, Phase.SEARCH, each=20.0)
    trials = [replace(t, peak=rough) if t.number == 4 else t for t in flat.trials]
    state, long = replace(flat, trials=tuple(trials)), Budget.model_construct(trials=99, time=900.0)
    step = select_next_step(state, simulated.space(), long, 100.0)
    assert isinstance(step, MeasureStep)
    assert step.source_trial == 4
    assert isinstance(select_next_step(state, simulated.space(), long, 550.0), SuggestStep)


def test_a_slow_baseline_leaves_the_search_its_part_of_the_time() -> None:
    """The pairs of the proof share what is left, however long the first measurement took."""
    state = measured(Phase.BASELINE, each=90.0)
    assert compute_reserve_seconds(state, TEN) == MAX_RESERVE_SHARE * 600
    assert isinstance(select_next_step(state, simulated.space(), TEN, 90.0), MeasureStep)
    slow = measured(Phase.BASELINE, each=250.0)
    assert isinstance(select_next_step(slow, simulated.space(), TEN, 250.0), MeasureStep)
    assert (
        compute_time_limit(slow, Phase.SEARCH, TEN, 250.0) == 600 * (1 - MAX_RESERVE_SHARE) - 250.0
    )


@pytest.mark.parametrize(
    ("peak", "share"),
    [(1000.0, MAX_RESERVE_SHARE), (2900.0, MAX_RESERVE_SHARE), (3000.0, LARGE_GAIN_RESERVE_SHARE)],
)
def test_a_capacity_that_multiplied_leaves_the_search_more_time(peak: float, share: float) -> None:
    state = measured(Phase.BASELINE, Phase.RECOMMENDED, Phase.SEARCH, each=60.0)
    best = replace(state.trials[-1], peak=replace(PEAK, peak=peak))
    reserve_seconds = compute_reserve_seconds(
        replace(state, trials=(*state.trials[:-1], best)), TEN
    )
    assert reserve_seconds == pytest.approx(share * 600)


def test_something_is_tried_beside_a_baseline_that_took_the_time_of_the_search() -> None:
    state = measured(Phase.BASELINE, each=110.0)
    step = select_next_step(state, simulated.space(), SHORT, 110.0)
    assert isinstance(step, MeasureStep)
    assert step.phase is Phase.RECOMMENDED
    assert compute_time_limit(state, step.phase, SHORT, 110.0) == MIN_MEASUREMENT_SECONDS
    late = measured(Phase.BASELINE, each=140.0)
    assert not isinstance(select_next_step(late, simulated.space(), SHORT, 140.0), MeasureStep)


def test_rough_trials_do_not_shorten_the_time_kept_for_proof() -> None:
    state = measured(*(Phase.BASELINE,) * 2, *(Phase.SEARCH,) * 4, each=20.0)
    rough = replace(PEAK, sd=0.13, verdict="rough")
    trials = [replace(t, peak=rough) if t.number > 1 else t for t in state.trials]
    roughly = replace(state, trials=tuple(trials))
    long = Budget.model_construct(trials=100, time=3600.0)
    assert compute_reserve_seconds(roughly, long) > compute_reserve_seconds(state, long)
    # Two precise trials and four rough ones of half the length.
    assert compute_average_trial_seconds(roughly) == pytest.approx(6 * 20.0 / 4)


SHORT = Budget(trials=4, time="3m")  # type: ignore[arg-type]


def test_a_short_study_keeps_time_for_a_block_and_the_least_number_of_pairs() -> None:
    first = compute_time_limit(State(), Phase.BASELINE, SHORT, 0.0)
    assert first == 180.0 - MIN_PROOF_SECONDS - 2 * MIN_MEASUREMENT_SECONDS
    state = measured(Phase.BASELINE, each=first)
    assert compute_reserve_seconds(state, SHORT) == MIN_PROOF_SECONDS
    assert compute_time_limit(state, Phase.RECOMMENDED, SHORT, first) == 2 * MIN_MEASUREMENT_SECONDS
    assert compute_time_limit(state, Phase.SIMPLIFIED, SHORT, 75.0) == MIN_MEASUREMENT_SECONDS
    assert compute_time_limit(state, Phase.CONFIRM, SHORT, 90.0) == MIN_MEASUREMENT_SECONDS


def in_virtual_time(
    directory: Path,
    budget: Budget,
    each: float,
    deploying: float = 0.0,
    peaks: simulated.Peaks = simulated.climbing,
) -> tuple[Verdict, State]:
    """A study whose readings cost ``each`` seconds beyond what they count."""
    now, fleet = [0.0], simulated.FormulaFleet()
    with closing(StudyStore(directory)) as store:
        store.record_study_start("s", simulated.LOCAL.read_text(), source="s", facts={})
        context = simulated.context(store, peaks, fleet, seed=1, pace=0.0)
        session = context.session
        assert isinstance(session, LoadSession)
        offer, deploy = session.meter.take_reading, fleet.deploy

        def take(rate: float, seconds: float, *, ramp_seconds: float) -> WatchedReading:
            now[0] += seconds + ramp_seconds + each
            return offer(rate, seconds, ramp_seconds=ramp_seconds)

        def deployed(settings: Settings) -> DeployResult:
            now[0] += deploying
            return deploy(settings)

        session.meter.take_reading = take  # type: ignore[method-assign]
        fleet.deploy = deployed  # type: ignore[method-assign]
        session.clock = StudyClock(lambda: now[0])
        with open_sqlite(directory / "study.db") as storage:
            searcher = Searcher(storage, "s", context.space, "tpe", 1)
            return run_study_loop(context, searcher, budget), store.state


@pytest.mark.long
def test_a_study_takes_its_time_and_no_more(tmp_path: Path) -> None:
    _, state = in_virtual_time(tmp_path, Budget(trials=40, time="11m"), each=3.0)  # type: ignore[arg-type]
    assert state.elapsed_seconds <= 1.05 * 660
    assert len(state.list_finished_trials(Phase.CONFIRM)) >= 2 * MIN_PAIRS


@pytest.mark.long
@pytest.mark.parametrize("each", [0.3, 1.0, 2.0])
def test_three_minutes_suffice_to_prove_a_winner_of_few_changes(
    tmp_path: Path, each: float
) -> None:
    verdict, state = in_virtual_time(tmp_path, SHORT, each, deploying=2.0)
    assert state.elapsed_seconds <= 1.05 * 180
    assert len(state.list_finished_trials(Phase.CONFIRM)) == 2 * MIN_PAIRS
    assert verdict.verdict == "improved"
    best, space = state.find_trial(verdict.best or 0), simulated.space()
    assert best.phase is Phase.SIMPLIFIED
    changed = [
        n for n in space.active_parameters(best.settings) if best.settings[n] != space.baseline[n]
    ]
    assert 1 <= len(changed) <= 12


def test_load_on_slow_pages_lasts_at_most_a_twelfth_of_the_budget(tmp_path: Path) -> None:
    with closing(StudyStore(tmp_path)) as store:
        context = simulated.context(
            store, simulated.flat, simulated.FormulaFleet(), seed=1, pace=0.0
        )
        step = MeasureStep(Phase.BASELINE, context.space.baseline)
        *_, usual_seconds = prepare_measurement(step, context, TEN)
    assert usual_seconds == 600.0 / 12


def call_command(budget: Budget, call_seconds: float) -> State:
    """Return a study of a command whose calls last ``call_seconds``, and whose values are all alike."""
    state, space = State(), simulated.space()
    peak = Peak(peak=100.0, low=97.0, high=103.0, sd=0.02, verdict="measured")
    while not isinstance(
        step := select_next_step(state, space, budget, state.elapsed_seconds), ConcludeStep
    ):
        if isinstance(step, RankStep):
            estimates = {trial.number: peak.estimate for trial in state.trials}
            state = replace(state, posterior=PosteriorPeaks(estimates, 0.02))
            continue
        trial = Trial(len(state.trials), Phase.SEARCH, space.baseline, peak=peak)
        if isinstance(step, MeasureStep):
            trial = replace(trial, phase=step.phase, settings=step.settings)
            trial = replace(trial, source_trial=step.source_trial)
        values = (1.0,) * (1 if state.trials else REFERENCE_CALLS)
        state = replace(
            state,
            trials=(*state.trials, trial),
            values={**state.values, trial.number: values},
            seconds={"load": state.elapsed_seconds + call_seconds * len(values)},
        )
    return state


@pytest.mark.parametrize("call_seconds", [5.0, 20.0, 45.0, 60.0, 90.0, 130.0, 200.0])
def test_a_command_that_takes_long_is_not_called_beyond_the_time(call_seconds: float) -> None:
    """No call can be shortened."""
    state = call_command(TEN, call_seconds)
    assert state.elapsed_seconds <= MAX_OVERRUN_FACTOR * TEN.time
    # Ten calls of a minute fit: three for the baseline, one for a candidate, and three pairs.
    if call_seconds <= 60.0:
        assert len(state.list_finished_trials(Phase.CONFIRM)) >= 2 * MIN_PAIRS


def test_the_calls_for_the_baseline_say_how_long_one_call_takes() -> None:
    state = replace(measured(Phase.BASELINE, each=180.0), values={0: (1.0, 1.0, 1.0)})
    assert compute_average_trial_seconds(state) == pytest.approx(60.0)
    step = select_next_step(state, simulated.space(), TEN, 180.0)
    assert isinstance(step, MeasureStep)
    assert step.phase is Phase.RECOMMENDED


def test_faults_before_a_resume_take_no_share_of_the_proof() -> None:
    state = believed((STOCK, 90.0), (ADVICE, 100.0), (OTHER, 120.0))
    faults = [
        Trial(3 + n, Phase.CONFIRM, {}, source_trial=2, failure="no load", is_fault=True)
        for n in range(3)
    ]
    resumed = apply_record(replace(state, trials=(*state.trials, *faults)), {"event": "session"})
    budget = Budget.model_construct(trials=3, time=600.0)
    limits = {compute_time_limit(each, Phase.CONFIRM, budget, 0.0) for each in (state, resumed)}
    assert len(limits) == 1
