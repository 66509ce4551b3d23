"""Every sampler there is. A new one is its module, and a line here."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, QMCSampler, RandomSampler, TPESampler

from autotune.errors import AutotuneError
from autotune.optimize.base import Task
from autotune.optimize.gp.sampler import GpSampler
from autotune.optimize.skopt import SURROGATES, SkoptSampler
from autotune.target.messages import instead


@dataclass(frozen=True)
class Chosen:
    """A sampler, by its own name, and why it is this one."""

    name: str
    why: str
    sampler: BaseSampler


def tpe(task: Task) -> BaseSampler:
    """Optuna's tree-structured Parzen estimator, every argument said."""
    return TPESampler(
        n_startup_trials=8,
        n_ei_candidates=48,
        multivariate=True,
        group=False,
        constant_liar=False,
        seed=task.seed,
    )


def random(task: Task) -> BaseSampler:
    return RandomSampler(seed=task.seed)


def sobol(task: Task) -> BaseSampler:
    """Scrambled Sobol points: an even spread, without regard to what was found."""
    with warnings.catch_warnings():
        # Optuna calls it experimental since 2022.
        warnings.simplefilter("ignore", ExperimentalWarning)
        return QMCSampler(
            qmc_type="sobol", scramble=True, seed=task.seed, warn_independent_sampling=False
        )


SAMPLERS: dict[str, Callable[[Task], BaseSampler]] = {
    "tpe": tpe,
    "gp": GpSampler,
    "random": random,
    "sobol": sobol,
    **{name: partial(SkoptSampler, surrogate=kind) for name, kind in SURROGATES.items()},
}
# Beyond this many trials a Gaussian process takes longer to think than it saves.
MANY = 300


def choose(name: str, task: Task) -> Chosen:
    """The sampler called ``name``, ``auto`` for whichever the benchmarks show to be best here.

    Raises AutotuneError for a name that is not in the registry.
    """
    if name == "auto":
        return _auto(task)
    if name not in SAMPLERS:
        hint = instead(name, ["auto", *SAMPLERS])
        raise AutotuneError(f"there is no sampler {name!r}", hint=hint)
    return Chosen(name, "the target asks for it", SAMPLERS[name](task))


def _auto(task: Task) -> Chosen:
    parameters = len(task.space.tunable)
    size = f"{task.trials} trials of {parameters} parameters"
    if task.trials > MANY:
        return Chosen("tpe", f"{size} (auto: its cost does not grow with trials)", tpe(task))
    return Chosen(
        "gp", f"{size} (auto: best for ≤ {MANY} trials in our benchmarks)", GpSampler(task)
    )
