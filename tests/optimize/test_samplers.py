from __future__ import annotations

from dataclasses import replace
from math import exp

import numpy as np
import optuna
import pytest
from spaces import SPACE, many, peak

from autotune.errors import AutotuneError
from autotune.optimize import samplers
from autotune.optimize.base import SamplerTask
from autotune.optimize.samplers import SAMPLERS, SKOPT_SURROGATES, choose_sampler
from autotune.optimize.searcher import Outcome, Searcher
from autotune.services.base import Effect, Settings

pytestmark = pytest.mark.long

CORE = ("web.x.children", "cache.x.growth")
CORE_OF_TWO = replace(SPACE, constraints=(), dimensions=tuple(
    replace(d, parameter=replace(
        d.parameter, effect=Effect.CAPACITY if d.name in CORE else Effect.COSMETIC
    )) for d in SPACE.dimensions
))  # fmt: skip


def searcher(
    kind: str, seed: int = 1, storage: optuna.storages.BaseStorage | None = None
) -> Searcher:
    return Searcher(storage or optuna.storages.InMemoryStorage(), "s", SPACE, kind, seed, 30)


def told(number: int, settings: Settings, rng: np.random.Generator) -> Outcome:
    height = peak(settings)
    value = None if height is None else height * exp(rng.normal(0, 0.05))
    phase = "recommended" if settings == SPACE.preset_settings("recommended") else "search"
    return Outcome(value, {"trial": number, "sd": 0.05, "verdict": "measured", "phase": phase})


def searched(kind: str, trials: int, seed: int = 1) -> list[Settings]:
    """The configurations of a study, the baseline and the recommended one first."""
    search, rng = searcher(kind, seed), np.random.default_rng(seed)
    tried: list[Settings] = [SPACE.baseline, SPACE.preset_settings("recommended")]
    for number, settings in enumerate(tried):
        search.record_outcome(None, settings, told(number, settings, rng))
    while len(tried) < trials:
        asked = search.suggest()
        settings = SPACE.build_candidate(asked.values).settings
        search.record_outcome(asked.number, settings, told(len(tried), settings, rng))
        tried.append(settings)
    return tried


@pytest.mark.parametrize("kind", SAMPLERS)
def test_suggestions_are_in_the_space_and_the_same_for_the_same_seed(kind: str) -> None:
    tried = searched(kind, 10)
    for settings in tried:
        for d in SPACE.dimensions:
            assert d.clip(settings[d.name]) == settings[d.name]
            assert type(settings[d.name]) is type(d.baseline)
    assert tried == searched(kind, 10)
    assert tried != searched(kind, 10, seed=2)


@pytest.mark.parametrize("kind", ["gp", "skopt-gp", "skopt-et", "skopt-rf", "tpe"])
def test_a_new_process_continues_as_the_old_one_would_have(kind: str) -> None:
    """Whoever opens the storage gets a suggestion inside the space, with what was told before."""
    storage, rng = optuna.storages.InMemoryStorage(), np.random.default_rng(1)
    first = searcher(kind, storage=storage)
    for number in range(9):
        asked = first.suggest()
        first.record_outcome(
            asked.number, asked.values, told(number, {**SPACE.baseline, **asked.values}, rng)
        )
    again = searcher(kind, storage=storage).suggest()
    assert again.number == 9
    assert all(
        d.clip(again.values[d.name]) == again.values[d.name] for d in SPACE.tunable_dimensions
    )


@pytest.mark.parametrize("kind", ["random", "tpe"])
def test_a_resumed_search_does_not_repeat_its_suggestions(kind: str) -> None:
    storage, suggestions = optuna.storages.InMemoryStorage(), list[Settings]()
    for number in range(3):
        search = searcher(kind, storage=storage)
        asked = search.suggest()
        assert asked.values not in suggestions
        suggestions.append(asked.values)
        search.record_outcome(asked.number, asked.values, Outcome(100.0, {"trial": number}))


def test_the_model_keeps_every_rule_by_itself() -> None:
    search = searcher("gp")
    rng = np.random.default_rng(4)
    for number in range(14):
        asked = search.suggest()
        assert float(asked.values["web.x.children"]) * float(asked.values["web.x.threads"]) <= 270
        search.record_outcome(
            asked.number, asked.values, told(number, {**SPACE.baseline, **asked.values}, rng)
        )


def test_the_model_finds_the_top_within_thirty_trials() -> None:
    heights = [peak(settings) or 0.0 for settings in searched("gp", 30)]
    top = 1000 * exp(0.3 + 0.3 + 0.1 * np.log(513))
    assert max(heights) > 0.97 * top
    assert np.mean([height > 0.8 * top for height in heights[15:]]) > 0.6


@pytest.mark.parametrize("kind", ["gp", *SKOPT_SURROGATES])
def test_what_is_being_measured_elsewhere_is_not_suggested_again(kind: str) -> None:
    search, rng = searcher(kind), np.random.default_rng(1)
    for number, settings in enumerate((SPACE.baseline, SPACE.preset_settings("recommended"))):
        search.record_outcome(None, settings, told(number, settings, rng))
    asked = [tuple(search.suggest().values.items()) for _ in range(4)]
    assert len(set(asked)) == 4


def test_auto_says_what_it_chose_and_why() -> None:
    chosen = choose_sampler("auto", SamplerTask(SPACE, 30))
    assert chosen.name == "gp"
    assert "30 trials of 6 parameters" in chosen.reason
    assert choose_sampler("auto", SamplerTask(SPACE, 5000)).name == "tpe"
    assert (
        "30 trials of 6 parameters, 2 core parameters first"
        in choose_sampler("auto", SamplerTask(CORE_OF_TWO, 30)).reason
    )


@pytest.mark.parametrize("kind", [kind for kind in SAMPLERS if kind != "gp"])
def test_every_sampler_leaves_what_hardly_matters_as_the_best_has_it(kind: str) -> None:
    search = Searcher(optuna.storages.InMemoryStorage(), "s", CORE_OF_TWO, kind, 3, 40)
    leader = {**CORE_OF_TWO.baseline, "web.x.children": 40, "web.x.threads": 3, "os.x.flag": True}
    search.record_outcome(None, CORE_OF_TWO.baseline, Outcome(90.0, {"trial": 0}))
    search.record_outcome(None, leader, Outcome(100.0, {"trial": 1}))
    moved = set()
    for number in range(2, 14):
        asked = search.suggest()
        moved |= {name for name, value in asked.values.items() if value != leader[name]}
        search.record_outcome(asked.number, asked.values, Outcome(50.0, {"trial": number}))
    assert moved == set(CORE)


def test_hill_climbing_moves_up_to_four_parameters_of_the_best_so_far() -> None:
    space, rng = many(30), np.random.default_rng(2)
    search = Searcher(optuna.storages.InMemoryStorage(), "s", space, "hill-climb", 5, 40)
    search.record_outcome(None, space.baseline, Outcome(100.0, {"trial": 0}))
    leader, highest, counts = space.baseline, 100.0, set()
    for number in range(1, 40):
        asked = search.suggest()
        moved = {name for name, value in asked.values.items() if value != leader[name]}
        assert moved <= space.active_parameters(leader)
        counts.add(len(moved))
        height = float(rng.uniform(50, 150))
        search.record_outcome(asked.number, asked.values, Outcome(height, {"trial": number}))
        if height > highest:
            leader, highest = {**leader, **asked.values}, height
    assert counts == {1, 2, 3, 4}


def test_an_unknown_name_brings_the_nearest() -> None:
    with pytest.raises(AutotuneError) as caught:
        choose_sampler("skopt-gb", SamplerTask(SPACE))
    assert "skopt-gp" in (caught.value.hint or "")


def test_a_sampler_that_is_not_installed_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(samplers, "find_spec", lambda name: None)
    with pytest.raises(AutotuneError, match="scikit-optimize") as caught:
        choose_sampler("skopt-rf", SamplerTask(SPACE))
    assert "pipx inject autotune scikit-optimize" in (caught.value.hint or "")
    assert choose_sampler("auto", SamplerTask(SPACE)).name == "gp"


def test_searches_of_several_processes_draw_other_candidates() -> None:
    space = many(30)

    def suggested(*, apart: bool) -> Settings:
        search = Searcher(optuna.storages.InMemoryStorage(), "s", space, "gp", 1)
        for number, settings in enumerate((space.baseline, space.preset_settings("recommended"))):
            notes = {"trial": number, "phase": "recommended"}
            search.record_outcome(None, settings, Outcome(100.0 + number, notes))
        if apart:
            search.reseed_sampler()
        return search.suggest().values

    assert suggested(apart=False) == suggested(apart=False)
    assert suggested(apart=True) != suggested(apart=True)
