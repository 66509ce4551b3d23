from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import optuna
import pytest
from spaces import DIMENSIONS, SPACE, dimension

from autotune.optimize.gp.grid import ParameterGrid, find_distinct_indices
from autotune.optimize.gp.sampler import (
    FAILURES_TO_SHRINK,
    MAX_CHANGES,
    MAX_STRIDE,
    MIN_CHANGES,
    SearchRegion,
    choose_change_count,
    clip_to_stride,
    count_changes,
    count_restarts,
    list_recommended_points,
    mutate_points,
    scatter_leaders,
    select_plausible_rows,
    swap_tiers,
)
from autotune.optimize.gp.surrogate import CHANGES_KEY, TrialObservations
from autotune.optimize.searcher import Outcome, Searcher
from autotune.services.base import Action, Effect, Settings, Value
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


def test_no_number_moves_further_than_a_stride_from_the_leader_it_is_near() -> None:
    leaders = GRID.encode_all([{"web.x.children": 40}, {"web.x.children": 7, "os.x.flag": True}])
    rng = np.random.default_rng(1)
    far = np.vstack([scatter_leaders(GRID, leaders[[row]], 300, 2, rng) for row in (0, 1)])
    near = clip_to_stride(GRID, far, leaders)
    ordered = np.array([axis.is_ordered for axis in GRID.axes])
    stride = np.maximum(1, np.rint(MAX_STRIDE * (GRID.level_counts - 1)))
    moved = np.abs(near[:, None, :] - leaders[None, :, :])[:, :, ordered]
    assert (moved <= stride[ordered]).all(axis=2).any(axis=1).all()
    assert (moved == stride[ordered]).any()
    assert (near[:, ~ordered] == far[:, ~ordered]).all()
    assert (clip_to_stride(GRID, near, leaders) == near).all()


def test_another_choice_is_tried_with_usual_values_of_what_depends_on_it() -> None:
    leaders = GRID.encode_all([{"lb.x.service": "apache"}])
    far = GRID.encode_all([{"lb.x.service": "nginx", "lb.x.keepalive": 300}, {"web.x.threads": 2}])
    (chosen, other) = (GRID.decode(point) for point in clip_to_stride(GRID, far, leaders))
    assert (chosen["lb.x.service"], chosen["lb.x.keepalive"]) == ("nginx", 0)
    assert other["web.x.threads"] == 2


def test_a_move_recommended_before_for_another_bottleneck_is_a_candidate() -> None:
    points = GRID.encode_all([{}, ADVISED])
    none = np.empty((0, len(NAMES)), int)
    told = TrialObservations(
        points, np.array([7.0, 7.3]), np.full(2, 0.03), np.zeros(2, bool), none, none,
        (("web.x.threads+",), ("os.x.flag=True",)), suggested=(False, True),
    )  # fmt: skip

    def list_setting_changes(index: int, *, is_first: bool) -> dict[str, float]:
        return {
            NAMES[axis]: bonus
            for listed, bonus in list_recommended_points(
                GRID, told, index, is_first_leader=is_first
            )
            for axis in np.flatnonzero((listed != points[index]).any(axis=0))
        }

    bonuses = list_setting_changes(1, is_first=True)
    assert set(bonuses) == {"os.x.flag", "web.x.threads"}
    assert bonuses["os.x.flag"] > bonuses["web.x.threads"] > 0
    assert set(list_setting_changes(1, is_first=False)) == {"os.x.flag"}


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


def test_advice_for_what_is_far_behind_is_left_alone() -> None:
    mean, sd = np.array([-1.2, 0.0, -0.05, -0.4]), np.full(4, 0.04)
    assert list(select_plausible_rows(mean, sd)) == [1, 2]


def test_what_is_measured_again_counts_once() -> None:
    points = np.array([[3, 1], [0, 2], [3, 1], [3, 1], [0, 0], [0, 2]])
    assert list(find_distinct_indices(points)) == [0, 1, 4]


def test_failures_narrow_the_search_and_a_success_widens_it() -> None:
    worse = [-0.2] * FAILURES_TO_SHRINK
    assert choose_change_count(np.array([0.0])) == MAX_CHANGES
    assert choose_change_count(np.array([0.0, *worse])) == MAX_CHANGES // 2
    assert choose_change_count(np.array([0.0, *worse, *worse, *worse])) == MIN_CHANGES
    assert choose_change_count(np.array([0.0, *worse, *worse, 0.3])) == 2 * MIN_CHANGES


def test_what_follows_from_another_choice_is_no_change_of_its_own() -> None:
    points = GRID.encode_all([{"lb.x.service": "apache"}, {"lb.x.keepalive": 9}, {}])
    leaders = GRID.encode_all([{"lb.x.keepalive": 40}])
    assert count_changes(GRID, points, leaders).ravel().tolist() == [1, 1, 1]


def test_a_tier_is_taken_over_as_it_is() -> None:
    leader, other = (
        {"web.x.children": 40},
        {"web.x.children": 7, "web.x.threads": 3, "os.x.flag": True},
    )
    leaders, others = (GRID.encode_all([settings]) for settings in (leader, other))
    blocks = [GRID.decode(point) for point in swap_tiers(GRID, leaders, others)]
    changed = [{n: v for n, v in b.items() if v != GRID.decode(leaders[0])[n]} for b in blocks]
    assert changed == [{"os.x.flag": True}, {"web.x.children": 7, "web.x.threads": 3}]


def small(name: str) -> SearchSpace:
    """The space with one parameter that is not known to matter, and one with a safe range."""
    dimensions = tuple(
        replace(d, parameter=replace(d.parameter, effect=Effect.SMALL)) if d.name == name
        else replace(d, safe_range=(10, 100)) if d.name == "web.x.children"
        else d
        for d in DIMENSIONS
    )  # fmt: skip
    return SearchSpace(dimensions, (), {})


def test_the_search_begins_with_what_matters_and_where_it_is_safe() -> None:
    space = small("cache.x.growth")
    grid = ParameterGrid.from_dimensions(space.tunable_dimensions, space.baseline)
    growth, children = NAMES.index("cache.x.growth"), NAMES.index("web.x.children")
    leaders = grid.encode_all([{"web.x.children": 50}])
    rng = np.random.default_rng(1)
    core, whole = (
        SearchRegion.from_core(grid, space),
        SearchRegion.from_core(grid, replace(space, searches_core_first=False)),
    )
    for region, inside in ((core, True), (whole, False)):
        points = np.vstack([
            mutate_points(grid, leaders, 300, rng, region=region),
            scatter_leaders(grid, leaders, 300, 3, rng, region),
        ])  # fmt: skip
        assert (points[:, growth] == leaders[0, growth]).all() == inside
        values = [int(grid.decode(point)["web.x.children"]) for point in points]
        assert (min(values) >= 9 and max(values) <= 104) == inside
    assert whole.is_whole(grid)
    assert not core.is_whole(grid)
    assert not replace(whole, high=whole.high - (grid.level_counts > 2)).is_whole(grid)
    assert children in core.axes
    assert space.core_dimensions == tuple(
        d for d in space.tunable_dimensions if d.name != "cache.x.growth"
    )


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


COSTLY = ("lb.x.keepalive", "lb.x.service", "cache.x.growth")
RESTARTING = SearchSpace(
    tuple(
        replace(d, parameter=replace(d.parameter, action=Action.RESTART)) if d.name in COSTLY else d
        for d in DIMENSIONS
    ),
    (),
    {},
)
RESTARTING_GRID = ParameterGrid.from_dimensions(RESTARTING.tunable_dimensions, RESTARTING.baseline)


def test_a_service_is_restarted_once_and_reloads_cost_nothing() -> None:
    changes = [
        {},
        {"web.x.children": 90},
        {"lb.x.keepalive": 90, "lb.x.service": "apache"},
        {"lb.x.keepalive": 90, "cache.x.growth": 2.0},
    ]
    assert list(
        count_restarts(
            RESTARTING_GRID, RESTARTING_GRID.encode({}), RESTARTING_GRID.encode_all(changes)
        )
    ) == [0, 0, 1, 2]


def test_kernel_values_of_a_tier_are_one_service_whatever_dots_their_names_have() -> None:
    names = ("web.sysctl.net.core.somaxconn", "web.sysctl.net.ipv4.tcp_max_syn_backlog")
    (costly, _) = (d for d in RESTARTING.tunable_dimensions if d.name in COSTLY and not d.choices)
    dimensions = tuple(replace(costly, name=name) for name in names)
    grid = ParameterGrid.from_dimensions(dimensions, dict.fromkeys(names, costly.baseline))
    before = grid.encode(dict.fromkeys(names, costly.baseline))
    after = np.array([[0, 0], [len(axis.values) - 1 for axis in grid.axes]])
    assert max(count_restarts(grid, before, after)) == 1
