"""Scikit-optimize's optimizers as an Optuna sampler."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from autotune.optimize.base import SpaceSampler, Task
from autotune.optimize.gp.surrogate import log_scale
from autotune.space.dimension import Dimension
from autotune.space.space import Infeasible

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
