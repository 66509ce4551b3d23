"""States of studies whose search is over, for several tests of rankings, proofs and schedules."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from autotune.environments.peak import Peak
from autotune.estimate import Estimate
from autotune.optimize.ranking import PosteriorPeaks
from autotune.services.base import Settings
from autotune.space.space import SearchSpace
from autotune.study.study_state import Phase, State, Trial

Placed = tuple[Phase, float]
STOCK, ADVICE, OTHER = Phase.BASELINE, Phase.RECOMMENDED, Phase.SEARCH
# Measurements of the proof of trial 2, in pairs
PROOF = ((0, 90.0), (2, 121.0), (2, 120.0), (0, 91.0), (0, 90.0), (2, 120.0), (2, 121.0), (0, 90.0))


def believed(*peaks: Placed, sd: float = 0.05) -> State:
    """A searched state: where the model stands on each trial, in order."""
    measured = Peak(100.0, 90.0, 110.0, sd, "measured")
    trials = [Trial(n, phase, {}, peak=measured) for n, (phase, _) in enumerate(peaks)]
    posterior = PosteriorPeaks(
        {n: Estimate.from_value(peak, sd) for n, (_, peak) in enumerate(peaks)}, sd
    )
    return State(trials=tuple(trials), posterior=posterior)


def measured_again(state: State, phase: Phase, *peaks: tuple[int, float]) -> State:
    more = tuple(
        Trial(
            len(state.trials) + n,
            phase,
            {},
            source_trial=of,
            peak=Peak(peak, peak, peak, 0.03, "measured"),
        )
        for n, (of, peak) in enumerate(peaks)
    )
    return replace(state, trials=(*state.trials, *more))


def build_searched_study(space: SearchSpace) -> State:
    """A study whose peaks depend only on ``t.s.a``. Trial 12 is the winner."""
    draws = Random("searched study")
    searched = [{name: draws.randint(1, 9) for name in space.baseline} for _ in range(11)]
    configurations: list[Settings] = [space.baseline, *searched, dict.fromkeys(space.baseline, 9)]
    peaks = [400.0 + 100.0 * float(settings["t.s.a"]) for settings in configurations]
    trials = [
        Trial(
            number,
            Phase.SEARCH if number else Phase.BASELINE,
            settings,
            peak=Peak(peak, 0.97 * peak, 1.03 * peak, 0.02, "measured"),
        )
        for number, (settings, peak) in enumerate(zip(configurations, peaks, strict=True))
    ]
    estimates = {trial.number: trial.peak.estimate for trial in trials if trial.peak}
    return State(trials=tuple(trials), posterior=PosteriorPeaks(estimates, 0.02))
