from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import optuna
import pytest
from spaces import DIMENSIONS, SPACE, dimension

from autotune.optimize.gp.grid import ParameterGrid
from autotune.optimize.gp.proposal import MAX_CHANGES, MIN_CHANGES
from autotune.optimize.gp.surrogate import CHANGES_KEY
from autotune.optimize.searcher import Outcome, Searcher
from autotune.services.base import Effect, Settings, Value
from autotune.space.dimension import PRESET_NAMES, Dimension
from autotune.space.expression import parse_comparison
from autotune.space.rules import Rule
from autotune.space.space import SearchSpace

GRID = ParameterGrid.from_dimensions(SPACE.tunable_dimensions, SPACE.baseline)
NAMES = [axis.dimension.name for axis in GRID.axes]
ADVISED: Settings = {"web.x.children": 40}


def asked_after(*told: tuple[Settings, float, str]) -> list[set[str]]:
    """What the next four suggestions change, each of the nearest of those measured."""
    search = Searcher(optuna.storages.InMemoryStorage(), "s", SPACE, "gp", 1, 30)
    known = [{**SPACE.baseline, **settings} for settings, _, _ in told]
    for number, (settings, peak, moves) in enumerate(told):
        notes = {"trial": number, "phase": "recommended", CHANGES_KEY: moves}
        search.record_outcome(None, {**SPACE.baseline, **settings}, Outcome(peak, notes))
    changes = []
    for number in range(len(told), len(told) + 4):
        asked = search.suggest()
        settings = {**SPACE.baseline, **asked.values}
        search.record_outcome(
            asked.number, settings, Outcome(900.0, {"trial": number, "phase": "search"})
        )
        changes.append(min(({n for n in NAMES if settings[n] != k[n]} for k in known), key=len))
        known.append(settings)
    return changes


def test_what_was_advised_for_a_leader_is_tried() -> None:
    changes = asked_after(({}, 1000.0, ""), (ADVISED, 1100.0, "web.x.threads+ web.x.none+"))
    assert {"web.x.threads"} in changes


def test_no_suggestion_changes_more_than_a_few_parameters() -> None:
    assert all(
        len(names) <= MAX_CHANGES for names in asked_after(({}, 1000.0, ""), (ADVISED, 1100.0, ""))
    )


FEW = SearchSpace(
    tuple(replace(d, conditions=()) for d in DIMENSIONS if d.choices or d.name == "web.x.threads"),
    (),
    {},
)


def minor(of: Dimension) -> Dimension:
    return replace(of, parameter=replace(of.parameter, effect=Effect.SMALL))


def test_tried_points_of_a_small_core_are_not_suggested_again() -> None:
    """All configurations of the core's two flags are measured, but the space has many more."""
    flags = ("lb.x.a", "lb.x.b")
    core = tuple(dimension(name, baseline=False, choices=(False, True)) for name in flags)
    rest = tuple(
        minor(dimension(f"web.x.p{index}", baseline=1, low=1, high=100)) for index in range(3)
    )
    space = SearchSpace((*core, *rest), (), {})
    assert space.searches_core_first
    search = Searcher(optuna.storages.InMemoryStorage(), "s", space, "gp", 1, 12)
    tried: list[dict[str, Value]] = []
    for number in range(12):
        if number < 4:
            asked, settings = (
                None,
                {**space.baseline, flags[0]: number > 1, flags[1]: number % 2 > 0},
            )
        else:
            suggestion = search.suggest()
            asked, settings = suggestion.number, dict(suggestion.values)
        assert settings not in tried
        tried.append(settings)
        phase = "recommended" if number < 4 else "search"
        search.record_outcome(
            asked, settings, Outcome(900.0 + number, {"trial": number, "phase": phase})
        )


@pytest.mark.parametrize("has_several_beds", [False, True])
def test_a_small_space_is_tried_once_and_the_search_is_over(has_several_beds: bool) -> None:
    search = Searcher(
        optuna.storages.InMemoryStorage(), "s", FEW, "gp", 1, 40, has_several_beds=has_several_beds
    )
    count = 2 * 4 * 2
    tried = [dict(FEW.baseline)]
    search.record_outcome(None, tried[0], Outcome(900.0, {"trial": 0, "phase": "baseline"}))
    for number in range(1, count):
        asked = search.suggest()
        assert asked.improvement_probability is None
        assert asked.values not in tried
        tried.append(dict(asked.values))
        peak = None if asked.values["web.x.threads"] == 4 else 900.0 + 10.0 * (number % 3)
        notes: dict[str, str | float | int] = {"trial": number, "phase": "search"}
        search.record_outcome(asked.number, asked.values, Outcome(peak, notes))
    assert search.suggest().improvement_probability == 0.0


def test_what_is_measured_elsewhere_counts_as_tried_in_a_small_space() -> None:
    search = Searcher(optuna.storages.InMemoryStorage(), "s", FEW, "gp", 1, 40)
    search.record_outcome(None, FEW.baseline, Outcome(900.0, {"trial": 0, "phase": "baseline"}))
    pending = [dict(search.suggest().values) for _ in range(15)]
    assert all(pending.count(values) == 1 for values in pending)
    assert search.suggest().improvement_probability == 0.0


CHOICES = tuple(
    dimension(f"t.x.{name}", baseline=1, choices=(1, 2, 4, 8, 16, 32)) for name in "abcd"
)
PRODUCT = "t.x.a * t.x.b * t.x.c * t.x.d <= 16"
TIGHT = SearchSpace(CHOICES, (Rule(PRODUCT, parse_comparison(PRODUCT)),), {})


@pytest.mark.parametrize("has_several_beds", [False, True])
def test_choices_that_a_rule_forbids_are_not_suggested(has_several_beds: bool) -> None:
    """A repair cannot change choices, and the rule allows 70 of 1296 configurations."""
    search = Searcher(
        optuna.storages.InMemoryStorage(),
        "s",
        TIGHT,
        "gp",
        1,
        30,
        has_several_beds=has_several_beds,
    )
    tried = [dict(TIGHT.baseline)]
    search.record_outcome(None, tried[0], Outcome(400.0, {"trial": 0, "phase": "baseline"}))
    for number in range(1, 20):
        asked = search.suggest()
        assert all(TIGHT.is_kept(rule, asked.values) for rule in TIGHT.constraints)
        assert asked.values not in tried
        tried.append(dict(asked.values))
        peak = 100.0 * sum(float(value) for value in asked.values.values())
        notes: dict[str, str | float | int] = {"trial": number, "phase": "search"}
        search.record_outcome(asked.number, asked.values, Outcome(peak, notes))


def near_preset(outcome: Outcome) -> list[Settings]:
    """What four test beds are to measure while one configuration is known and the presets are not."""
    search = Searcher(
        optuna.storages.InMemoryStorage(), "s", SPACE, "gp", 1, 30, has_several_beds=True
    )
    search.record_outcome(None, SPACE.baseline, outcome)
    return [search.suggest().values for _ in range(4)]


def test_test_beds_wait_for_no_preset_and_try_what_is_near_one() -> None:
    each = [SPACE.preset_settings(kind, SPACE.deployments[0]) for kind in PRESET_NAMES]
    presets = [preset for preset in each if preset != SPACE.baseline]
    assert presets

    def changes(values: Settings, preset: Settings) -> int:
        return sum(values[name] != preset[name] for name in NAMES)

    suggestions = near_preset(Outcome(900.0, {"trial": 0, "phase": "baseline"}))
    for values in suggestions:
        assert 1 <= min(changes(values, preset) for preset in presets) <= MIN_CHANGES
    assert all(a != b for a, b in pairwise(suggestions))


def test_they_look_elsewhere_once_a_configuration_has_failed() -> None:
    preset = SPACE.preset_settings("recommended", SPACE.deployments[0])
    suggestions = near_preset(Outcome(None, {"trial": 0, "phase": "baseline"}))
    assert any(
        sum(values[name] != preset[name] for name in NAMES) > MIN_CHANGES for values in suggestions
    )
