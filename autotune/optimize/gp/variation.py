"""Vary points of a grid: mutations, exchanged tiers and random points, within a region to search."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autotune.optimize.gp.grid import GridPoints, ParameterGrid
from autotune.optimize.gp.surrogate import Array
from autotune.parameter_name import ParameterName
from autotune.space.space import SearchSpace

# A suggestion changes a number by at most this share of its range. Predictions are most uncertain at the
# ends of ranges. Without this limit, most suggestions would be at these ends, where few configurations
# are good.
MAX_STRIDE = 0.25
DIRECTION_SIGNS, GUIDED_STEP = {"": 0, "+": 1, "-": -1}, 1 / 3


@dataclass(frozen=True)
class SearchRegion:
    """The axes of a grid that may be changed, and the lowest and highest level for each axis."""

    axes: npt.NDArray[np.intp]
    low: GridPoints
    high: GridPoints

    @classmethod
    def from_grid(cls, grid: ParameterGrid) -> SearchRegion:
        return cls(
            np.arange(len(grid.axes)), np.zeros_like(grid.level_counts), grid.level_counts - 1
        )

    @classmethod
    def from_core(cls, grid: ParameterGrid, space: SearchSpace) -> SearchRegion:
        """Return the region of the parameters known to matter, except levels that guides warn
        against.
        """
        if not space.searches_core_first:
            return cls.from_grid(grid)
        core_names = {dimension.name for dimension in space.core_dimensions}
        axes = [d for d, axis in enumerate(grid.axes) if axis.dimension.name in core_names]
        low_levels, high_levels = zip(*(axis.safe_levels for axis in grid.axes), strict=True)
        return cls(np.array(axes, np.intp), np.array(low_levels), np.array(high_levels))

    def is_whole(self, grid: ParameterGrid) -> bool:
        """True if the region contains all levels of every axis."""
        levels = self.high - self.low + 1
        return len(self.axes) == len(levels) and bool((levels == grid.level_counts).all())

    def draw_points(self, point_count: int, rng: np.random.Generator) -> GridPoints:
        """Return points whose levels are drawn uniformly from the region."""
        level_counts = self.high - self.low + 1
        return self.low + (rng.random((point_count, len(level_counts))) * level_counts).astype(
            np.intp
        )


def count_changes(
    grid: ParameterGrid, points: GridPoints, leaders: GridPoints
) -> npt.NDArray[np.intp]:
    """Return the number of parameters in which each point differs from each leader: ``[point, leader]``.

    A parameter does not count if the parameter that it depends on differs as well.
    """
    is_changed = points[:, None, :] != leaders[None, :, :]
    for child, parent, _ in grid.conditions:
        is_changed[:, :, child] &= ~is_changed[:, :, parent]
    return np.asarray(is_changed.sum(axis=2))


def clip_to_stride(grid: ParameterGrid, points: GridPoints, leaders: GridPoints) -> GridPoints:
    """Return ``points`` with each number at most ``MAX_STRIDE`` from its value in the nearest leader.

    If a choice changes, the parameters that depend on it get their values from the nearest leader.
    """
    leader = leaders[count_changes(grid, points, leaders).argmin(axis=1)]
    stride = np.maximum(1, np.rint(MAX_STRIDE * (grid.level_counts - 1))).astype(np.intp)
    is_ordered = np.array([axis.is_ordered for axis in grid.axes])
    clipped_points = np.where(is_ordered, np.clip(points, leader - stride, leader + stride), points)
    for child, parent, _ in grid.conditions:
        is_parent_changed = clipped_points[:, parent] != leader[:, parent]
        clipped_points[is_parent_changed, child] = leader[is_parent_changed, child]
    return clipped_points


def swap_tiers(grid: ParameterGrid, leaders: GridPoints, donor_points: GridPoints) -> GridPoints:
    """Return each leader with the settings of one tier taken from another configuration.

    Settings that are good for a tier in one configuration are often good in others.
    """
    tiers = np.array([ParameterName.parse(axis.dimension.name).tier for axis in grid.axes])
    point_groups = [leaders[:0]]
    for tier in np.unique(tiers):
        is_in_tier = tiers == tier
        for donor_levels in np.unique(donor_points[:, is_in_tier], axis=0):
            swapped_points = leaders.copy()
            swapped_points[:, is_in_tier] = donor_levels
            point_groups.append(swapped_points[(swapped_points != leaders).any(axis=1)])
    return np.vstack(point_groups)


def scatter_leaders(
    grid: ParameterGrid,
    leaders: GridPoints,
    copy_count: int,
    change_count: int,
    rng: np.random.Generator,
    region: SearchRegion | None = None,
) -> GridPoints:
    """Return ``copy_count`` copies of leaders, each with ``change_count`` parameters at random levels
    inside ``region``.
    """
    points = leaders[rng.integers(len(leaders), size=copy_count)]
    region = region or SearchRegion.from_grid(grid)
    draws = _draw_uniform(points, region, rng)
    thresholds = np.sort(draws, axis=1)[:, [min(change_count, len(region.axes)) - 1]]
    return np.where(draws <= thresholds, region.draw_points(copy_count, rng), points)


def _draw_uniform(points: GridPoints, region: SearchRegion, rng: np.random.Generator) -> Array:
    """Return a random number from 0 to 1 for each parameter inside the region, and 2 for all other
    parameters.
    """
    draws = np.full(points.shape, 2.0)
    draws[:, region.axes] = rng.random((len(points), len(region.axes)))
    return draws


def mutate_points(
    grid: ParameterGrid,
    parents: GridPoints,
    copy_count: int,
    rng: np.random.Generator,
    mean_change_count: float = 2.0,
    region: SearchRegion | None = None,
) -> GridPoints:
    """Return ``copy_count`` copies of parents, each with about ``mean_change_count`` mostly small
    changes inside ``region``.
    """
    points = parents[rng.integers(len(parents), size=copy_count)]
    region = region or SearchRegion.from_grid(grid)
    draws = _draw_uniform(points, region, rng)
    expected_changes = rng.choice([0.0, 0.5, 1.0, 1.5], size=(copy_count, 1)) * mean_change_count
    is_mutated = draws < expected_changes / len(region.axes)
    is_mutated[np.arange(copy_count), rng.choice(region.axes, size=copy_count)] = True
    level_counts = grid.level_counts
    step_scales = rng.choice([0.03, 0.1, 0.25, 0.5], size=points.shape)
    step = np.rint(rng.normal(size=points.shape) * step_scales * level_counts).astype(np.intp)
    step = np.where(step == 0, rng.choice([-1, 1], size=points.shape), step)
    # If guides recommend a direction, about two out of three steps take that direction.
    guided_signs = np.array(
        [DIRECTION_SIGNS[axis.dimension.parameter.direction] for axis in grid.axes]
    )
    is_guided = (guided_signs != 0) & (rng.random(points.shape) < GUIDED_STEP)
    step = np.where(is_guided, guided_signs * np.abs(step), step)
    # A value that is already outside the region may not move further outwards.
    moved_points = np.clip(
        points + step, np.minimum(region.low, points), np.maximum(region.high, points)
    )
    is_ordered = np.array([axis.is_ordered for axis in grid.axes])
    moved_points = np.where(
        is_ordered, moved_points, (rng.random(points.shape) * level_counts).astype(np.intp)
    )
    return np.where(is_mutated, moved_points, points)


def draw_latin_hypercube(
    grid: ParameterGrid, configuration_count: int, member_index: int, seed: int
) -> GridPoints:
    """Return member ``member_index`` of a Latin hypercube of ``configuration_count`` configurations."""
    rng = np.random.default_rng((seed, member_index // configuration_count))
    cell_numbers = np.array(
        [
            rng.permutation(configuration_count)[member_index % configuration_count]
            for _ in grid.axes
        ]
    )
    cell_offset = rng.random((configuration_count, len(grid.axes)))[
        member_index % configuration_count
    ]
    return np.asarray(
        (cell_numbers + cell_offset) / configuration_count * grid.level_counts
    ).astype(np.intp)
