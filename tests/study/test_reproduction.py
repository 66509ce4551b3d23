"""A baseline that misses the objective: the time kept for the proof is used to reproduce the result."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from autotune.environments.peak import Peak
from autotune.optimize.ranking import PosteriorPeaks
from autotune.services.base import Settings
from autotune.study.ranking import REQUIRED_REPRODUCTIONS
from autotune.study.schedule import (
    MAX_FAILED_CONFIRMATIONS,
    ConcludeStep,
    MeasureStep,
    select_next_step,
)
from autotune.study.study_state import Phase, State, Trial
from autotune.target.model import Budget
from tests.study import simulated

RECOMMENDED = simulated.space().preset_settings("recommended", simulated.space().deployments[0])
BUDGET = Budget(trials=3, time="10m")  # type: ignore[arg-type]  # as in a target


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


@pytest.mark.parametrize("chance", [0.2, 0.5, 0.8])
def test_settings_without_an_effect_rarely_improve_an_unreliable_baseline(
    tmp_path: Path, chance: float
) -> None:
    draws = Random(f"reproduction {chance}")
    verdicts = Counter(
        simulated.study(
            tmp_path / str(number),
            lambda _: 1000.0 if draws.random() < chance else 1e-3,
            budget=BUDGET,
        )[0].verdict
        for number in range(40)
    )
    assert verdicts["improved"] <= 3


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
