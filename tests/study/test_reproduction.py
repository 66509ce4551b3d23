"""A baseline that misses the objective: the time kept for the proof is used to reproduce the result."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from autotune.environments.peak import Peak
from autotune.estimate import Estimate
from autotune.optimize.ranking import PosteriorPeaks
from autotune.services.base import Settings
from autotune.study.alternation import MAX_FAILED_CONFIRMATIONS
from autotune.study.incumbent import find_incumbent
from autotune.study.proof import decide_verdict
from autotune.study.ranking import (
    REQUIRED_REPRODUCTIONS,
    baseline_meets_slo,
    estimate_candidate_peaks,
    find_baseline,
)
from autotune.study.schedule import select_next_step
from autotune.study.schedule_steps import ConcludeStep, MeasureStep
from autotune.study.state_replay import apply_record
from autotune.study.study_state import Phase, State, Trial
from autotune.study.time_budget import MIN_MEASUREMENT_SECONDS, compute_time_limit
from autotune.target.model import Budget
from tests.study import simulated
from tests.study.test_time_budget import in_virtual_time

RECOMMENDED = simulated.space().preset_settings("recommended", simulated.space().deployments[0])
BUDGET = Budget(trials=3, time="10m")  # type: ignore[arg-type]  # as in a target
CHANCES = (0.2, 0.5, 0.8)  # that a trial meets the objective


def only_recommended(settings: Settings) -> float:
    """Peaks in requests/s: every other configuration misses the objective at any rate."""
    return 1000.0 if settings == simulated.space().build_candidate(RECOMMENDED).settings else 1e-3


def trials_of(phase: Phase, trials: tuple[Trial, ...]) -> list[Trial]:
    return [trial for trial in trials if trial.phase is phase]


def record_deployments() -> tuple[simulated.FormulaFleet, list[Settings]]:
    """Return a fleet, and the list to which it adds the settings of each deployment."""
    fleet = simulated.FormulaFleet()
    deployments: list[Settings] = []
    deploy = fleet.deploy

    def record(settings: Settings) -> object:
        deployments.append(settings)
        return deploy(settings)

    fleet.deploy = record  # type: ignore[method-assign, assignment]
    return fleet, deployments


def count_repeats(state: State, repeated: Trial) -> int:
    finalists = trials_of(Phase.FINALIST, state.trials)
    return sum(trial.source_trial == repeated.number for trial in finalists)


def test_the_only_trial_that_meets_the_objective_is_measured_again(tmp_path: Path) -> None:
    verdict, store = simulated.study(tmp_path, only_recommended, budget=BUDGET)
    (best,) = trials_of(Phase.RECOMMENDED, store.state.trials)
    assert verdict.verdict == "improved"
    assert verdict.best == best.number
    assert count_repeats(store.state, best) == REQUIRED_REPRODUCTIONS
    baselines = trials_of(Phase.BASELINE, store.state.trials)
    assert len(baselines) == REQUIRED_REPRODUCTIONS
    assert not any(trial.peak and trial.peak.is_feasible for trial in baselines)


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_repeat_that_misses_the_objective_refutes_the_result(
    tmp_path: Path, failing: int
) -> None:
    fleet, deployments = record_deployments()

    def peaks(settings: Settings) -> float:
        peak = only_recommended(settings)
        is_failing = deployments.count(settings) == 1 + failing
        return 1e-3 if is_failing else peak

    verdict, store = simulated.study(tmp_path, peaks, budget=BUDGET, fleet=fleet)
    (best,) = trials_of(Phase.RECOMMENDED, store.state.trials)
    assert count_repeats(store.state, best) == failing
    assert verdict.verdict == "unmeetable"


def count_improved(directory: Path, chance: float, count: int) -> int:
    """Studies, out of ``count``, that claim a gain if each trial meets the objective by chance."""
    draws = Random(f"reproduction {chance}")
    verdicts = Counter(
        simulated.study(
            directory / f"{chance} {number}",
            lambda _: 1000.0 if draws.random() < chance else 1e-3,
            budget=BUDGET,
        )[0].verdict
        for number in range(count)
    )
    return verdicts["improved"]


def test_settings_without_an_effect_rarely_improve_an_unreliable_baseline(tmp_path: Path) -> None:
    assert sum(count_improved(tmp_path, chance, 5) for chance in CHANCES) <= 1


@pytest.mark.soak
@pytest.mark.parametrize("chance", CHANCES)
def test_they_rarely_improve_it_at_each_chance(tmp_path: Path, chance: float) -> None:
    assert count_improved(tmp_path, chance, 40) <= 3


def test_a_disturbed_baseline_is_measured_again_and_then_compared(tmp_path: Path) -> None:
    fleet, deployments = record_deployments()
    baseline = simulated.space().baseline

    def peaks(settings: Settings) -> float:
        is_first = len(deployments) == 1 and settings == baseline
        return 1e-3 if is_first else simulated.climbing(settings)

    verdict, store = simulated.study(tmp_path, peaks, budget=BUDGET, fleet=fleet)
    first, second = trials_of(Phase.BASELINE, store.state.trials)
    assert first.peak is not None
    assert first.peak.verdict == "unmeetable"
    assert second.peak is not None
    assert second.peak.is_feasible
    assert verdict.gain is not None
    assert trials_of(Phase.CONFIRM, store.state.trials)


MISSED = Peak(0.0, 0.0, 0.0, 0.5, "unmeetable")


def build_missed_study(fault_count: int) -> State:
    """A study of 20 s per trial, whose baseline missed the objective and then failed."""
    baseline = simulated.space().baseline
    trials = [
        Trial(0, Phase.BASELINE, baseline, peak=MISSED),
        *(Trial(n, Phase.SEARCH, baseline, peak=MISSED) for n in (1, 2)),
        *(
            Trial(3 + n, Phase.BASELINE, baseline, 0, failure="no load", is_fault=True)
            for n in range(fault_count)
        ),
    ]
    return State(
        trials=tuple(trials),
        seconds={"load": 20.0 * (3 + fault_count)},
        posterior=PosteriorPeaks({}, 0.05),
    )


@pytest.mark.parametrize(
    ("fault_count", "elapsed_seconds", "is_repeated"),
    [
        (0, 60.0, True),
        (0, 580.0, True),  # a trial of 20 s ends exactly with the budget
        (0, 580.1, False),
        # The first measurement counts, and two more than needed may fail.
        (REQUIRED_REPRODUCTIONS + MAX_FAILED_CONFIRMATIONS - 2, 160.0, True),
        (REQUIRED_REPRODUCTIONS + MAX_FAILED_CONFIRMATIONS - 1, 180.0, False),
    ],
)
def test_a_baseline_that_missed_is_repeated_while_time_and_failures_allow(
    fault_count: int, elapsed_seconds: float, is_repeated: bool
) -> None:
    state = build_missed_study(fault_count)
    step = select_next_step(state, simulated.space(), BUDGET, elapsed_seconds)
    if is_repeated:
        assert isinstance(step, MeasureStep)
        assert (step.phase, step.source_trial) == (Phase.BASELINE, 0)
    else:
        assert step == ConcludeStep()


def test_faults_before_a_resume_do_not_end_the_repeats_of_a_baseline() -> None:
    state = build_missed_study(REQUIRED_REPRODUCTIONS + MAX_FAILED_CONFIRMATIONS - 1)
    resumed = apply_record(state, {"event": "session"})
    step = select_next_step(resumed, simulated.space(), BUDGET, 180.0)
    assert isinstance(step, MeasureStep)
    assert (step.phase, step.source_trial) == (Phase.BASELINE, 0)


UNMET = Peak(700.0, 300.0, 1600.0, 0.5, "unmet")
MET = Peak(1000.0, 950.0, 1050.0, 0.03, "measured")


def repeat(state: State, phase: Phase, source_trial: int, *peaks: Peak) -> State:
    """Return the study after further measurements of a trial, of 20 s each."""
    settings = state.find_trial(source_trial).settings
    repeats = [
        Trial(len(state.trials) + n, phase, settings, source_trial, peak=peak)
        for n, peak in enumerate(peaks)
    ]
    trials = (*state.trials, *repeats)
    return replace(state, trials=trials, seconds={"load": 20.0 * len(trials)})


def build_won_study(*baselines: Peak) -> State:
    """A study of 20 s per trial, whose trial 1 met the objective that the baseline missed."""
    state = build_missed_study(0)
    trials = (state.trials[0], replace(state.trials[1], peak=MET), state.trials[2])
    posterior = PosteriorPeaks({1: Estimate.from_value(1000.0, 0.05)}, 0.05)
    return repeat(replace(state, trials=trials, posterior=posterior), Phase.BASELINE, 0, *baselines)


@pytest.mark.parametrize(
    ("baseline_count", "repeat_count", "phase", "elapsed_seconds", "seconds"),
    [
        # Three repeats of trial 1 need 20 s each.
        (1, 0, Phase.BASELINE, 500.0, 40.0 / 2),
        (1, 0, Phase.BASELINE, 450.0, 90.0 / 2),
        (2, 0, Phase.BASELINE, 500.0, 40.0),
        (3, 0, Phase.FINALIST, 500.0, 100.0 / 3),
        (3, 2, Phase.FINALIST, 500.0, 100.0),
        (3, 3, Phase.FINALIST, 500.0, 100.0),
        (1, 0, Phase.BASELINE, 590.0, MIN_MEASUREMENT_SECONDS),
        (1, 0, Phase.BASELINE, 100.0, 500.0 - 6 * 20.0),  # enough time for any measurement
    ],
)
def test_the_repeats_that_an_improvement_needs_share_the_time(
    baseline_count: int,
    repeat_count: int,
    phase: Phase,
    elapsed_seconds: float,
    seconds: float,
) -> None:
    state = build_won_study(*[MISSED] * (baseline_count - 1))
    state = repeat(state, Phase.FINALIST, 1, *[MET] * repeat_count)
    assert compute_time_limit(state, phase, BUDGET, elapsed_seconds) == pytest.approx(seconds)


def test_the_first_measurement_on_another_test_bed_is_no_repeat() -> None:
    """Its time is that of the search, although the baseline missed the objective elsewhere."""
    state = State(
        trials=(Trial(0, Phase.BASELINE, simulated.space().baseline, peak=MISSED, bed="a"),),
        seconds={"load": 20.0},
        beds=("a", "b"),
    )
    budget = Budget(trials=40, time="10m")  # type: ignore[arg-type]
    needed_seconds = 5 * 20.0 + MIN_MEASUREMENT_SECONDS
    limit = compute_time_limit(state, Phase.BASELINE, budget, 20.0)
    assert limit == pytest.approx(580.0 - needed_seconds)


def test_a_baseline_that_ran_out_of_time_is_measured_again() -> None:
    """It shows neither that the objective is met, nor that it is missed at any rate."""
    for unmet_count in range(REQUIRED_REPRODUCTIONS + MAX_FAILED_CONFIRMATIONS):
        state = build_won_study(*[UNMET] * unmet_count)
        baseline = find_baseline(state)
        assert baseline is not None
        assert baseline.number == 0
        assert not baseline_meets_slo(state)
        step = select_next_step(state, simulated.space(), BUDGET, 480.0)
        if unmet_count < REQUIRED_REPRODUCTIONS + MAX_FAILED_CONFIRMATIONS - 1:
            assert isinstance(step, MeasureStep)
            assert (step.phase, step.source_trial) == (Phase.BASELINE, 0)
        else:
            assert step == ConcludeStep()


@pytest.mark.parametrize(
    ("baselines", "repeats", "verdict"),
    [
        ((MISSED, MISSED), (MET, MET, MET), "improved"),
        ((MISSED, UNMET), (MET, MET, MET), "unmeetable"),
        ((MISSED, UNMET, MISSED), (MET, MET, MET), "improved"),
        ((MISSED, MISSED), (MET, MET, UNMET), "unmeetable"),
        ((MISSED, MISSED), (MET, MET, UNMET, MET), "unmeetable"),
    ],
)
def test_only_searches_that_ended_count_for_an_improvement(
    baselines: tuple[Peak, ...], repeats: tuple[Peak, ...], verdict: str
) -> None:
    state = build_won_study(*baselines)
    assert decide_verdict(repeat(state, Phase.FINALIST, 1, *repeats)).verdict == verdict


def test_a_baseline_that_meets_the_objective_after_one_that_ran_out_of_time_is_compared() -> None:
    state = build_won_study(UNMET, MET)
    baseline = find_baseline(state)
    assert baseline is not None
    assert baseline.peak == MET
    assert baseline_meets_slo(state)


def test_a_trial_that_ran_out_of_time_is_no_candidate_and_no_peak_to_beat() -> None:
    baseline = simulated.space().baseline
    trials = (
        Trial(0, Phase.BASELINE, baseline, peak=MISSED),
        Trial(1, Phase.SEARCH, baseline, peak=UNMET),
    )
    state = State(trials=trials)
    assert estimate_candidate_peaks(state) == {}
    assert find_incumbent(state) is None
    met = replace(state, trials=(trials[0], replace(trials[1], peak=MET)))
    assert list(estimate_candidate_peaks(met)) == [1]
    assert find_incumbent(met) is not None


@pytest.mark.parametrize("repeat_count", [0, 1, 2])
def test_no_other_finalist_is_measured_before_the_best_trial_is_reproduced(
    repeat_count: int,
) -> None:
    """Time is left only for the missing repeats."""
    state = build_won_study(MISSED, MISSED)
    second = replace(state.trials[2], peak=replace(MET, peak=900.0))
    peaks = {1: Estimate.from_value(1000.0, 0.05), 2: Estimate.from_value(900.0, 0.05)}
    state = replace(
        state,
        trials=(*state.trials[:2], second, *state.trials[3:]),
        posterior=PosteriorPeaks(peaks, 0.05),
    )
    state = repeat(state, Phase.FINALIST, 1, *[MET] * repeat_count)
    step = select_next_step(state, simulated.space(), BUDGET, 500.0)
    assert isinstance(step, MeasureStep)
    assert (step.phase, step.source_trial) == (Phase.FINALIST, 1)


@pytest.mark.long
@pytest.mark.parametrize(("time", "each"), [("10m", 0.3), ("15m", 1.0)])
def test_a_short_study_reproduces_that_the_baseline_misses_the_objective(
    tmp_path: Path, time: str, each: float
) -> None:
    """The search uses all of its time, and its readings are slow, as are deployments."""
    budget = Budget(trials=40, time=time)  # type: ignore[arg-type]
    verdict, state = in_virtual_time(tmp_path, budget, each, deploying=6.0, peaks=only_recommended)
    assert len(state.list_counted_trials()) < budget.trials
    assert not state.list_finished_trials(Phase.CONFIRM)
    assert (verdict.verdict, verdict.gain) == ("improved", None)
    assert state.elapsed_seconds <= 1.05 * budget.time
