"""Which configuration shows the drift, and when it is measured again."""

from __future__ import annotations

import pytest

from autotune.environments.peak import Peak
from autotune.space.space import Space
from autotune.study.ranking import reference
from autotune.study.records import Phase, State, Trial
from autotune.study.schedule import REFERENCE_EVERY, SCREENED_FOR_ONE, Ask, Measure, next_step
from autotune.target.model import Budget
from tests.space.targets import fleet

BUDGET = Budget.model_construct(trials=200, time=36_000.0)


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Space:
    return fleet(tmp_path_factory.mktemp("reference"), "")


def trial(
    number: int, phase: Phase, peak: float | None, verdict: str = "measured", of: int | None = None
) -> Trial:
    found = None if peak is None else Peak(peak, 0.9 * peak, 1.1 * peak, 0.05, verdict)
    return Trial(number, phase, {}, of=of, peak=found, failure=None if found else "out of luck")


def opened(space: Space) -> State:
    """A state in which only the search is left."""
    state = State(seconds={"load": 1.0})
    while isinstance(step := next_step(state, space, BUDGET, 1.0), Measure):
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
    chosen = reference(State(trials=tuple(trials)))
    assert (chosen.number if chosen else None) == expected


@pytest.mark.parametrize(
    ("verdict", "peak", "due"),
    [
        ("measured", 400.0, REFERENCE_EVERY),
        ("screened", 400.0, REFERENCE_EVERY * SCREENED_FOR_ONE),
        ("failed", None, REFERENCE_EVERY * SCREENED_FOR_ONE),
    ],
)
def test_it_is_due_after_so_many_trials_that_said_something(
    space: Space, verdict: str, peak: float | None, due: int
) -> None:
    state = opened(space)
    chosen = reference(state)
    assert chosen is not None
    # Those after the reference itself was measured count already.
    due -= len(state.trials) - 1 - chosen.number
    assert next_step(searched(state, due - 1, peak, verdict), space, BUDGET, 1.0) == Ask()
    step = next_step(searched(state, due, peak, verdict), space, BUDGET, 1.0)
    assert isinstance(step, Measure)
    assert (step.phase, step.of) == (Phase.REFERENCE, chosen.number)
