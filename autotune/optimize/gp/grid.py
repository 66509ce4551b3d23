"""The space as a lattice: every parameter in a hundred steps of its own scale.

A configuration is a row of level numbers. On a lattice the covariance of one parameter is a small
table (kernels.py), so that a model of many parameters costs look-ups and no exponentials.
Parameters that a configuration makes inactive are put to one level, where they cannot mislead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.services.base import Settings, Value
from autotune.space.dimension import Dimension

Rows = npt.NDArray[np.intp]

LEVELS = 101


@dataclass(frozen=True)
class Axis:
    """One parameter: the value each level stands for, in order; ``choices`` have no order."""

    dimension: Dimension
    values: tuple[Value, ...]
    units: npt.NDArray[np.float64]

    @classmethod
    def of(cls, dimension: Dimension) -> Axis:
        if dimension.choices:
            count = len(dimension.choices)
            return cls(dimension, dimension.choices, np.arange(count, dtype=float))
        assert dimension.low is not None
        assert dimension.high is not None
        units = np.linspace(0.0, 1.0, LEVELS)
        if _few(dimension):
            whole = range(int(dimension.low), int(dimension.high) + 1)
            return cls(dimension, tuple(whole), np.array([to_unit(dimension, v) for v in whole]))
        return cls(dimension, _exact(dimension, units), units)

    @property
    def ordered(self) -> bool:
        return not self.dimension.choices

    def level(self, value: Value) -> int:
        """The level nearest to ``value``."""
        if not self.ordered:
            return self.values.index(self.dimension.clip(value))
        clipped = self.dimension.clip(value)
        if _few(self.dimension):
            return int(clipped) - int(self.dimension.low or 0)
        return round(to_unit(self.dimension, clipped) * (len(self.values) - 1))


def _exact(dimension: Dimension, units: npt.NDArray[np.float64]) -> tuple[Value, ...]:
    """The value of each level. Those known by name keep theirs: what a suggestion leaves as it is must
    not be changed a little by rounding, or a service would be restarted for nothing."""
    values = [from_unit(dimension, u) for u in units]
    for known in (dimension.published, dimension.recommended, dimension.baseline):
        if known is not None and dimension.clip(known) == known:
            values[round(to_unit(dimension, known) * (len(units) - 1))] = known
    return tuple(values)


def _few(dimension: Dimension) -> bool:
    """Whether every whole number of the range is a level of its own."""
    return dimension.integer and float(dimension.high or 0) - float(dimension.low or 0) < LEVELS


def to_unit(dimension: Dimension, value: Value) -> float:
    """Where a number lies in its range, 0 to 1; a logarithmic range from 0 counts from 1."""
    low, high = float(dimension.low or 0), float(dimension.high or 0)
    if not dimension.log:
        return (float(value) - low) / (high - low)
    shift = _shift(low)
    return log((float(value) + shift) / (low + shift)) / log((high + shift) / (low + shift))


def from_unit(dimension: Dimension, unit: float) -> Value:
    """The value at this place of the range."""
    low, high = float(dimension.low or 0), float(dimension.high or 0)
    if not dimension.log:
        return dimension.clip(low + unit * (high - low))
    shift = _shift(low)
    ratio = log((high + shift) / (low + shift))
    return dimension.clip((low + shift) * exp(unit * ratio) - shift)


def _shift(low: float) -> float:
    return 0.0 if low > 0 else 1.0 - low


@dataclass(frozen=True)
class Lattice:
    """The tunable parameters, and which of them depend on which choices."""

    axes: tuple[Axis, ...]
    when: tuple[tuple[int, int, npt.NDArray[np.bool_]], ...]
    resting: Rows

    @classmethod
    def of(cls, dimensions: Sequence[Dimension], baseline: Settings) -> Lattice:
        """``baseline`` holds the values of parameters that are not searched, too."""
        axes = tuple(Axis.of(d) for d in dimensions)
        index = {axis.dimension.name: i for i, axis in enumerate(axes)}
        when = []
        for child, axis in enumerate(axes):
            for name, allowed in axis.dimension.when:
                if name in index:
                    parent = axes[index[name]]
                    live = np.array([value in allowed for value in parent.values])
                    when.append((child, index[name], live))
        resting = np.array([axis.level(baseline[axis.dimension.name]) for axis in axes], np.intp)
        return cls(axes, tuple(when), resting)

    @property
    def sizes(self) -> Rows:
        return np.array([len(axis.values) for axis in self.axes], np.intp)

    def row(self, values: Mapping[str, Any]) -> Rows:
        """Levels of a configuration; what it does not name rests at the baseline."""
        row = self.resting.copy()
        for i, axis in enumerate(self.axes):
            if axis.dimension.name in values:
                row[i] = axis.level(values[axis.dimension.name])
        return row

    def rows(self, configurations: Sequence[Mapping[str, Any]]) -> Rows:
        if not configurations:
            return np.empty((0, len(self.axes)), np.intp)
        return np.array([self.row(values) for values in configurations])

    def values(self, row: Rows) -> dict[str, Value]:
        return {
            axis.dimension.name: axis.values[level]
            for axis, level in zip(self.axes, row, strict=True)
        }

    def settled(self, rows: Rows) -> Rows:
        """With every inactive parameter at rest."""
        rows = rows.copy()
        for child, parent, live in self.when:
            rows[~live[rows[:, parent]], child] = self.resting[child]
        return rows
