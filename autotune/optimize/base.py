"""What every sampler builds on: the task, its space as Optuna distributions, and a base class.

The space is flat: every parameter is always suggested, and inactive ones have no effect. Samplers that
model the space do better with that than with Optuna's define-by-run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from secrets import randbits
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from autotune.optimize.gp.grid import Grid
from autotune.services.base import Settings, Value
from autotune.space.dimension import Dimension
from autotune.space.space import Space


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


@dataclass(frozen=True)
class Task:
    """A sampler's task. ``trials``: configurations the budget allows, presets included.
    ``several``: more than one is measured at a time."""

    space: Space
    trials: int = 40
    seed: int = 1
    several: bool = False

    @cached_property
    def grid(self) -> Grid:
        return Grid.of(self.space.tunable, self.space.baseline)


class Narrowing(BaseSampler):
    """A sampler that keeps its task: it has to learn if values of the space prove to take no effect."""

    def narrow(self, task: Task) -> None:
        """Suggest values of this task's space from now on."""
        self._task = task


class SpaceSampler(Narrowing):
    """Base of samplers that suggest the whole space at once, in ``sample_relative``. ``_apart`` is a part
    of their seed: reseeded, they differ from those of other processes."""

    _apart: tuple[int, ...] = ()

    def __init__(self, task: Task) -> None:
        self._task = task
        self._random = RandomSampler(seed=task.seed)

    def reseed_rng(self) -> None:
        self._apart = (randbits(64),)

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return distributions(self._task.space.tunable)

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        return self._random.sample_independent(study, trial, param_name, param_distribution)
