"""A whole study whose winner is confirmed without what does nothing."""

from __future__ import annotations

import pytest

from autotune.study.ranking import leader
from autotune.study.records import Phase
from bench.changes import changes
from bench.search import SEEN, Case, Probes
from bench.studies import SECONDS, study

pytestmark = pytest.mark.long


def test_what_is_confirmed_is_the_winner_less_what_measurements_showed_to_do_nothing() -> None:
    case = Case("catalogue", "local/even", 11, SEEN)
    done = study(case.stack, trials=30, seed=11, time=30 * SECONDS, probes=Probes(case))
    state, number = done.state, leader(done.state)
    assert number is not None
    winner, best = state.by_number(number), state.by_number(done.verdict.best or 0)
    assert (best.phase, best.of) == (Phase.SIMPLIFIED, number)
    simple, baseline = state.simplified or {}, case.stack.space.baseline
    assert simple["accepted"] == best.number
    assert simple["without"]
    for name, value in best.settings.items():
        assert value == (baseline if name in simple["without"] else winner.settings)[name]
    assert len(changes(case.stack, best.settings)) < len(changes(case.stack, winner.settings))
    assert {trial.of for trial in state.finished(Phase.CONFIRM)} == {0, best.number}
    # Time for them, and for the proof, was kept.
    assert len(state.finished(Phase.CONFIRM)) >= 6
