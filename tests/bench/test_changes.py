"""A whole study whose winner is confirmed without what does nothing, and which changes are needed."""

from __future__ import annotations

import pytest

from autotune.services.base import Settings
from autotune.space.space import SearchSpace
from autotune.study.ranking import find_leader
from autotune.study.study_state import Phase
from bench import stacks
from bench.changes import changes, needed
from bench.search import SEEN, Case, Probes
from bench.stacks import Stack
from bench.studies import SECONDS, study


def test_of_two_changes_that_stand_in_for_each_other_one_is_needed() -> None:
    space = SearchSpace(tuple(stacks.number(f"t.s.{name}", 1, 9, 1) for name in "abcd"), (), {})

    def peak(settings: Settings) -> float:
        either = settings["t.s.a"] == 9 or settings["t.s.b"] == 9
        return 100.0 * (2 if either else 1) * (3 if settings["t.s.c"] == 9 else 1)

    stack, settings = Stack("either", space, peak, frozenset()), dict.fromkeys(space.baseline, 9)
    alone = {"t.s.a": 0.0, "t.s.b": 0.0, "t.s.c": 1.1, "t.s.d": 0.0}
    assert needed(stack, settings, alone) == 2


@pytest.mark.long
def test_what_is_confirmed_is_the_winner_less_what_measurements_showed_to_do_nothing() -> None:
    case = Case("catalogue", "local/even", 12, SEEN)  # one that accepts a block
    done = study(case.stack, trials=30, seed=12, time=30 * SECONDS, probes=Probes(case))
    state, number = done.state, find_leader(done.state)
    assert number is not None
    winner, best = state.find_trial(number), state.find_trial(done.verdict.best or 0)
    assert (best.phase, best.source_trial) == (Phase.SIMPLIFIED, number)
    simple, baseline = state.simplification, case.stack.space.baseline
    assert simple is not None
    assert simple.accepted == best.number
    assert simple.without
    for name, value in best.settings.items():
        assert value == (baseline if name in simple.without else winner.settings)[name]
    assert len(changes(case.stack, best.settings)) < len(changes(case.stack, winner.settings))
    assert {trial.source_trial for trial in state.list_finished_trials(Phase.CONFIRM)} == {
        0,
        best.number,
    }
    # Time for them, and for the proof, was kept.
    assert len(state.list_finished_trials(Phase.CONFIRM)) >= 6
