"""Pairs of measurements, which have both sides wherever a study stops."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.study.alternation import (
    MAX_RUNNER_UP_PAIRS,
    MIN_BLOCKS,
    _plan_alternation,
    plan_runner_up,
)
from autotune.study.proof import list_confirmations
from autotune.study.schedule import _plan_interrupted_trial
from autotune.study.schedule_steps import MeasureStep
from autotune.study.state_replay import apply_record
from autotune.study.study_state import Phase, State, StudyPause, Trial
from autotune.study.time_budget import compute_average_trial_seconds, compute_min_proof_seconds
from autotune.target.model import Budget
from tests.study.ranked import ADVICE, OTHER, STOCK, believed, measured_again


def test_after_each_long_pause_the_pair_starts_again() -> None:
    state = believed((STOCK, 90.0), (ADVICE, 115.0), (OTHER, 120.0), sd=0.06)
    for pause_count in range(1, 6):
        step = _plan_alternation(state, Phase.CONFIRM, 2, 0, None, is_stage_over=False)
        assert isinstance(step, MeasureStep)
        assert step.source_trial == 0
        state = measured_again(state, Phase.CONFIRM, (0, 90.0))
        pause = StudyPause(state.trials[-1].number)
        state = replace(state, pauses=(*state.pauses, pause))
        assert (len(state.pauses), list_confirmations(state, 2)) == (pause_count, [])
        assert _plan_alternation(state, Phase.CONFIRM, 2, 0, None, is_stage_over=True) is None


@pytest.mark.parametrize(
    ("finished", "stopped"),
    [
        ((0,), 2),  # before the first pair was complete
        ((0, 2), 2),
        ((0, 2, 2), 0),
        ((0, 2, 2, 0, 0), 2),
    ],
)
def test_a_pair_that_was_stopped_and_starts_again_has_both_sides(
    finished: tuple[int, ...], stopped: int
) -> None:
    """Its interrupted measurement is repeated first, and then the other side is measured."""
    state = believed((STOCK, 90.0), (ADVICE, 115.0), (OTHER, 120.0), sd=0.06)
    state = measured_again(state, Phase.CONFIRM, *((of, 100.0) for of in finished))
    number = len(state.trials)
    interrupted = Trial(number, Phase.CONFIRM, {}, source_trial=stopped)
    state = replace(state, trials=(*state.trials, interrupted), pauses=(StudyPause(number),))
    for expected in (stopped, 2 - stopped):
        step = plan_proof(state)
        assert (step.phase, step.source_trial) == (Phase.CONFIRM, expected)
        state = measured_again(state, Phase.CONFIRM, (expected, 100.0))
    last_pair = list_confirmations(state, 2)[-2:]
    assert [m.is_winner for m in last_pair] == [stopped == 2, stopped == 0]


def plan_proof(state: State) -> MeasureStep:
    """Return the next measurement of a proof of trial 2 that is never over."""
    step = _plan_interrupted_trial(state, None) or _plan_alternation(
        state, Phase.CONFIRM, 2, 0, None, is_stage_over=False
    )
    assert isinstance(step, MeasureStep)
    return step


@given(st.lists(st.sampled_from(["measured", "stopped", "paused", "measured, then paused"])))
def test_wherever_a_study_stops_each_pair_has_both_sides_and_no_pause(events: list[str]) -> None:
    """The peak of each measurement is its session between long pauses."""
    state, session = believed((STOCK, 90.0), (ADVICE, 115.0), (OTHER, 120.0), sd=0.06), 1
    for event in events:
        step, number = plan_proof(state), len(state.trials)
        if event.startswith("measured"):
            state = measured_again(state, Phase.CONFIRM, (step.source_trial or 0, float(session)))
        else:
            trial = Trial(number, Phase.CONFIRM, {}, source_trial=step.source_trial)
            state = replace(state, trials=(*state.trials, trial))
        if event.endswith("paused"):
            state, session = replace(state, pauses=(*state.pauses, StudyPause(number))), session + 1
        measured = list_confirmations(state, 2)
        pairs = list(zip(measured[::2], measured[1::2], strict=False))
        assert all(first.is_winner is not second.is_winner for first, second in pairs)
        assert all(first.peak.value == second.peak.value for first, second in pairs)


def test_two_measurements_of_one_side_on_record_are_no_pair() -> None:
    """As a study may contain them: each is left out if the next one is of the same side."""
    state = believed((STOCK, 90.0), (ADVICE, 115.0), (OTHER, 120.0), sd=0.06)
    sides = ((2, 118.0), (2, 119.0), (2, 120.0), (0, 90.0), (0, 91.0))
    state = measured_again(state, Phase.CONFIRM, *sides)
    measured = list_confirmations(state, 2)
    assert [round(m.peak.value) for m in measured] == [120, 90, 91]
    assert plan_proof(state).source_trial == 2


@pytest.mark.parametrize(("spare_trials", "is_compared"), [(1.9, False), (2.1, True)])
def test_leader_and_rival_are_compared_only_if_time_for_a_pair_is_left(
    spare_trials: float, is_compared: bool
) -> None:
    state = believed((STOCK, 90.0), (ADVICE, 115.0), (OTHER, 120.0), sd=0.06)
    state = measured_again(state, Phase.FINALIST, (2, 121.0), (1, 118.0))
    state = replace(state, seconds={"load": 60.0 * len(state.trials)})
    average = compute_average_trial_seconds(state)
    needed_seconds = compute_min_proof_seconds(state) + (MIN_BLOCKS + spare_trials) * average
    budget = Budget.model_construct(trials=3, time=state.elapsed_seconds + needed_seconds)
    step = plan_runner_up(state, budget, state.elapsed_seconds, None)
    assert isinstance(step, MeasureStep) is is_compared


@pytest.mark.parametrize(
    ("pair_count", "is_over"), [(MAX_RUNNER_UP_PAIRS - 1, False), (MAX_RUNNER_UP_PAIRS, True)]
)
def test_leader_and_rival_that_stay_alike_are_compared_in_so_many_pairs(
    pair_count: int, is_over: bool
) -> None:
    state = believed((STOCK, 90.0), (ADVICE, 119.0), (OTHER, 120.0), sd=0.06)
    state = measured_again(state, Phase.FINALIST, (2, 120.0), (1, 120.0))
    pairs = ((1, 120.0), (2, 120.0), (2, 120.0), (1, 120.0)) * pair_count
    state = measured_again(state, Phase.RUNNER_UP, *pairs[: 2 * pair_count])
    budget = Budget.model_construct(trials=3, time=1e6)
    step = plan_runner_up(state, budget, 60.0, None)
    assert (step is None) is is_over


def test_a_resumed_study_compares_leader_and_rival_again_after_faults() -> None:
    state = believed((STOCK, 90.0), (ADVICE, 119.0), (OTHER, 120.0), sd=0.06)
    state = measured_again(state, Phase.FINALIST, (2, 120.0), (1, 120.0))
    faults = [
        Trial(5 + n, Phase.RUNNER_UP, {}, source_trial=1, failure="no load", is_fault=True)
        for n in range(3)
    ]
    state = replace(state, trials=(*state.trials, *faults))
    budget = Budget.model_construct(trials=3, time=1e6)
    assert plan_runner_up(state, budget, 60.0, None) is None
    resumed = apply_record(state, {"event": "session"})
    assert isinstance(plan_runner_up(resumed, budget, 60.0, None), MeasureStep)
