"""The project's own sampler: expected improvement over a Gaussian process of few relevant parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial

from autotune.optimize.base import SpaceSampler
from autotune.optimize.gp.grid import Lattice, Rows
from autotune.optimize.gp.proposals import propose, spread
from autotune.optimize.gp.surrogate import Landscape, advised, evidence, shifts
from autotune.space.space import Infeasible

# A model needs something to compare: before that, an even spread, unless advice was measured already.
COLD = 8
LEAST = 2
# Nor does it know what it does not know: before so many trials it never calls the search off.
SURE = 20
# Suggestions follow what a diagnosis advised, while there is such advice, but for every so manieth.
HEEDLESS = 3


class GpSampler(SpaceSampler):
    """Stateless: every suggestion follows from the trials in the storage and the seed.

    ``prospect`` is what the last suggestion was made with: the chance that any configuration is
    better by ``MATTERS`` than the best one known; ``None`` while it is too early to say.
    """

    prospect: float | None = None

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        lattice = self._task.lattice
        trials = study.get_trials(deepcopy=False)
        known = evidence(lattice, trials, trial.number, shifts(study))
        rng = np.random.default_rng((self._task.seed, trial.number))
        begun = len(known) + len(known.pending)
        if len(known.rows) < LEAST or begun < (LEAST if advised(trials) else COLD):
            row = self._repaired(spread(lattice, COLD, begun, self._task.seed)[None, :])[0]
        else:
            landscape = Landscape.of(lattice, known)
            heeding = begun % HEEDLESS != 0
            current = _current(lattice, trials)
            row, runners = propose(landscape, self._repaired, rng, current, heeding=heeding)
            # Those that follow advice are too few to say what else there may be.
            telling = begun >= SURE and not heeding
            self.prospect = landscape.prospect(runners, rng) if telling else None
        return dict(lattice.values(row))

    def _repaired(self, rows: Rows) -> Rows:
        """The configurations that would be measured: each with every rule kept, where that can be."""
        lattice, space = self._task.lattice, self._task.space
        kept = []
        for row in rows:
            try:
                settings = space.candidate(lattice.values(row)).settings
            except Infeasible:
                continue
            kept.append(lattice.row(settings))
        return np.array(kept) if kept else rows


def _current(lattice: Lattice, trials: Sequence[FrozenTrial]) -> Rows | None:
    """What was deployed last, as far as the sampler knows."""
    deployed = [t.params for t in trials if t.params and t.state.is_finished()]
    return lattice.settled(lattice.rows(deployed[-1:]))[0] if deployed else None
