"""Before the proof, the winner is measured without a change whose cost is uncertain and may be large."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotune.environments.peak import Peak
from autotune.optimize.ranking import PosteriorPeaks
from autotune.optimize.reversal_cost import ReversalCost
from autotune.services.base import Settings
from autotune.space.space import SearchSpace
from autotune.study.ranking import MIN_CONFIGURATIONS
from autotune.study.schedule import select_next_step
from autotune.study.schedule_steps import EstimateCostsStep, MeasureStep
from autotune.study.study_loop import predict_reversal_costs
from autotune.study.study_state import Phase, State, Trial
from autotune.study.winner_changes import Simplification
from autotune.target.model import Budget
from bench import stacks

SPACE = SearchSpace(tuple(stacks.number(f"t.s.{name}", 1, 9, 1) for name in "abc"), (), {})
BUDGET = Budget.model_construct(trials=20, time=3600.0)
WINNER = dict.fromkeys(SPACE.baseline, 9)
TRIAL_SECONDS = 60.0


def peak(value: float) -> Peak:
    return Peak(value, value * 0.97, value * 1.03, 0.02, "measured")


def build_state(
    *reversals: Trial, costs: dict[str, ReversalCost] | None = None, configurations: int = 20
) -> State:
    """A study that ended its search, its finals and its simplification; trial 1 leads."""
    searched = [
        Trial(number, Phase.SEARCH, {**SPACE.baseline, "t.s.a": number}, peak=peak(800.0 - number))
        for number in range(2, configurations)
    ]
    trials = [
        Trial(0, Phase.BASELINE, SPACE.baseline, peak=peak(500.0)),
        Trial(1, Phase.SEARCH, WINNER, peak=peak(1500.0)),
        *searched,
    ]
    trials += [
        Trial(len(trials) + number, Phase.FINALIST, trial.settings, trial.number, peak=trial.peak)
        for number, trial in enumerate(trials[1:3])
    ]
    trials += [replace(trial, number=len(trials) + n) for n, trial in enumerate(reversals)]
    estimates = {trial.number: trial.peak.estimate for trial in trials if trial.peak}
    return State(
        trials=tuple(trials),
        seconds={"load": TRIAL_SECONDS * len(trials)},
        stop_reason="enough",
        posterior=PosteriorPeaks(estimates, 0.02),
        simplification=Simplification(of=1),
        reversal_costs=costs or {},
        cost_trial=None if costs is None else 1,
    )


def reversal(name: str, failure: str | None = None) -> Trial:
    settings: Settings = {**WINNER, name: SPACE.baseline[name]}
    return Trial(0, Phase.EXPLAIN, settings, peak=None if failure else peak(700.0), failure=failure)


LARGE, LARGER = ReversalCost(0.2, 0.15), ReversalCost(0.1, 0.4)  # log losses, which may be zero
KNOWN, SMALL = ReversalCost(0.5, 0.05), ReversalCost(0.01, 0.02)


@pytest.mark.parametrize(
    ("costs", "reversals", "reverted"),
    [
        ({"t.s.a": KNOWN, "t.s.b": LARGE}, (), "t.s.b"),
        ({"t.s.a": LARGE, "t.s.b": LARGER}, (), "t.s.b"),
        ({"t.s.a": LARGE, "t.s.b": LARGER}, ("t.s.b",), "t.s.a"),
        ({"t.s.a": LARGE, "t.s.b": LARGER}, ("t.s.b", "t.s.a"), None),
        ({"t.s.a": KNOWN, "t.s.b": SMALL}, (), None),
        ({}, (), None),
    ],
)
def test_the_costs_in_doubt_are_measured_the_largest_first(
    costs: dict[str, ReversalCost], reversals: tuple[str, ...], reverted: str | None
) -> None:
    state = build_state(*map(reversal, reversals), costs=costs)
    step = select_next_step(state, SPACE, BUDGET, 900.0)
    assert isinstance(step, MeasureStep)
    if reverted is None:
        assert step.phase is Phase.CONFIRM
    else:
        assert (step.phase, step.settings) == (Phase.EXPLAIN, reversal(reverted).settings)


def test_a_change_that_cannot_be_reverted_is_not_tried_again() -> None:
    costs = {"t.s.a": LARGE, "t.s.b": LARGER}
    state = build_state(reversal("t.s.b", failure="does not start"), costs=costs)
    step = select_next_step(state, SPACE, BUDGET, 900.0)
    assert isinstance(step, MeasureStep)
    assert step.settings == reversal("t.s.a").settings


FAULT, LIMITED = "fault", "limited"


@pytest.mark.parametrize(
    ("reversals", "reverted"),
    [
        ((("t.s.b", FAULT),), "t.s.b"),
        ((("t.s.b", LIMITED),), "t.s.b"),
        ((("t.s.b", FAULT), ("t.s.b", None)), "t.s.a"),
        ((("t.s.b", None), ("t.s.a", FAULT)), "t.s.a"),
        ((("t.s.b", FAULT), ("t.s.a", None)), "t.s.b"),  # on two test beds at once
        ((("t.s.b", None), ("t.s.a", FAULT), ("t.s.a", None)), None),
        ((("t.s.b", FAULT), ("t.s.b", LIMITED)), None),  # a third fault would stop the study
    ],
)
def test_a_change_whose_measurement_showed_nothing_is_reverted_again(
    reversals: tuple[tuple[str, str | None], ...], reverted: str | None
) -> None:
    limited = Peak(700.0, 700.0, 700.0, 0.03, "limited", limit="load.max_rate")
    outcomes: dict[str | None, dict[str, Any]] = {
        None: {},
        FAULT: {"peak": None, "failure": "the load broke", "is_fault": True},
        LIMITED: {"peak": limited},
    }
    trials = [replace(reversal(name), **outcomes[outcome]) for name, outcome in reversals]
    state = build_state(*trials, costs={"t.s.a": LARGE, "t.s.b": LARGER})
    step = select_next_step(state, SPACE, BUDGET, 900.0)
    assert isinstance(step, MeasureStep)
    assert step.phase is (Phase.CONFIRM if reverted is None else Phase.EXPLAIN)
    assert reverted is None or step.settings == reversal(reverted).settings


def test_the_model_estimates_the_costs_first() -> None:
    assert select_next_step(build_state(), SPACE, BUDGET, 900.0) == EstimateCostsStep(1)


@pytest.mark.parametrize(
    ("state", "elapsed"),
    [
        (build_state(configurations=MIN_CONFIGURATIONS - 1), 900.0),  # the model knows too little
        (build_state(), BUDGET.time - 6 * TRIAL_SECONDS),  # the time is needed for the proof
        (replace(build_state(), posterior=None, simplification=None), 3000.0),
    ],
)
def test_it_takes_nothing_from_the_proof(state: State, elapsed: float) -> None:
    step = select_next_step(state, SPACE, BUDGET, elapsed)
    assert not isinstance(step, EstimateCostsStep)
    assert not isinstance(step, MeasureStep) or step.phase is not Phase.EXPLAIN


def test_without_a_baseline_no_change_has_a_cost() -> None:
    state = State(trials=(Trial(0, Phase.SEARCH, WINNER, peak=peak(1500.0)),))
    model: Any = None  # nothing asks it
    assert predict_reversal_costs(model, SPACE, state, 0) == {}
