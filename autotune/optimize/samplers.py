"""All samplers, by name. A new sampler is an Optuna `BaseSampler`, in this file or in a plug-in."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from statistics import fmean
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, QMCSampler, RandomSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from autotune import plugins
from autotune.errors import AutotuneError
from autotune.optimize.base import (
    NarrowingSampler,
    SamplerTask,
    SpaceSampler,
    build_distributions,
    clip_to_dimensions,
)
from autotune.optimize.gp.grid import GridAxis
from autotune.optimize.gp.sampler import GpSampler
from autotune.optimize.gp.surrogate import compute_log_values, is_feasible_trial
from autotune.services.base import Settings, Value
from autotune.space.dimension import Dimension
from autotune.space.repair import InfeasibleRule
from autotune.space.space import SearchSpace
from autotune.target.messages import format_count, suggest_name

SKOPT_SURROGATES = {"skopt-gp": "GP", "skopt-et": "ET", "skopt-rf": "RF"}
INITIAL_POINTS = 8
CANDIDATE_COUNT = 1000  # candidates per suggestion; each is checked against the rules


class SkoptSampler(SpaceSampler):
    """A sampler that builds a new ``skopt.Optimizer`` from the stored trials for every suggestion, so
    no trial is lost.

    Choices are passed as their indices, because skopt converts values to numpy types. The rules of the
    search space are passed as skopt's space constraint.
    """

    def __init__(self, task: SamplerTask, surrogate: str) -> None:
        if find_spec("skopt") is None:
            raise AutotuneError(
                "this sampler needs scikit-optimize, which is not installed",
                hint="run `pipx inject autotune scikit-optimize`, or `pipx install --force '.[skopt]'` "
                "in a checkout",
            )
        super().__init__(task)
        self._surrogate = surrogate

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        trials = study.get_trials(deepcopy=False)
        completed_trials = [t for t in trials if t.state is TrialState.COMPLETE]
        pending_trials = [
            t for t in trials if t.state is TrialState.RUNNING and t.number != trial.number
        ]
        dimensions = self._task.space.tunable_dimensions
        complete_settings = [
            {**self._task.space.baseline, **t.params} for t in (*completed_trials, *pending_trials)
        ]
        points = [
            [_encode_value(d, d.clip(params[d.name])) for d in dimensions]
            for params in complete_settings
        ]
        measured_values = [t.value for t in completed_trials if t.value is not None]
        losses = [-float(log_value) for log_value in compute_log_values(measured_values)]
        # Pending trials count as average results, so that no other test bed gets the same suggestion.
        losses += [fmean(losses or [0.0])] * len(pending_trials)
        with warnings.catch_warnings():
            # Ignore warnings about skopt's internals: deprecated calls, and imperfect convergence.
            warnings.simplefilter("ignore")
            suggested_point = self._suggest_point(points, losses)
        return {
            d.name: _decode_value(d, value)
            for d, value in zip(dimensions, suggested_point, strict=True)
        }

    def _suggest_point(self, points: list[list[Any]], losses: list[float]) -> Sequence[Any]:
        from skopt import Optimizer

        def build_optimizer(constraint: Any) -> Any:
            optimizer = Optimizer(
                [_build_skopt_dimension(d) for d in self._task.space.tunable_dimensions],
                base_estimator=self._surrogate,
                n_initial_points=INITIAL_POINTS,
                initial_point_generator="random",
                acq_func="EI",
                acq_optimizer="sampling",
                acq_optimizer_kwargs={"n_points": CANDIDATE_COUNT},
                space_constraint=constraint,
                random_state=(self._task.seed + len(points) + sum(self._seed_offset)) % 2**32,
            )
            if points:
                optimizer.tell(points, losses)
            return optimizer

        if not self._task.space.constraints:
            return list(build_optimizer(None).ask())
        try:
            return list(
                build_optimizer(
                    lambda point: list(point) in points or self._is_allowed(point)
                ).ask()
            )
        except RuntimeError:
            # Too few random points satisfy the rules, so sample without rules and repair the suggestion
            # later.
            return list(build_optimizer(None).ask())

    def _is_allowed(self, point: Sequence[Any]) -> bool:
        space = self._task.space
        settings = {
            d.name: _decode_value(d, value)
            for d, value in zip(space.tunable_dimensions, point, strict=True)
        }
        try:
            return not space.build_candidate(settings).repairs
        except InfeasibleRule:
            return False


def _build_skopt_dimension(dimension: Dimension) -> Any:
    from skopt.space import Categorical, Integer, Real

    if dimension.choices:
        return Categorical([str(i) for i in range(len(dimension.choices))], name=dimension.name)
    prior = "log-uniform" if dimension.is_logarithmic and (dimension.low or 0) > 0 else "uniform"
    number_class = Integer if dimension.is_integer else Real
    return number_class(dimension.low, dimension.high, prior=prior, name=dimension.name)


def _encode_value(dimension: Dimension, value: Any) -> Any:
    return str(dimension.choices.index(value)) if dimension.choices else value


def _decode_value(dimension: Dimension, value: Any) -> Any:
    if dimension.choices:
        return dimension.choices[int(value)]
    return dimension.clip(value.item() if hasattr(value, "item") else value)


class CoreFirstSampler(NarrowingSampler):
    """A sampler that applies another sampler to the parameters that are known to matter. The other
    parameters keep the values of the best configuration.
    """

    def __init__(self, inner_sampler: BaseSampler, task: SamplerTask) -> None:
        self._inner, self._task = inner_sampler, task
        self._core = {dimension.name for dimension in task.space.core_dimensions}

    def narrow_space(self, task: SamplerTask) -> None:
        super().narrow_space(task)
        self._core = {dimension.name for dimension in task.space.core_dimensions}
        if isinstance(self._inner, NarrowingSampler):
            self._inner.narrow_space(task)

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return build_distributions(self._task.space.tunable_dimensions)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        inner_space = self._inner.infer_relative_search_space(study, trial)
        core_space = {name: inner_space[name] for name in inner_space if name in self._core}
        suggested_values = self._inner.sample_relative(study, trial, core_space)
        core_values = {
            name: suggested_values[name] for name in self._core if name in suggested_values
        }
        for name in sorted(self._core - set(core_values)):
            core_values[name] = self._inner.sample_independent(
                study, trial, name, search_space[name]
            )
        return {**_find_best_values(study, self._task.space), **core_values}

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        return self._inner.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self._inner.before_trial(study, trial)

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        self._inner.after_trial(study, trial, state, values)

    def reseed_rng(self) -> None:
        self._inner.reseed_rng()


class HillClimbSampler(SpaceSampler):
    """A search without a model, as a control: other samplers are worth their cost only if they find
    better configurations.

    The sampler changes one to four parameters of the best configuration so far to random values in
    their ranges. The sampler is stateless: the random numbers depend only on the seed and the trial's
    number, unless the sampler is reseeded.
    """

    MAX_CHANGES = 4

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        rng = np.random.default_rng((self._task.seed, trial.number, *self._seed_offset))
        best_values = _find_best_values(study, self._task.space)
        active_names = self._task.space.active_parameters(
            {**self._task.space.baseline, **best_values}
        )
        axes = [axis for axis in self._task.grid.axes if axis.dimension.name in search_space]
        movable_axes = [
            axis for axis in axes if axis.dimension.name in active_names and len(axis.values) > 1
        ]
        change_count = min(len(movable_axes), int(rng.integers(1, self.MAX_CHANGES + 1)))
        moved_axes = [
            movable_axes[i] for i in rng.choice(len(movable_axes), change_count, replace=False)
        ]
        return {
            **best_values,
            **{
                axis.dimension.name: _draw_other_value(axis, best_values, rng)
                for axis in moved_axes
            },
        }


def _draw_other_value(axis: GridAxis, best_values: Settings, rng: np.random.Generator) -> Value:
    """Return a random value of a parameter that differs from its value in the best configuration."""
    other_values = [value for value in axis.values if value != best_values[axis.dimension.name]]
    return other_values[int(rng.integers(len(other_values)))]


def _find_best_values(study: Study, space: SearchSpace) -> dict[str, Any]:
    """Return the searched values of the best feasible configuration, or else of the baseline."""
    completed_trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    usable_trials = [
        trial for trial in completed_trials if is_feasible_trial(trial) and trial.value is not None
    ]
    best_trial = max(usable_trials, key=lambda trial: trial.value or 0.0, default=None)
    return clip_to_dimensions(
        {**space.baseline, **(best_trial.params if best_trial else {})}, space.tunable_dimensions
    )


@dataclass(frozen=True)
class ChosenSampler:
    """A sampler with its name and the reason why it was chosen."""

    name: str
    reason: str
    sampler: BaseSampler


def build_tpe_sampler(task: SamplerTask) -> BaseSampler:
    """Return Optuna's tree-structured Parzen estimator, configured for the task."""
    return TPESampler(
        n_startup_trials=8,
        n_ei_candidates=48,
        multivariate=True,
        group=False,
        constant_liar=task.has_several_beds,  # pending trials count as poor results
        seed=task.session_seed,
    )


def build_random_sampler(task: SamplerTask) -> BaseSampler:
    return RandomSampler(seed=task.session_seed)


def build_sobol_sampler(task: SamplerTask) -> BaseSampler:
    """Return a sampler of scrambled Sobol points, which cover the space evenly and ignore results."""
    with warnings.catch_warnings():
        # Optuna has marked this sampler as experimental since 2022.
        warnings.simplefilter("ignore", ExperimentalWarning)
        return QMCSampler(
            qmc_type="sobol", scramble=True, seed=task.seed, warn_independent_sampling=False
        )


_SHIPPED_SAMPLERS: dict[str, Callable[[SamplerTask], BaseSampler]] = {
    "tpe": build_tpe_sampler,
    "gp": GpSampler,
    "random": build_random_sampler,
    "hill-climb": HillClimbSampler,
    "sobol": build_sobol_sampler,
    **{name: partial(SkoptSampler, surrogate=kind) for name, kind in SKOPT_SURROGATES.items()},
}
SAMPLERS = plugins.merge_plugins("samplers", _SHIPPED_SAMPLERS)
# With more than MAX_GP_TRIALS trials, a Gaussian process takes more time than it saves.
MAX_GP_TRIALS = 300


def choose_sampler(sampler_name: str, task: SamplerTask) -> ChosenSampler:
    """Return the sampler called ``sampler_name``; ``auto`` selects the best sampler for this task,
    according to benchmarks.

    Raises AutotuneError for a name that is not in the registry.
    """
    if sampler_name == "auto":
        return _choose_sampler_automatically(task)
    if sampler_name not in SAMPLERS:
        hint = suggest_name(sampler_name, ["auto", *SAMPLERS])
        raise AutotuneError(f"unknown sampler {sampler_name!r}", hint=hint)
    sampler, reason = SAMPLERS[sampler_name](task), "set in the target"
    if isinstance(sampler, GpSampler) or len(task.space.core_dimensions) == len(
        task.space.tunable_dimensions
    ):
        return ChosenSampler(sampler_name, reason, sampler)
    return ChosenSampler(
        sampler_name, f"{reason}; {_describe_task(task)}", CoreFirstSampler(sampler, task)
    )


def _describe_task(task: SamplerTask) -> str:
    parameter_count, core_count = (
        len(task.space.tunable_dimensions),
        len(task.space.core_dimensions),
    )
    core_text = f", {core_count} core parameters first" if core_count < parameter_count else ""
    trials_text, parameters_text = (
        format_count(task.trial_budget, "trial"),
        format_count(parameter_count, "parameter"),
    )
    return f"{trials_text} of {parameters_text}{core_text}"


def _choose_sampler_automatically(task: SamplerTask) -> ChosenSampler:
    task_text = _describe_task(task)
    if task.trial_budget > MAX_GP_TRIALS:
        reason = f"{task_text} (auto: its cost does not grow with trials)"
        return ChosenSampler("tpe", reason, choose_sampler("tpe", task).sampler)
    return ChosenSampler(
        "gp",
        f"{task_text} (auto: best for ≤ {MAX_GP_TRIALS} trials in our benchmarks)",
        GpSampler(task),
    )
