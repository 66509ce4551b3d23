from __future__ import annotations

from dataclasses import replace

import pytest
from optuna.storages import InMemoryStorage

from autotune.optimize.searcher import Searcher
from autotune.space.space import SearchSpace
from autotune.study.search_history import catch_up_search, record_trial_outcome, sync_search
from autotune.study.study_state import Phase, State, Trial
from bench import stacks
from tests.study.test_opening import PEAK

NAME = "t.s.a"


def open_search(sampler: str, highest: int) -> Searcher:
    space = SearchSpace((stacks.number(NAME, 1, highest, 1),), (), {})
    return Searcher(InMemoryStorage(), "s", space, sampler, 1)


def read_modelled(searcher: Searcher) -> list[float]:
    """The values of the parameter that the model is fitted to."""
    surrogate = searcher.fit_surrogate()
    return [float(surrogate.grid.decode(p)[NAME]) for p in surrogate.observations.points]


@pytest.mark.parametrize("sampler", ["gp", "tpe", "random", "hill-climb"])
def test_the_search_learns_of_the_value_that_a_rule_allowed(sampler: str) -> None:
    searcher = open_search(sampler, 9)
    for number, allowed in enumerate((5, 2)):
        asked = searcher.suggest()
        trial = Trial(
            number, Phase.SEARCH, {NAME: allowed}, suggestion_number=asked.number,
            suggested=dict(asked.values), peak=PEAK,
        )  # fmt: skip
        record_trial_outcome(searcher, trial, State(trials=(trial,)))
    assert read_modelled(searcher) == [5, 2]


def test_a_worker_learns_which_value_another_worker_measures() -> None:
    baseline = Trial(0, Phase.BASELINE, {NAME: 1}, bed="a", peak=PEAK)
    running = Trial(1, Phase.SEARCH, {NAME: 5}, suggested={NAME: 9}, bed="b")
    searcher = open_search("gp", 9)
    sync_search(searcher, State(trials=(baseline, running), beds=("a", "b"), is_shared=True))
    surrogate = searcher.fit_surrogate()
    (pending,) = surrogate.observations.pending_points
    assert surrogate.grid.decode(pending) == {NAME: 5}


def test_an_interrupted_trial_is_not_suggested_to_another_bed() -> None:
    """Its bed repeats it, so all values are measured or under way after the study is resumed."""
    baseline = Trial(0, Phase.BASELINE, {NAME: 1}, bed="a", peak=PEAK)
    searcher = open_search("gp", 2)
    record_trial_outcome(searcher, baseline, State(trials=(baseline,)))
    asked = searcher.suggest()
    searcher.suggest()  # was not recorded before the kill
    assert asked.values == {NAME: 2}
    interrupted = Trial(
        1, Phase.SEARCH, {NAME: 2}, bed="b", suggestion_number=asked.number, suggested=asked.values
    )
    state = State(trials=(baseline, interrupted), beds=("a", "b"))
    catch_up_search(searcher, state)
    assert searcher.fit_surrogate().observations.pending_points.tolist() == [[1]]
    assert searcher.suggest().improvement_probability == 0.0
    repeat = replace(interrupted, number=2, peak=PEAK)
    record_trial_outcome(searcher, repeat, replace(state, trials=(*state.trials, repeat)))
    assert sorted(read_modelled(searcher)) == [1, 2]
