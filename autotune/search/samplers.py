"""Every sampler there is. A new one is its module, and a line here."""

from __future__ import annotations

from collections.abc import Callable

from optuna.samplers import BaseSampler, RandomSampler, TPESampler

from autotune.errors import AutotuneError
from autotune.target.document import nearest


def tpe(seed: int) -> BaseSampler:
    """Optuna's tree-structured Parzen estimator, every argument said (SEARCH.md)."""
    return TPESampler(
        n_startup_trials=8,
        n_ei_candidates=48,
        multivariate=True,
        group=False,
        constant_liar=False,
        seed=seed,
    )


def random(seed: int) -> BaseSampler:
    return RandomSampler(seed=seed)


SAMPLERS: dict[str, Callable[[int], BaseSampler]] = {"auto": tpe, "tpe": tpe, "random": random}


def sampler(name: str, seed: int) -> BaseSampler:
    """Raises AutotuneError for a name that is not in the registry."""
    if name not in SAMPLERS:
        meant = nearest(name, SAMPLERS)
        raise AutotuneError(
            f"there is no sampler {name!r}",
            hint=f"did you mean {meant!r}?" if meant else f"there is: {', '.join(SAMPLERS)}",
        )
    return SAMPLERS[name](seed)
