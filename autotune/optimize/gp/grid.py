"""The search space as a grid: each parameter in about a hundred steps on its own scale.

A configuration is encoded as a point: one level number per parameter. On a grid, the covariance of one
parameter is a small table (`compute_axis_covariance`). A model therefore looks up covariances instead of
computing exponentials. Inactive parameters are set to their baseline levels, so that they cannot
mislead the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.services.base import Settings, Value
from autotune.space.dimension import Dimension

GridPoints = npt.NDArray[np.intp]  # a point, or an array with one point per row

MAX_LEVELS = 101


@dataclass(frozen=True)
class GridAxis:
    """One parameter, with the value and the position (0 to 1) of each level; choices have no order."""

    dimension: Dimension
    values: tuple[Value, ...]
    unit_positions: npt.NDArray[np.float64]

    @classmethod
    def from_dimension(cls, dimension: Dimension) -> GridAxis:
        if dimension.choices:
            level_count = len(dimension.choices)
            return cls(dimension, dimension.choices, np.arange(level_count, dtype=float))
        assert dimension.low is not None
        assert dimension.high is not None
        if _has_integer_levels(dimension):
            integers = range(int(dimension.low), int(dimension.high) + 1)
            integer_positions = np.array(
                [compute_unit_position(dimension, integer) for integer in integers]
            )
            return cls(dimension, tuple(integers), integer_positions)
        unit_positions = np.linspace(0.0, 1.0, MAX_LEVELS)
        level_values = [
            compute_value_at_position(dimension, unit_position) for unit_position in unit_positions
        ]
        # Preset values are not rounded to a level. Rounding would change settings that a suggestion
        # keeps, and restart services unnecessarily.
        for preset in (
            dimension.published,
            dimension.advised,
            dimension.recommended,
            dimension.baseline,
        ):
            if preset is not None and dimension.clip(preset) == preset:
                level_values[round(compute_unit_position(dimension, preset) * (MAX_LEVELS - 1))] = (
                    preset
                )
        return cls(dimension, tuple(level_values), unit_positions)

    @property
    def safe_levels(self) -> tuple[int, int]:
        """Return the lowest and the highest level that tuning guides do not warn against."""
        last_level = len(self.values) - 1
        bounds = self.dimension.safe_range
        if bounds is None or not self.is_ordered:
            return 0, last_level
        low_level, high_level = (self.find_level(bound) for bound in bounds)
        return (low_level, high_level) if low_level < high_level else (0, last_level)

    @property
    def is_ordered(self) -> bool:
        return not self.dimension.choices

    def is_special(self, level: int) -> bool:
        """True if the value of a level has a special meaning, such as 0 for no limit. Such a value is not
        part of the order of the other values.
        """
        return self.values[level] in self.dimension.parameter.special_values

    def find_level(self, value: Value) -> int:
        """Return the level nearest to ``value``."""
        clipped_value = self.dimension.clip(value)
        if not self.is_ordered:
            return self.values.index(clipped_value)
        if _has_integer_levels(self.dimension):
            return int(clipped_value) - int(self.dimension.low or 0)
        return round(compute_unit_position(self.dimension, clipped_value) * (len(self.values) - 1))


def _has_integer_levels(dimension: Dimension) -> bool:
    """True if each integer of the range is one level."""
    return (
        dimension.is_integer and float(dimension.high or 0) - float(dimension.low or 0) < MAX_LEVELS
    )


def compute_unit_position(dimension: Dimension, value: Value) -> float:
    """Return the position of a number in its range, 0 to 1. A logarithmic range that starts at 0 is
    shifted to start at 1.
    """
    low, high_bound = float(dimension.low or 0), float(dimension.high or 0)
    if not dimension.is_logarithmic:
        return (float(value) - low) / (high_bound - low)
    shift = _compute_log_shift(low)
    return log((float(value) + shift) / (low + shift)) / log((high_bound + shift) / (low + shift))


def compute_value_at_position(dimension: Dimension, unit_position: float) -> Value:
    """Return the value at a position in the range of ``dimension``, as the inverse of
    `compute_unit_position`.
    """
    low_bound, high_bound = float(dimension.low or 0), float(dimension.high or 0)
    if not dimension.is_logarithmic:
        return dimension.clip(low_bound + unit_position * (high_bound - low_bound))
    shift = _compute_log_shift(low_bound)
    shifted_log_ratio = log((high_bound + shift) / (low_bound + shift))
    return dimension.clip((low_bound + shift) * exp(unit_position * shifted_log_ratio) - shift)


def _compute_log_shift(low_bound: float) -> float:
    return 0.0 if low_bound > 0 else 1.0 - low_bound


@dataclass(frozen=True)
class ParameterGrid:
    """The tunable parameters, each as an axis of levels.

    Each of ``conditions`` contains a child axis, its parent axis, and a mask of the parent's levels at
    which the child is active. ``baseline`` is a point. ``get_effective_settings`` replaces values that
    have the same effect as the baseline value by the baseline value. Configurations with the same
    effect then have the same point.
    """

    axes: tuple[GridAxis, ...]
    conditions: tuple[tuple[int, int, npt.NDArray[np.bool_]], ...]
    baseline: GridPoints
    get_effective_settings: Callable[[Settings], Settings] | None = None
    # Cached points by configuration, because each suggestion encodes all earlier configurations.
    _encoding_cache: dict[tuple[Any, ...], GridPoints] = field(
        default_factory=dict, repr=False, compare=False
    )
    # Cached levels by axis and value, because repaired candidates have most values in common.
    _level_cache: dict[tuple[int, Value], int] = field(
        default_factory=dict, repr=False, compare=False
    )

    @classmethod
    def from_dimensions(
        cls,
        dimensions: Sequence[Dimension],
        baseline: Settings,
        get_effective_settings: Callable[[Settings], Settings] | None = None,
    ) -> ParameterGrid:
        """Return a grid; ``baseline`` may also contain values of parameters that are not searched."""
        axes = tuple(GridAxis.from_dimension(dimension) for dimension in dimensions)
        index_by_name = {axis.dimension.name: i for i, axis in enumerate(axes)}
        conditions = []
        for child, axis in enumerate(axes):
            for parent_name, allowed_values in axis.dimension.conditions:
                if parent_name in index_by_name:
                    parent = axes[index_by_name[parent_name]]
                    is_active = np.array([value in allowed_values for value in parent.values])
                    conditions.append((child, index_by_name[parent_name], is_active))
        levels = [axis.find_level(baseline[axis.dimension.name]) for axis in axes]
        return cls(axes, tuple(conditions), np.array(levels, np.intp), get_effective_settings)

    @property
    def level_counts(self) -> GridPoints:
        """Return the number of levels of each axis."""
        return np.array([len(axis.values) for axis in self.axes], np.intp)

    def encode(self, settings: Mapping[str, Any]) -> GridPoints:
        """Return the point of a configuration; missing parameters are at their baseline levels."""
        point = self.baseline.copy()
        if self.get_effective_settings is not None:
            settings = self.get_effective_settings(settings)
        for i, axis in enumerate(self.axes):
            if axis.dimension.name in settings:
                point[i] = self._find_level(i, settings[axis.dimension.name])
        return point

    def _find_level(self, index: int, value: Value) -> int:
        if (index, value) not in self._level_cache:
            self._level_cache[index, value] = self.axes[index].find_level(value)
        return self._level_cache[index, value]

    def encode_all(self, configurations: Sequence[Mapping[str, Any]]) -> GridPoints:
        if not configurations:
            return np.empty((0, len(self.axes)), np.intp)
        return np.array([self._encode_cached(settings) for settings in configurations])

    def _encode_cached(self, settings: Mapping[str, Any]) -> GridPoints:
        cache_key = tuple(settings.get(axis.dimension.name) for axis in self.axes)
        if cache_key not in self._encoding_cache:
            self._encoding_cache[cache_key] = self.encode(settings)
        return self._encoding_cache[cache_key]

    def decode(self, point: GridPoints) -> dict[str, Value]:
        return {
            axis.dimension.name: axis.values[level]
            for axis, level in zip(self.axes, point, strict=True)
        }

    def reset_inactive(self, points: GridPoints) -> GridPoints:
        """Return ``points`` with every inactive parameter at its baseline."""
        points = points.copy()
        for child, parent, active_levels in self.conditions:
            points[~active_levels[points[:, parent]], child] = self.baseline[child]
        return points

    def build_keys(self, points: GridPoints) -> frozenset[bytes]:
        """Return a key for each configuration in ``points``, as ``tobytes`` builds it from a point
        without inactive parameters.
        """
        return frozenset(point.tobytes() for point in self.reset_inactive(points))


def find_distinct_indices(points: GridPoints) -> npt.NDArray[np.intp]:
    """Return the indices of the points that differ from all earlier points.

    A configuration that was measured repeatedly, such as the drift reference or the baseline of each
    test bed, is counted once.
    """
    return np.sort(np.unique(points, axis=0, return_index=True)[1])
