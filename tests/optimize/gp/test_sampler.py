from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import optuna
from spaces import DIMENSIONS, SPACE

from autotune.optimize.gp.grid import Grid, distinct
from autotune.optimize.gp.sampler import (
    FAILURES,
    LEAST_CHANGES,
    MOST_CHANGES,
    STRIDE,
    Region,
    distances,
    mutations,
    nearby,
    plausible,
    reach,
    restarts,
    scattered,
    tier_blocks,
)
from autotune.optimize.gp.surrogate import MOVES
from autotune.optimize.searcher import Outcome, Searcher
from autotune.services.base import Action, Effect, Settings
from autotune.space.dimension import PRESETS
from autotune.space.space import Space

GRID = Grid.of(SPACE.tunable, SPACE.baseline)
NAMES = [axis.dimension.name for axis in GRID.axes]
ADVISED: Settings = {"web.x.children": 40}


def asked_after(*told: tuple[Settings, float, str]) -> list[set[str]]:
    """What the next four suggestions change, each of the nearest of those measured."""
    search = Searcher(optuna.storages.InMemoryStorage(), "s", SPACE, "gp", 1, 30)
    known = [{**SPACE.baseline, **settings} for settings, _, _ in told]
    for number, (settings, peak, moves) in enumerate(told):
        notes = {"trial": number, "phase": "recommended", MOVES: moves}
        search.record(None, {**SPACE.baseline, **settings}, Outcome(peak, notes))
    changes = []
    for number in range(len(told), len(told) + 4):
        asked = search.ask()
        settings = {**SPACE.baseline, **asked.values}
        search.record(asked.number, settings, Outcome(900.0, {"trial": number, "phase": "search"}))
        changes.append(min(({n for n in NAMES if settings[n] != k[n]} for k in known), key=len))
        known.append(settings)
    return changes


def test_what_was_advised_for_a_leader_is_tried() -> None:
    changes = asked_after(({}, 1000.0, ""), (ADVISED, 1100.0, "web.x.threads+ web.x.none+"))
    assert {"web.x.threads"} in changes


def test_no_suggestion_changes_more_than_a_few_parameters() -> None:
    assert all(
        len(names) <= MOST_CHANGES for names in asked_after(({}, 1000.0, ""), (ADVISED, 1100.0, ""))
    )


def test_no_number_moves_further_than_a_stride_from_the_leader_it_is_near() -> None:
    leaders = GRID.encode_all([{"web.x.children": 40}, {"web.x.children": 7, "os.x.flag": True}])
    rng = np.random.default_rng(1)
    far = np.vstack([scattered(GRID, leaders[[row]], 300, 2, rng) for row in (0, 1)])
    near = nearby(GRID, far, leaders)
    ordered = np.array([axis.ordered for axis in GRID.axes])
    stride = np.maximum(1, np.rint(STRIDE * (GRID.sizes - 1)))
    moved = np.abs(near[:, None, :] - leaders[None, :, :])[:, :, ordered]
    assert (moved <= stride[ordered]).all(axis=2).any(axis=1).all()
    assert (moved == stride[ordered]).any()
    assert (near[:, ~ordered] == far[:, ~ordered]).all()
    assert (nearby(GRID, near, leaders) == near).all()


def test_advice_for_what_is_far_behind_is_left_alone() -> None:
    mean, sd = np.array([-1.2, 0.0, -0.05, -0.4]), np.full(4, 0.04)
    assert list(plausible(mean, sd)) == [1, 2]


def test_what_is_measured_again_counts_once() -> None:
    points = np.array([[3, 1], [0, 2], [3, 1], [3, 1], [0, 0], [0, 2]])
    assert list(distinct(points)) == [0, 1, 4]


def test_failures_narrow_the_search_and_a_success_widens_it() -> None:
    worse = [-0.2] * FAILURES
    assert reach(np.array([0.0])) == MOST_CHANGES
    assert reach(np.array([0.0, *worse])) == MOST_CHANGES // 2
    assert reach(np.array([0.0, *worse, *worse, *worse])) == LEAST_CHANGES
    assert reach(np.array([0.0, *worse, *worse, 0.3])) == 2 * LEAST_CHANGES


def test_what_follows_from_another_choice_is_no_change_of_its_own() -> None:
    points = GRID.encode_all([{"lb.x.service": "apache"}, {"lb.x.keepalive": 9}, {}])
    leaders = GRID.encode_all([{"lb.x.keepalive": 40}])
    assert distances(GRID, points, leaders).ravel().tolist() == [1, 1, 1]


def test_a_tier_is_taken_over_as_it_is() -> None:
    leader, other = (
        {"web.x.children": 40},
        {"web.x.children": 7, "web.x.threads": 3, "os.x.flag": True},
    )
    leaders, others = (GRID.encode_all([settings]) for settings in (leader, other))
    blocks = [GRID.decode(point) for point in tier_blocks(GRID, leaders, others)]
    changed = [{n: v for n, v in b.items() if v != GRID.decode(leaders[0])[n]} for b in blocks]
    assert changed == [{"os.x.flag": True}, {"web.x.children": 7, "web.x.threads": 3}]


def small(name: str) -> Space:
    """The space with one parameter that is not known to matter, and one with a safe range."""
    dimensions = tuple(
        replace(d, parameter=replace(d.parameter, effect=Effect.SMALL)) if d.name == name
        else replace(d, safe=(10, 100)) if d.name == "web.x.children"
        else d
        for d in DIMENSIONS
    )  # fmt: skip
    return Space(dimensions, (), {})


def test_the_search_begins_with_what_matters_and_where_it_is_safe() -> None:
    space = small("cache.x.growth")
    grid = Grid.of(space.tunable, space.baseline)
    growth, children = NAMES.index("cache.x.growth"), NAMES.index("web.x.children")
    leaders = grid.encode_all([{"web.x.children": 50}])
    rng = np.random.default_rng(1)
    core, whole = Region.core(grid, space), Region.core(grid, replace(space, core_first=False))
    for region, inside in ((core, True), (whole, False)):
        points = np.vstack([
            mutations(grid, leaders, 300, rng, region=region),
            scattered(grid, leaders, 300, 3, rng, region),
        ])  # fmt: skip
        assert (points[:, growth] == leaders[0, growth]).all() == inside
        values = [int(grid.decode(point)["web.x.children"]) for point in points]
        assert (min(values) >= 9 and max(values) <= 104) == inside
    assert whole.covers(grid)
    assert not core.covers(grid)
    assert not replace(whole, high=whole.high - (grid.sizes > 2)).covers(grid)
    assert children in core.axes
    assert space.core == tuple(d for d in space.tunable if d.name != "cache.x.growth")


def near_preset(outcome: Outcome) -> list[Settings]:
    """What four test beds are to measure while one configuration is known and the presets are not."""
    search = Searcher(optuna.storages.InMemoryStorage(), "s", SPACE, "gp", 1, 30, several=True)
    search.record(None, SPACE.baseline, outcome)
    return [search.ask().values for _ in range(4)]


def test_test_beds_wait_for_no_preset_and_try_what_is_near_one() -> None:
    each = [SPACE.preset(kind, SPACE.deployments[0]) for kind in PRESETS]
    presets = [preset for preset in each if preset != SPACE.baseline]
    assert presets

    def changes(values: Settings, preset: Settings) -> int:
        return sum(values[name] != preset[name] for name in NAMES)

    suggestions = near_preset(Outcome(900.0, {"trial": 0, "phase": "baseline"}))
    for values in suggestions:
        assert 1 <= min(changes(values, preset) for preset in presets) <= LEAST_CHANGES
    assert all(a != b for a, b in pairwise(suggestions))


def test_they_look_elsewhere_once_a_configuration_has_failed() -> None:
    preset = SPACE.preset("recommended", SPACE.deployments[0])
    suggestions = near_preset(Outcome(None, {"trial": 0, "phase": "baseline"}))
    assert any(
        sum(values[name] != preset[name] for name in NAMES) > LEAST_CHANGES
        for values in suggestions
    )


COSTLY = ("lb.x.keepalive", "lb.x.service", "cache.x.growth")
RESTARTING = Space(
    tuple(
        replace(d, parameter=replace(d.parameter, action=Action.RESTART)) if d.name in COSTLY else d
        for d in DIMENSIONS
    ),
    (),
    {},
)
RESTARTING_GRID = Grid.of(RESTARTING.tunable, RESTARTING.baseline)


def test_a_service_is_restarted_once_and_reloads_cost_nothing() -> None:
    changes = [
        {},
        {"web.x.children": 90},
        {"lb.x.keepalive": 90, "lb.x.service": "apache"},
        {"lb.x.keepalive": 90, "cache.x.growth": 2.0},
    ]
    assert list(
        restarts(RESTARTING_GRID, RESTARTING_GRID.encode({}), RESTARTING_GRID.encode_all(changes))
    ) == [0, 0, 1, 2]


def test_kernel_values_of_a_tier_are_one_service_whatever_dots_their_names_have() -> None:
    names = ("web.sysctl.net.core.somaxconn", "web.sysctl.net.ipv4.tcp_max_syn_backlog")
    (costly, _) = (d for d in RESTARTING.tunable if d.name in COSTLY and not d.choices)
    dimensions = tuple(replace(costly, name=name) for name in names)
    grid = Grid.of(dimensions, dict.fromkeys(names, costly.baseline))
    before = grid.encode(dict.fromkeys(names, costly.baseline))
    after = np.array([[0, 0], [len(axis.values) - 1 for axis in grid.axes]])
    assert max(restarts(grid, before, after)) == 1
