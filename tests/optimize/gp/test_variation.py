from __future__ import annotations

from dataclasses import replace

import numpy as np
from spaces import DIMENSIONS, SPACE

from autotune.optimize.gp.grid import ParameterGrid
from autotune.optimize.gp.variation import (
    MAX_STRIDE,
    SearchRegion,
    clip_to_stride,
    count_changes,
    mutate_points,
    scatter_leaders,
    swap_tiers,
)
from autotune.services.base import Effect
from autotune.space.space import SearchSpace

GRID = ParameterGrid.from_dimensions(SPACE.tunable_dimensions, SPACE.baseline)
NAMES = [axis.dimension.name for axis in GRID.axes]


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
