"""A sampler of random configurations."""

from __future__ import annotations

from optuna.samplers import BaseSampler, RandomSampler

from autotune.optimize.base import SamplerTask

CONTRACT = 1


def dice(task: SamplerTask) -> BaseSampler:
    return RandomSampler(seed=task.seed)


SAMPLERS = {"dice": dice}
