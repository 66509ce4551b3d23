"""Every sampler there is, by name. A new one is an Optuna `BaseSampler`, here or in a plug-in."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, QMCSampler, RandomSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from autotune import plugins
from autotune.errors import AutotuneError
from autotune.optimize.base import SpaceSampler, Task
from autotune.optimize.gp.sampler import GpSampler
from autotune.optimize.gp.surrogate import log_scale
from autotune.space.dimension import Dimension
from autotune.space.space import Infeasible
from autotune.target.messages import instead

SURROGATES = {"skopt-gp": "GP", "skopt-et": "ET", "skopt-rf": "RF"}
OPENING = 8
POINTS = 1000  # candidates per suggestion; the rules are asked about each


class SkoptSampler(SpaceSampler):
    """``skopt.Optimizer`` rebuilt from the completed trials for every suggestion: nothing is lost.

    Choices go in as their numbers, since skopt turns values into numpy's; rules of the space are
    its space constraint.
    """

    def __init__(self, task: Task, surrogate: str) -> None:
        super().__init__(task)
        self._surrogate = surrogate

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        dimensions = self._task.space.tunable
        points = [[_coded(d, t.params[d.name]) for d in dimensions] for t in done]
        values = [t.value for t in done if t.value is not None]
        with warnings.catch_warnings():
            # Of its own internals: deprecated calls, and fits that did not quite converge.
            warnings.simplefilter("ignore")
            asked = self._ask(points, [-float(height) for height in log_scale(values)])
        return {d.name: _decoded(d, value) for d, value in zip(dimensions, asked, strict=True)}

    def _ask(self, points: list[list[Any]], losses: list[float]) -> Sequence[Any]:
        from skopt import Optimizer

        def build(constraint: Any) -> Any:
            optimizer = Optimizer(
                [_skopt(d) for d in self._task.space.tunable],
                base_estimator=self._surrogate,
                n_initial_points=OPENING,
                initial_point_generator="random",
                acq_func="EI",
                acq_optimizer="sampling",
                acq_optimizer_kwargs={"n_points": POINTS},
                space_constraint=constraint,
                random_state=self._task.seed + len(points),
            )
            if points:
                optimizer.tell(points, losses)
            return optimizer

        if not self._task.space.constraints:
            return list(build(None).ask())
        try:
            return list(build(lambda point: list(point) in points or self._allowed(point)).ask())
        except RuntimeError:
            # Hardly anything drawn by chance keeps the rules: what is suggested gets repaired.
            return list(build(None).ask())

    def _allowed(self, point: Sequence[Any]) -> bool:
        space = self._task.space
        values = {d.name: _decoded(d, value) for d, value in zip(space.tunable, point, strict=True)}
        try:
            return not space.candidate(values).bindings
        except Infeasible:
            return False


def _skopt(dimension: Dimension) -> Any:
    from skopt.space import Categorical, Integer, Real

    if dimension.choices:
        return Categorical([str(i) for i in range(len(dimension.choices))], name=dimension.name)
    prior = "log-uniform" if dimension.log and (dimension.low or 0) > 0 else "uniform"
    kind = Integer if dimension.integer else Real
    return kind(dimension.low, dimension.high, prior=prior, name=dimension.name)


def _coded(dimension: Dimension, value: Any) -> Any:
    return str(dimension.choices.index(value)) if dimension.choices else value


def _decoded(dimension: Dimension, value: Any) -> Any:
    if dimension.choices:
        return dimension.choices[int(value)]
    return dimension.clip(value.item() if hasattr(value, "item") else value)


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
        constant_liar=task.several,  # what is being measured elsewhere counts as poor meanwhile
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


_SHIPPED: dict[str, Callable[[Task], BaseSampler]] = {
    "tpe": tpe,
    "gp": GpSampler,
    "random": random,
    "sobol": sobol,
    **{name: partial(SkoptSampler, surrogate=kind) for name, kind in SURROGATES.items()},
}
SAMPLERS = plugins.by_name("samplers", _SHIPPED)
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
