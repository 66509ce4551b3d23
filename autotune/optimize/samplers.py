"""Every sampler there is, by name. A new one is an Optuna `BaseSampler`, here or in a plug-in."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, QMCSampler, RandomSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from autotune import plugins
from autotune.errors import AutotuneError
from autotune.optimize.base import Narrowing, SpaceSampler, Task, distributions, inside
from autotune.optimize.gp.grid import Axis
from autotune.optimize.gp.sampler import GpSampler
from autotune.optimize.gp.surrogate import log_scale, works
from autotune.services.base import Settings, Value
from autotune.space.dimension import Dimension
from autotune.space.space import Infeasible, Space
from autotune.target.messages import instead, plural

SURROGATES = {"skopt-gp": "GP", "skopt-et": "ET", "skopt-rf": "RF"}
OPENING = 8
POINTS = 1000  # candidates per suggestion; each is checked against the rules


class SkoptSampler(SpaceSampler):
    """``skopt.Optimizer`` rebuilt from the completed trials for every suggestion: nothing is lost.

    Choices go in as their numbers, since skopt turns values into numpy's; rules of the space are
    its space constraint.
    """

    def __init__(self, task: Task, surrogate: str) -> None:
        if find_spec("skopt") is None:
            raise AutotuneError(
                "this sampler needs scikit-optimize, which is not installed",
                hint="pipx inject autotune scikit-optimize, or install autotune[skopt]",
            )
        super().__init__(task)
        self._surrogate = surrogate

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        dimensions = self._task.space.tunable
        complete = [{**self._task.space.baseline, **t.params} for t in done]
        points = [[_coded(d, d.clip(params[d.name])) for d in dimensions] for params in complete]
        values = [t.value for t in done if t.value is not None]
        with warnings.catch_warnings():
            # About skopt's own internals: deprecated calls, and fits that did not quite converge.
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
                random_state=(self._task.seed + len(points) + sum(self._apart)) % 2**32,
            )
            if points:
                optimizer.tell(points, losses)
            return optimizer

        if not self._task.space.constraints:
            return list(build(None).ask())
        try:
            return list(build(lambda point: list(point) in points or self._allowed(point)).ask())
        except RuntimeError:
            # Too few random points keep the rules. Ask without them: the suggestion is repaired later.
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


class CoreFirst(Narrowing):
    """Any sampler, for the parameters known to matter; the rest stay as in the best configuration."""

    def __init__(self, inner: BaseSampler, task: Task) -> None:
        self._inner, self._task = inner, task
        self._core = {dimension.name for dimension in task.space.core}

    def narrow(self, task: Task) -> None:
        super().narrow(task)
        self._core = {dimension.name for dimension in task.space.core}
        if isinstance(self._inner, Narrowing):
            self._inner.narrow(task)

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return distributions(self._task.space.tunable)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        inner = self._inner.infer_relative_search_space(study, trial)
        asked = {name: inner[name] for name in inner if name in self._core}
        values = self._inner.sample_relative(study, trial, asked)
        own = {name: values[name] for name in self._core if name in values}
        for name in sorted(self._core - set(own)):
            own[name] = self._inner.sample_independent(study, trial, name, search_space[name])
        return {**_leading(study, self._task.space), **own}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:  # fmt: skip
        return self._inner.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self._inner.before_trial(study, trial)

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        self._inner.after_trial(study, trial, state, values)

    def reseed_rng(self) -> None:
        self._inner.reseed_rng()


class HillClimb(SpaceSampler):
    """A search without a model: one to four parameters of the best configuration so far, each moved to
    any place of its range. It is a control: a sampler earns its cost where it beats this one.

    Stateless, as each suggestion has random numbers of its own, unless it is reseeded.
    """

    MOST = 4

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        rng = np.random.default_rng((self._task.seed, trial.number, *self._apart))
        leader = _leading(study, self._task.space)
        active = self._task.space.active({**self._task.space.baseline, **leader})
        axes = [axis for axis in self._task.grid.axes if axis.dimension.name in search_space]
        movable = [axis for axis in axes if axis.dimension.name in active and len(axis.values) > 1]
        count = min(len(movable), int(rng.integers(1, self.MOST + 1)))
        moved = [movable[i] for i in rng.choice(len(movable), count, replace=False)]
        return {**leader, **{axis.dimension.name: _elsewhere(axis, leader, rng) for axis in moved}}


def _elsewhere(axis: Axis, leader: Settings, rng: np.random.Generator) -> Value:
    """Any value of a parameter but the one that the best configuration has."""
    others = [value for value in axis.values if value != leader[axis.dimension.name]]
    return others[int(rng.integers(len(others)))]


def _leading(study: Study, space: Space) -> dict[str, Any]:
    """The searched part of the best configuration that works, or else of the baseline."""
    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    usable = [trial for trial in done if works(trial) and trial.value is not None]
    best = max(usable, key=lambda trial: trial.value or 0.0, default=None)
    return inside({**space.baseline, **(best.params if best else {})}, space.tunable)


@dataclass(frozen=True)
class Chosen:
    """A sampler, its own name, and why it was chosen."""

    name: str
    why: str
    sampler: BaseSampler


def tpe(task: Task) -> BaseSampler:
    """Optuna's tree-structured Parzen estimator, with every argument given."""
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
    "hill-climb": HillClimb,
    "sobol": sobol,
    **{name: partial(SkoptSampler, surrogate=kind) for name, kind in SURROGATES.items()},
}
SAMPLERS = plugins.by_name("samplers", _SHIPPED)
# Beyond this many trials a Gaussian process takes longer to compute than it saves.
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
    sampler, why = SAMPLERS[name](task), "the target asks for it"
    if isinstance(sampler, GpSampler) or len(task.space.core) == len(task.space.tunable):
        return Chosen(name, why, sampler)
    return Chosen(name, f"{why}; {_size(task)}", CoreFirst(sampler, task))


def _size(task: Task) -> str:
    every, core = len(task.space.tunable), len(task.space.core)
    first = f", {core} of them first" if core < every else ""
    return f"{plural(task.trials, 'trial')} of {plural(every, 'parameter')}{first}"


def _auto(task: Task) -> Chosen:
    size = _size(task)
    if task.trials > MANY:
        why = f"{size} (auto: its cost does not grow with trials)"
        return Chosen("tpe", why, choose("tpe", task).sampler)
    return Chosen(
        "gp", f"{size} (auto: best for ≤ {MANY} trials in our benchmarks)", GpSampler(task)
    )
