"""Dimensions of the space as Optuna distributions: flat, every parameter always suggested.

Flat beats define-by-run for samplers that model the space (SEARCH.md): inactive values are simply
without effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from autotune.services.base import Settings, Value
from autotune.space.dimension import Dimension


def distribution(dimension: Dimension) -> BaseDistribution:
    if dimension.choices:
        return CategoricalDistribution(dimension.choices)
    assert dimension.low is not None
    assert dimension.high is not None
    # A logarithm needs a positive low end: a range from 0 is searched evenly.
    log = dimension.log and dimension.low > 0
    if dimension.integer:
        return IntDistribution(int(dimension.low), int(dimension.high), log=log)
    return FloatDistribution(float(dimension.low), float(dimension.high), log=log)


def distributions(dimensions: Iterable[Dimension]) -> dict[str, BaseDistribution]:
    return {dimension.name: distribution(dimension) for dimension in dimensions}


def inside(values: Settings, dimensions: Iterable[Dimension]) -> dict[str, Value]:
    """The part of ``values`` that the dimensions cover, each at the nearest value it may have."""
    return {d.name: d.clip(values[d.name]) for d in dimensions if d.name in values}


def plain(values: Mapping[str, object]) -> dict[str, Value]:
    """Without numpy's scalars, which no journal can hold."""
    return {
        name: value.item() if hasattr(value, "item") else value  # type: ignore[misc]
        for name, value in values.items()
    }
