from __future__ import annotations

import numpy as np
import pytest

from autotune.measure import Capacity, Limits, Noise, Prior, Reading, Slo, search

SLO = Slo(quantile=0.99, limit=0.050, errors=0.001)


class Queue:
    """A server that meets the objective up to ``peak``: its tail grows by e for ``1 / slope`` of load."""

    def __init__(self, peak: float, seed: int, noise: float = 0.03, slope: float = 60.0) -> None:
        self.peak, self.noise, self.slope = peak, noise, slope
        self.rng = np.random.default_rng(seed)
        self.rates: list[float] = []

    def __call__(self, rate: float, seconds: float) -> Reading:
        self.rates.append(rate)
        gap = np.log(rate / self.peak) + self.noise * self.rng.standard_normal()
        fraction = min(0.01 * np.exp(min(self.slope * gap, 9.0)), 0.97)
        n = int(rate * seconds)
        return Reading.from_counts(
            rate=rate, seconds=seconds, intended=n, violations=int(self.rng.binomial(n, fraction))
        )


def test_finds_a_known_peak() -> None:
    found = search(Queue(1500.0, seed=1), SLO, Prior(1200.0))
    assert found.verdict == "measured"
    assert found.low < found.peak < found.high
    assert found.peak == pytest.approx(1500.0, rel=0.06)
    assert found.load_seconds == pytest.approx(sum(r.seconds + 1.0 for r in found.readings))


def test_without_a_prior_the_rates_grow_until_something_fails() -> None:
    found = search(Queue(23_000.0, seed=2), SLO, limits=Limits(start=100.0))
    assert found.verdict == "measured"
    assert found.peak == pytest.approx(23_000.0, rel=0.06)


def test_a_web_server_that_answers_502_fast_is_unmeetable() -> None:
    def broken(rate: float, seconds: float) -> Reading:
        n = max(1, int(rate * seconds))
        return Reading(rate, seconds, n, n, errors={"status 502": n})

    found = search(broken, SLO, Prior(1000.0))
    assert (found.verdict, found.peak) == ("unmeetable", 0.0)


def test_noise_is_learned_and_handed_on() -> None:
    noise = Noise()
    for seed in range(6):
        found: Capacity = search(
            Queue(900.0, seed=seed, noise=0.01), SLO, Prior(900.0), noise=noise
        )
        noise = found.noise
    assert noise.sigma < Noise().sigma
    assert noise.readings > 20
