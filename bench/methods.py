"""Established methods of searching for the peak of a server.

A method takes readings with ``probe(rate, seconds)`` and starts from a guess of the peak. Brackets span
a factor of 4 on either side of the guess. A reading either passes or fails.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

from autotune.measure import Reading, Slo

Probe = Callable[[float, float], Reading]
Method = Callable[[Probe, Slo, float], float]

_REACH = 4.0
_WIDTH = 1.02  # ratio of a bracket's bounds at which a search stops


def ramp(probe: Probe, slo: Slo, guess: float) -> float:
    """Increase the rate by 10 % every 5 s until a reading fails.

    The first rate is half the guess. The first rate is halved until its reading passes.
    """
    rate = guess / 2.0
    while not slo.is_met(probe(rate, 5.0)):
        rate /= 2.0
    while slo.is_met(probe(rate * 1.1, 5.0)):
        rate *= 1.1
    return rate


def bisection(probe: Probe, slo: Slo, guess: float) -> float:
    """Bisect the bracket with readings of 5 s."""
    return _bisect(guess / _REACH, guess * _REACH, lambda rate: slo.is_met(probe(rate, 5.0)))


def best_of_three(probe: Probe, slo: Slo, guess: float) -> float:
    """Bisect the bracket, and repeat readings of 5 s at each rate until two of them agree."""

    def majority(rate: float) -> bool:
        votes = [slo.is_met(probe(rate, 5.0)), slo.is_met(probe(rate, 5.0))]
        return votes[0] if votes[0] == votes[1] else slo.is_met(probe(rate, 5.0))

    return _bisect(guess / _REACH, guess * _REACH, majority)


def exponential(probe: Probe, slo: Slo, guess: float) -> float:
    """Search as Nighthawk does, with readings of 10 s.

    The first rate is half the guess. The rate is doubled until a reading fails, and then bisected.
    """
    low, high = 0.0, guess / 2.0
    while slo.is_met(probe(high, 10.0)):
        low, high = high, high * 2.0
    return _bisect(low or high / 16.0, high, lambda rate: slo.is_met(probe(rate, 10.0)))


def mlrsearch(probe: Probe, slo: Slo, guess: float) -> float:
    """Search with the MLRsearch package of FD.io CSIT.

    Its trials take 1 to 5 s. A bound needs trials of 15 s in total.
    """
    import MLRsearch as mlr  # noqa: N813 - the package has this name

    class Measurer(mlr.AbstractMeasurer):
        def measure(self, intended_duration: float, intended_load: float) -> Any:
            got = probe(float(intended_load), intended_duration)
            sent = max(1, int(intended_load * intended_duration))
            # If a reading was cut short, the violation fraction is assumed for the whole trial.
            lost = round(sent * got.violation_fraction)
            return mlr.MeasurementResult(
                intended_duration=intended_duration,
                intended_load=intended_load,
                offered_count=sent,
                loss_count=lost,
            )

    goal = mlr.SearchGoal(
        loss_ratio=slo.allowed_violations,
        exceed_ratio=0.5,
        relative_width=_WIDTH - 1.0,
        initial_trial_duration=1.0,
        final_trial_duration=5.0,
        duration_sum=15.0,
        preceding_targets=2,
        expansion_coefficient=2,
        fail_fast=False,
    )
    config = mlr.Config()
    config.goals = [goal]
    config.min_load = guess / 16.0  # before max_load, because each assignment is validated
    config.max_load = guess * 8.0
    config.warmup_duration = None
    found = mlr.MultipleLossRatioSearch(config).search(Measurer(), debug=lambda _: None)
    bound = found[goal].relevant_lower_bound
    return float(bound) if bound else config.min_load


METHODS: dict[str, Method] = {
    "ramp, 10 % steps, 5 s": ramp,
    "bisection, 5 s": bisection,
    "bisection, best of 3": best_of_three,
    "exponential + bisection, 10 s": exponential,
    "MLRsearch, sum 15 s": mlrsearch,
}


def _bisect(low: float, high: float, good: Callable[[float], bool]) -> float:
    while high / low > _WIDTH:
        middle = sqrt(low * high)
        low, high = (middle, high) if good(middle) else (low, middle)
    return low
