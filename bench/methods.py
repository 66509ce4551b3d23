"""Established methods for finding a peak, each with ``probe(rate, seconds)`` and a guess of the
peak.

If a method needs a bracket, it spans a factor of 4 on either side of the guess. All methods treat a
reading as either a pass or a failure.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

from autotune.measure import Reading, Slo

Probe = Callable[[float, float], Reading]
Method = Callable[[Probe, Slo, float], float]

_REACH = 4.0
_WIDTH = 1.02  # ratio of a bracket's ends at which a search stops


def ramp(probe: Probe, slo: Slo, guess: float) -> float:
    """Increase the rate by 10 % every 5 s until a failure, starting at half the guess (or less,
    until a reading passes).
    """
    rate = guess / 2.0
    while not slo.is_met(probe(rate, 5.0)):
        rate /= 2.0
    while slo.is_met(probe(rate * 1.1, 5.0)):
        rate *= 1.1
    return rate


def bisection(probe: Probe, slo: Slo, guess: float) -> float:
    """Bisect with eight readings of 5 s."""
    return _bisect(guess / _REACH, guess * _REACH, lambda rate: slo.is_met(probe(rate, 5.0)))


def best_of_three(probe: Probe, slo: Slo, guess: float) -> float:
    """Bisect, and measure each rate until two readings of 5 s agree."""

    def majority(rate: float) -> bool:
        votes = [slo.is_met(probe(rate, 5.0)), slo.is_met(probe(rate, 5.0))]
        return votes[0] if votes[0] == votes[1] else slo.is_met(probe(rate, 5.0))

    return _bisect(guess / _REACH, guess * _REACH, majority)


def exponential(probe: Probe, slo: Slo, guess: float) -> float:
    """Search in the same way as Nighthawk: double the rate from half the guess until a failure,
    then bisect, with readings of 10 s.
    """
    low, high = 0.0, guess / 2.0
    while slo.is_met(probe(high, 10.0)):
        low, high = high, high * 2.0
    return _bisect(low or high / 16.0, high, lambda rate: slo.is_met(probe(rate, 10.0)))


def mlrsearch(probe: Probe, slo: Slo, guess: float) -> float:
    """Search with MLRsearch of FD.io CSIT (PyPI): trials of 1 to 5 s, 15 s in total at a bound."""
    import MLRsearch as mlr  # noqa: N813 - the package has this name

    class Measurer(mlr.AbstractMeasurer):
        def measure(self, intended_duration: float, intended_load: float) -> Any:
            got = probe(float(intended_load), intended_duration)
            sent = max(1, int(intended_load * intended_duration))
            # A reading that was cut short has failed, and its fraction counts for the whole trial.
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
    config.min_load = guess / 16.0  # in this order, because each value is checked against the other
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
