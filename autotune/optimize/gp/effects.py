"""Sums of the effects of many parameters at many points of a grid.

A parameter has no effect at its anchor (the level in the leading configuration), and most
configurations leave most parameters at their anchors. The sums skip such parameters. A sparse matrix
product adds up all other effects, for all points at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from autotune.optimize.gp.grid import GridPoints

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LevelEffects:
    """The effects of some parameters at each level: ``values`` is an array ``[axis, level, column]``.

    ``axes`` are the indices of these parameters on the grid. ``variances`` is an array ``[parameter,
    level]`` for all parameters of the grid. An entry is positive if the level has an effect.
    """

    axes: npt.NDArray[np.intp]
    values: Array
    variances: Array

    @cached_property
    def _flat_values(self) -> tuple[Array, Array]:
        """Return the values and their squares, each with one row per axis and level."""
        axis_count, level_count, column_count = self.values.shape
        flat_values = self.values.reshape(axis_count * level_count, column_count)
        return flat_values, flat_values**2

    @cached_property
    def _has_effect(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.variances[self.axes] > 0).ravel()

    def sum_effects_at(self, points: GridPoints) -> tuple[Array, Array]:
        """Return, for each point, the sums of the effects and of their squares: ``[point, column]``."""
        level_count, levels = self.variances.shape[1], points[:, self.axes]
        flat_indices = levels + level_count * np.arange(len(self.axes))
        rows, positions = np.nonzero(self._has_effect.take(flat_indices))
        row_ends = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(points)))])
        effect_values, squared_values = self._flat_values
        selection = csr_array(
            (np.ones(len(rows)), flat_indices[rows, positions], row_ends),
            shape=(len(points), len(effect_values)),
        )
        return selection @ effect_values, selection @ squared_values


def tabulate_variances(covariance_tables: tuple[Array, ...]) -> Array:
    """Return the variance of each parameter's effect: ``[parameter, level]``, padded with zeros."""
    padded_variances = np.zeros(
        (len(covariance_tables), max(map(len, covariance_tables), default=0))
    )
    for d, table in enumerate(covariance_tables):
        padded_variances[d, : len(table)] = table.diagonal()
    return padded_variances


def take_variances_at(variances: Array, points: GridPoints) -> Array:
    """Return, for each point and parameter, the entry of ``variances`` at the parameter's level.

    ``variances`` is an array ``[parameter, level]``.
    """
    return np.asarray(
        variances.ravel().take(points + variances.shape[1] * np.arange(len(variances)))
    )


def list_varied_axes(variances: Array, points: GridPoints) -> npt.NDArray[np.intp]:
    """Return the axes on which any of ``points`` differs from the anchor."""
    return np.flatnonzero((take_variances_at(variances, points) > 0).any(axis=0))
