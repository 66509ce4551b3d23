"""Tests of the decision which changes of a winner are reverted before the proof."""

from __future__ import annotations

from dataclasses import replace

import pytest
from optuna.storages import InMemoryStorage

from autotune.environments.peak import Peak
from autotune.optimize.searcher import Searcher
from autotune.space.space import SearchSpace
from autotune.study.search_history import catch_up_search
from autotune.study.simplification import select_next_block
from autotune.study.study_drift import estimate_study_drift
from autotune.study.study_state import Phase, State, Trial
from autotune.study.winner_changes import Simplification
from bench import stacks
from tests.study.ranked import build_searched_study

WINNER = 12


@pytest.fixture(name="space")
def build_space() -> SearchSpace:
    return SearchSpace(tuple(stacks.number(f"t.s.{name}", 1, 9, 1) for name in "abc"), (), {})


def add_measurement(state: State, peak: float, sd: float, verdict: str = "measured") -> State:
    """Add a measurement of the block in the record."""
    assert state.simplification is not None
    block = Trial(
        len(state.trials),
        Phase.SIMPLIFIED,
        state.simplification.settings,
        WINNER,
        peak=Peak(peak, peak * (1 - 2 * sd), peak * (1 + 2 * sd), sd, verdict),
    )
    return replace(state, trials=(*state.trials, block))


def simplify(state: State, space: SearchSpace) -> State:
    searcher = Searcher(InMemoryStorage(), "s", space, "tpe", 1)
    catch_up_search(searcher, state)
    surrogate = searcher.fit_surrogate(estimate_study_drift(state))
    return replace(state, simplification=select_next_block(state, surrogate, space, WINNER))


def get_record(state: State) -> Simplification:
    assert state.simplification is not None
    return state.simplification


# The winner sustains 1300 requests/s.
@pytest.mark.parametrize(
    ("measurements", "is_accepted"),
    [
        ([(1300.0, 0.03)], True),
        ([(1250.0, 0.05)], True),
        # One measurement does not exclude a large loss, and the second one shows it.
        ([(1190.0, 0.2), (650.0, 0.05)], False),
        ([(1190.0, 0.2), (1300.0, 0.03)], True),
        ([(1190.0, 0.2), (1190.0, 0.2)], False),  # still not excluded
        # A clear loss needs no second measurement.
        ([(650.0, 0.03)], False),
    ],
)
def test_a_block_is_measured_again_if_a_large_loss_is_not_excluded(
    measurements: list[tuple[float, float]], is_accepted: bool, space: SearchSpace
) -> None:
    state = simplify(build_searched_study(space), space)
    block = get_record(state)
    assert set(block.reverted) == {"t.s.b", "t.s.c"}
    for measured_count, (peak, sd) in enumerate(measurements, 1):
        state = simplify(add_measurement(state, peak, sd), space)
        record = get_record(state)
        assert record.measured == measured_count
        is_repeated = measured_count < len(measurements)
        assert (record == replace(block, measured=measured_count)) is is_repeated
    if is_accepted:
        assert (record.accepted, record.without) == (state.trials[-1].number, block.reverted)
    else:
        assert (record.accepted, record.refused) == (None, (block.reverted,))


@pytest.mark.parametrize(("peak", "verdict"), [(1190.0, "screened"), (1290.0, "unmet")])
def test_a_measurement_without_a_capacity_is_not_repeated(
    peak: float, verdict: str, space: SearchSpace
) -> None:
    state = simplify(build_searched_study(space), space)
    block = get_record(state)
    state = simplify(add_measurement(state, peak, 0.1, verdict), space)
    assert get_record(state).refused == (block.reverted,)


def test_a_valid_measurement_is_not_lost_by_a_failed_repeat(space: SearchSpace) -> None:
    state = simplify(build_searched_study(space), space)
    block = get_record(state)
    state = simplify(add_measurement(state, 1190.0, 0.2), space)
    failed = Trial(
        len(state.trials), Phase.SIMPLIFIED, block.settings, WINNER, failure="-", is_fault=True
    )
    state = simplify(replace(state, trials=(*state.trials, failed)), space)
    assert get_record(state).refused == (block.reverted,)
