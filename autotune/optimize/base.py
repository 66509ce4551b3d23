"""The base of all samplers: their task, the search space as Optuna distributions, and a base class.

The space is flat: every parameter is always suggested, and inactive parameters have no effect. Samplers
that model the space perform better with a flat space than with Optuna's define-by-run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
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

from autotune.optimize.gp.grid import ParameterGrid
from autotune.services.base import Settings, Value
from autotune.space.dimension import Dimension
from autotune.space.space import SearchSpace


def build_distribution(dimension: Dimension) -> BaseDistribution:
    if dimension.choices:
        return CategoricalDistribution(dimension.choices)
    assert dimension.low is not None
    assert dimension.high is not None
    # Optuna's logarithmic scale requires a positive low end, so a range from 0 gets a linear scale.
    is_log_scale = dimension.is_logarithmic and dimension.low > 0
    if dimension.is_integer:
        return IntDistribution(int(dimension.low), int(dimension.high), log=is_log_scale)
    return FloatDistribution(float(dimension.low), float(dimension.high), log=is_log_scale)


def build_distributions(dimensions: Iterable[Dimension]) -> dict[str, BaseDistribution]:
    return {dimension.name: build_distribution(dimension) for dimension in dimensions}


def clip_to_dimensions(values: Settings, dimensions: Iterable[Dimension]) -> dict[str, Value]:
    """Return the values of these dimensions, each replaced by the nearest allowed value."""
    return {d.name: d.clip(values[d.name]) for d in dimensions if d.name in values}


def strip_numpy_types(values: Mapping[str, object]) -> dict[str, Value]:
    """Return the values as Python scalars, because numpy scalars cannot be stored in a journal."""
    return {
        name: value.item() if hasattr(value, "item") else value  # type: ignore[misc]
        for name, value in values.items()
    }


@dataclass(frozen=True)
class SamplerTask:
    """The task of a sampler. ``trial_budget`` is the number of configurations that the budget allows,
    including presets. ``has_several_beds`` is true if several configurations are measured concurrently.
    ``stored_trials`` is the number of trials from earlier sessions.
    """

    space: SearchSpace
    trial_budget: int = 40
    seed: int = 1
    has_several_beds: bool = False
    stored_trials: int = 0

    @property
    def session_seed(self) -> int:
        """Return the seed of random numbers that a sampler does not store. Each session has another
        seed, because a resumed search would otherwise repeat its first suggestions.
        """
        return (self.seed + self.stored_trials) % 2**32

    @cached_property
    def grid(self) -> ParameterGrid:
        space = self.space
        return ParameterGrid.from_dimensions(
            space.tunable_dimensions,
            space.baseline,
            space.get_effective_settings if space.caps else None,
        )

    def with_space(self, space: SearchSpace) -> SamplerTask:
        """Return this task with another ``space``. The grid is kept if parameters and caps are equal."""
        task = replace(self, space=space)
        old_space = self.space
        if (old_space.dimensions, old_space.baseline, old_space.caps) == (
            space.dimensions,
            space.baseline,
            space.caps,
        ):
            vars(task)["grid"] = self.grid  # keep the cache of encoded configurations
        return task


class NarrowingSampler(BaseSampler):
    """A sampler whose task can be replaced, because a study may find values that have no effect."""

    def narrow_space(self, task: SamplerTask) -> None:
        """Suggest values from this task's space from now on."""
        self._task = task


class SpaceSampler(NarrowingSampler):
    """Base class of samplers that suggest all parameters at once, in ``sample_relative``.

    ``_seed_offset`` is part of the random seed. After a reseed, suggestions differ from the suggestions
    of other processes.
    """

    _seed_offset: tuple[int, ...] = ()

    def __init__(self, task: SamplerTask) -> None:
        self._task = task
        self._random = RandomSampler(seed=task.seed)

    def reseed_rng(self) -> None:
        self._seed_offset = (randbits(64),)

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return build_distributions(self._task.space.tunable_dimensions)

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        return self._random.sample_independent(study, trial, param_name, param_distribution)
