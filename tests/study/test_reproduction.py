"""A baseline that misses the objective: the time kept for the proof is used to reproduce the result."""

from __future__ import annotations

from pathlib import Path

from autotune.services.base import Settings
from autotune.study.study_state import Phase, Trial
from autotune.target.model import Budget
from tests.study import simulated

RECOMMENDED = simulated.space().preset_settings("recommended", simulated.space().deployments[0])
BUDGET = Budget(trials=3, time="10m")  # type: ignore[arg-type]  # as in a target


def only_recommended(settings: Settings) -> float:
    """Peaks in requests/s: every other configuration misses the objective at any rate."""
    return 1000.0 if settings == simulated.space().build_candidate(RECOMMENDED).settings else 1e-3


def trials_of(phase: Phase, trials: tuple[Trial, ...]) -> list[Trial]:
    return [trial for trial in trials if trial.phase is phase]


def test_the_only_trial_that_meets_the_objective_is_measured_again(tmp_path: Path) -> None:
    verdict, store = simulated.study(tmp_path, only_recommended, budget=BUDGET)
    (best,) = trials_of(Phase.RECOMMENDED, store.state.trials)
    assert verdict.verdict == "improved"
    assert verdict.best == best.number
    again = trials_of(Phase.FINALIST, store.state.trials)
    assert best.number in [trial.source_trial for trial in again]
    baselines = trials_of(Phase.BASELINE, store.state.trials)
    assert len(baselines) == 2
    assert not any(trial.peak and trial.peak.is_feasible for trial in baselines)


def test_a_disturbed_baseline_is_measured_again_and_then_compared(tmp_path: Path) -> None:
    fleet = simulated.FormulaFleet()
    baseline = simulated.space().baseline
    deployments: list[Settings] = []
    deploy = fleet.deploy

    def record(settings: Settings) -> object:
        deployments.append(settings)
        return deploy(settings)

    fleet.deploy = record  # type: ignore[method-assign, assignment]

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
