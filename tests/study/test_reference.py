"""Which configuration shows the drift, and when it is measured again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotune.environments.peak import Peak
from autotune.space.space import SearchSpace
from autotune.study.schedule import (
    PRUNED_TRIALS_DIVISOR,
    REFERENCE_INTERVAL_TRIALS,
    select_next_step,
)
from autotune.study.schedule_steps import MeasureStep, SuggestStep
from autotune.study.study_drift import estimate_study_drift, find_reference
from autotune.study.study_state import Phase, State, Trial
from autotune.study.time_budget import ROUGH_TRIAL_SHARE, compute_reserve_seconds
from autotune.target.model import Budget
from tests.space.targets import fleet

BUDGET = Budget.model_construct(trials=200, time=36_000.0)


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> SearchSpace:
    return fleet(tmp_path_factory.mktemp("reference"), "")


def trial(
    number: int, phase: Phase, peak: float | None, verdict: str = "measured", of: int | None = None
) -> Trial:
    found = None if peak is None else Peak(peak, 0.9 * peak, 1.1 * peak, 0.05, verdict)
    return Trial(
        number, phase, {}, source_trial=of, peak=found, failure=None if found else "out of luck"
    )


def opened(space: SearchSpace) -> State:
    """A state in which only the search is left."""
    state = State(seconds={"load": 1.0})
    while isinstance(step := select_next_step(state, space, BUDGET, 1.0), MeasureStep):
        number = len(state.trials)
        done = Trial(
            number, step.phase, step.settings, peak=Peak(500.0 + number, 1, 2, 0.05, "measured")
        )
        state = State(trials=(*state.trials, done), seconds=state.seconds)
    return state


def searched(state: State, count: int, peak: float | None, verdict: str) -> State:
    more = [trial(len(state.trials) + index, Phase.SEARCH, peak, verdict) for index in range(count)]
    return State(trials=(*state.trials, *more), seconds=state.seconds)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ([(Phase.BASELINE, 100.0, "measured")], 0),
        ([(Phase.BASELINE, 100.0, "measured"), (Phase.RECOMMENDED, 300.0, "measured")], 1),
        ([(Phase.BASELINE, 100.0, "measured"), (Phase.RECOMMENDED, 300.0, "screened")], 0),
        ([(Phase.BASELINE, 100.0, "measured"), (Phase.SEARCH, 300.0, "measured")], 0),
        ([(Phase.BASELINE, None, ""), (Phase.SEARCH, 300.0, "measured")], 1),
        ([(Phase.BASELINE, None, "")], None),
    ],
)
def test_it_is_the_best_that_was_known_beforehand(
    known: list[tuple[Phase, float | None, str]], expected: int | None
) -> None:
    trials = [trial(i, phase, peak, verdict) for i, (phase, peak, verdict) in enumerate(known)]
    chosen = find_reference(State(trials=tuple(trials)))
    assert (chosen.number if chosen else None) == expected


@pytest.mark.parametrize(
    ("verdict", "peak", "due"),
    [
        ("measured", 400.0, REFERENCE_INTERVAL_TRIALS),
        ("screened", 400.0, REFERENCE_INTERVAL_TRIALS * PRUNED_TRIALS_DIVISOR),
        ("failed", None, REFERENCE_INTERVAL_TRIALS * PRUNED_TRIALS_DIVISOR),
        ("rough", 400.0, round(REFERENCE_INTERVAL_TRIALS / ROUGH_TRIAL_SHARE)),
    ],
)
def test_it_is_due_after_so_many_trials_that_said_something(
    space: SearchSpace, verdict: str, peak: float | None, due: int
) -> None:
    state = opened(space)
    chosen = find_reference(state)
    assert chosen is not None
    # Those after the reference itself was measured count already.
    due -= len(state.trials) - 1 - chosen.number
    assert (
        select_next_step(searched(state, due - 1, peak, verdict), space, BUDGET, 1.0)
        == SuggestStep()
    )
    step = select_next_step(searched(state, due, peak, verdict), space, BUDGET, 1.0)
    assert isinstance(step, MeasureStep)
    assert (step.phase, step.source_trial) == (Phase.REFERENCE, chosen.number)


@pytest.mark.parametrize(("left", "is_measured"), [(11, False), (12, True)])
@pytest.mark.parametrize("limited", ["trials", "time"])
def test_a_study_that_is_too_short_for_three_repeats_of_it_needs_none(
    space: SearchSpace, limited: str, left: int, is_measured: bool
) -> None:
    state = opened(space)
    state = searched(state, REFERENCE_INTERVAL_TRIALS, 400.0, "measured")
    state = State(trials=state.trials, seconds={"load": 60.0 * len(state.trials)})
    counted = len(state.list_counted_trials())
    needed_trials = left + 3 if limited == "time" else left  # three measurements of the reference
    left_seconds = 60.0 * needed_trials + 1.0
    # The last of the three is measured before another trial.
    budget = Budget.model_construct(trials=counted + left + 1, time=1e6)
    if limited == "time":
        long = Budget.model_construct(trials=200, time=1e5)
        budget = Budget.model_construct(
            trials=200, time=60.0 * len(state.trials) + left_seconds
            + compute_reserve_seconds(state, long),
        )  # fmt: skip
    step = select_next_step(state, space, budget, state.elapsed_seconds)
    is_reference = isinstance(step, MeasureStep) and step.phase is Phase.REFERENCE
    assert is_reference == is_measured
    one = trial(len(state.trials), Phase.REFERENCE, 500.0, of=find_reference(state).number)  # type: ignore[union-attr]
    state = State(trials=(*state.trials, one), seconds=state.seconds)
    state = searched(state, REFERENCE_INTERVAL_TRIALS, 400.0, "measured")
    step = select_next_step(state, space, BUDGET, state.elapsed_seconds)
    assert isinstance(step, MeasureStep), "a series that has begun goes on while time is left"


@pytest.mark.parametrize(
    ("left", "is_measured"),
    [(REFERENCE_INTERVAL_TRIALS, False), (REFERENCE_INTERVAL_TRIALS + 1, True)],
)
def test_a_second_repeat_of_it_is_measured_only_if_a_third_can_follow(
    space: SearchSpace, left: int, is_measured: bool
) -> None:
    state = searched(opened(space), REFERENCE_INTERVAL_TRIALS, 400.0, "measured")
    chosen = find_reference(state)
    assert chosen is not None
    one = trial(len(state.trials), Phase.REFERENCE, 500.0, of=chosen.number)
    state = State(trials=(*state.trials, one), seconds=state.seconds)
    state = searched(state, REFERENCE_INTERVAL_TRIALS, 400.0, "measured")
    counted = len(state.list_counted_trials())
    budget = Budget.model_construct(trials=counted + left, time=36_000.0)
    step = select_next_step(state, space, budget, 1.0)
    assert isinstance(step, MeasureStep) is is_measured


@pytest.mark.parametrize("left", range(2 * REFERENCE_INTERVAL_TRIALS, 25))
def test_no_reference_is_repeated_in_vain(space: SearchSpace, left: int) -> None:
    """Fewer than three repeats show no drift, however many trials a study has left."""
    state = opened(space)
    budget = Budget.model_construct(trials=len(state.trials) + left, time=36_000.0)
    while True:
        step = select_next_step(state, space, budget, 1.0)
        if not isinstance(step, MeasureStep | SuggestStep):
            break
        phase, of = Phase.SEARCH, None
        if isinstance(step, MeasureStep):
            phase, of = step.phase, step.source_trial
        more = trial(len(state.trials), phase, 400.0, of=of)
        state = State(trials=(*state.trials, more), seconds=state.seconds)
    repeats = state.list_finished_trials(Phase.REFERENCE)
    assert bool(repeats) is bool(estimate_study_drift(state).shifts)
    assert bool(repeats) is (left > 3 * REFERENCE_INTERVAL_TRIALS)


def test_a_preset_is_measured_again_where_the_reference_turns_out_to_carry_less(
    space: SearchSpace,
) -> None:
    state = opened(space)
    chosen, doubtful = find_reference(state), state.list_finished_trials(Phase.RECOMMENDED)[0]
    assert chosen is not None
    assert chosen != doubtful
    peaks = {
        chosen.number: Peak(500.0, 480.0, 520.0, 0.03, "measured"),
        doubtful.number: Peak(400.0, 350.0, 450.0, 0.07, "screened"),
    }
    poor = Peak(100.0, 90.0, 110.0, 0.05, "measured")
    trials = tuple(replace(t, peak=peaks.get(t.number, poor)) for t in state.trials)
    state = State(trials=trials, seconds=state.seconds)
    assert select_next_step(state, space, BUDGET, 1.0) == SuggestStep()
    lower = trial(len(state.trials), Phase.REFERENCE, 340.0, of=chosen.number)
    state = State(trials=(*state.trials, lower), seconds=state.seconds)
    step = select_next_step(state, space, BUDGET, 1.0)
    assert step == MeasureStep(Phase.RECOMMENDED, doubtful.settings, source_trial=doubtful.number)


def test_the_reading_that_a_reference_was_chosen_for_is_no_sign_of_drift() -> None:
    """The best of nine noisy readings is high by luck: what follows is no decline of the stack."""
    rng = np.random.default_rng(1)
    marked_down = []
    for _ in range(40):
        peaks = 500.0 * np.exp(rng.normal(0, 0.12, 13))
        opening = [trial(n, Phase.RECOMMENDED, float(p)) for n, p in enumerate(peaks[:9])]
        chosen = int(np.argmax(peaks[:9]))
        later = [
            trial(9 + n, Phase.REFERENCE, float(p), of=chosen) for n, p in enumerate(peaks[9:])
        ]
        shifts = estimate_study_drift(State(trials=(*opening, *later))).shifts
        marked_down.append(shifts[0].log_mean - shifts[12].log_mean)
    assert abs(np.mean(marked_down)) < 0.015
