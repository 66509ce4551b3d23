"""Results of the search model about the parameters, as values for records and reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.services.base import Value


@dataclass(frozen=True)
class ParameterEffect:
    """The ``effect`` of a parameter over its measured range, and the effect's ``sd``, as log ratios."""

    parameter: str
    effect: float
    sd: float | None = None


@dataclass(frozen=True)
class InteractingPair:
    """Two parameters whose joint effect differs from the sum of their effects by ``effect``, a log
    ratio.
    """

    first: str
    second: str
    effect: float


@dataclass(frozen=True)
class RangeEdge:
    """A parameter whose best value is at the ``low`` or ``high`` end of its range, and a wider range to
    try.
    """

    parameter: str
    value: Value
    end: str
    try_range: tuple[Value, Value]


@dataclass(frozen=True)
class ModelSlice:
    """Predicted peaks for the values ``x`` of one parameter: mean, and 90 % band from ``low`` to
    ``high``.
    """

    x: tuple[Value, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class ModelView:
    """The model's estimates of the parameters' effects.

    - ``pairs``: the strongest interactions
    - ``edges``: ranges that may need to be wider
    - ``slices``: predicted peaks as a function of each of the most important parameters, while all
      other parameters are as in the best configuration
    """

    importance: tuple[ParameterEffect, ...]
    pairs: tuple[InteractingPair, ...]
    edges: tuple[RangeEdge, ...]
    slices: Mapping[str, ModelSlice]
