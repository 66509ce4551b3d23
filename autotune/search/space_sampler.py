"""What samplers of our own have in common: they suggest all of the declared space at once."""

from __future__ import annotations

from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from autotune.search.distributions import distributions
from autotune.search.task import Task


class SpaceSampler(BaseSampler):
    """``sample_relative`` is left to each; what it does not suggest is drawn at random."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._random = RandomSampler(seed=task.seed)

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
