"""The project's own sampler: expected improvement over a Gaussian process of few relevant parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial

from autotune.optimize.base import SpaceSampler
from autotune.optimize.gp.grid import Grid, Points
from autotune.optimize.gp.proposals import latin_hypercube, propose
from autotune.optimize.gp.surrogate import Surrogate, observe, preset_measured, shifts
from autotune.space.space import Infeasible

# A model needs something to compare: before so many trials a Latin hypercube is measured, unless a
# preset was measured already.
COLD = 8
LEAST = 2
# Nor does it know what it does not know: before so many trials it never ends the search.
SURE = 20
# Suggestions follow recommended moves, while there are any, except on every third.
EXPLORE_EVERY = 3


class GpSampler(SpaceSampler):
    """Stateless: every suggestion follows from the trials in the storage and the seed.

    ``improvement_probability`` belongs to the last suggestion: that any configuration is better by
    ``MATTERS`` than the best one known; ``None`` while it is too early to say.
    """

    improvement_probability: float | None = None

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        grid = self._task.grid
        trials = study.get_trials(deepcopy=False)
        observations = observe(grid, trials, trial.number, shifts(study))
        begun = len(observations) + len(observations.pending)
        cold = begun < (LEAST if preset_measured(trials) else COLD)
        if cold or len(observations.points) < LEAST:
            opening = latin_hypercube(grid, COLD, begun, self._task.seed)
            return dict(grid.decode(self._repaired(opening[None, :])[0]))
        rng = np.random.default_rng((self._task.seed, trial.number))
        surrogate = Surrogate.of(grid, observations)
        guided = begun % EXPLORE_EVERY != 0
        current = _current(grid, trials)
        point, runners_up = propose(surrogate, self._repaired, rng, current, guided=guided)
        # Guided candidates are too few to say what else there may be.
        conclusive = begun >= SURE and not guided
        self.improvement_probability = (
            surrogate.improvement_probability(runners_up, rng) if conclusive else None
        )
        return dict(grid.decode(point))

    def _repaired(self, points: Points) -> Points:
        """The configurations that would be measured: each with every rule kept, where that can be."""
        grid, space = self._task.grid, self._task.space
        repaired = []
        for point in points:
            try:
                settings = space.candidate(grid.decode(point)).settings
            except Infeasible:
                continue
            repaired.append(grid.encode(settings))
        return np.array(repaired) if repaired else points


def _current(grid: Grid, trials: Sequence[FrozenTrial]) -> Points | None:
    """What was deployed last, as far as the sampler knows."""
    deployed = [t.params for t in trials if t.params and t.state.is_finished()]
    return grid.canonical(grid.encode_all(deployed[-1:]))[0] if deployed else None
