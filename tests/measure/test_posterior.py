from __future__ import annotations

from math import exp, log

import pytest

from autotune.measure import Estimate, Noise, Reading, Slo
from autotune.measure.posterior import Counts, Posterior, judge

SLO = Slo(quantile=0.99, limit=0.050, errors=0.001)


def opening(prior: Estimate | None = None) -> Posterior:
    return Posterior.opening(prior, Noise(), SLO, lowest=1.0, highest=1e5, through=1000.0)


def reading(violations: int, *, rate: float = 1000.0, truncated: bool = False) -> Reading:
    return Reading(rate, 2.0, int(2 * rate), violations, truncated=truncated)


@pytest.mark.parametrize(
    ("errors", "violations", "counts"),
    [
        ({}, 30, Counts(30.0, 1000.0, 0.01)),
        ({"status 502": 2}, 5, Counts(2.0, 1000.0, 0.001)),
        ({"status 502": 2}, 40, Counts(40.0, 1000.0, 0.01)),
        ({"status 502": 1000}, 1000, Counts(1000.0, 1000.0, 0.001)),
    ],
)
def test_a_reading_is_judged_by_what_it_comes_closest_to_breaking(
    errors: dict[str, int], violations: int, counts: Counts
) -> None:
    got = judge(Reading(500.0, 2.0, 1000, violations, errors=errors), SLO)
    assert (got.violations, got.intended) == (counts.violations, counts.intended)
    assert got.allowed == pytest.approx(counts.allowed)


def test_nothing_intended_is_a_failure() -> None:
    assert not SLO.met(Reading(500.0, 2.0, 0, 0))


@pytest.mark.parametrize(
    "flawed",
    [
        Reading(500.0, 0.4, 1000, 0, truncated=True),
        Reading(500.0, 2.0, 1000, 0, limited="descriptors"),
    ],
)
def test_flawed_readings_never_pass(flawed: Reading) -> None:
    assert not SLO.met(flawed)


def test_the_prior_is_what_it_says_with_heavy_tails() -> None:
    summary = opening(Estimate.of(1000.0, 0.3)).summary()
    assert exp(summary.quantile(0.5)) == pytest.approx(1000.0, rel=0.05)
    assert summary.chance_above(Estimate.of(3000.0)) > 0.01


@pytest.mark.parametrize("sd", [0.0, -1.0])
def test_a_prior_needs_a_width(sd: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        opening(Estimate.of(1000.0, sd))


def test_more_violations_mean_a_lower_peak() -> None:
    medians = [
        opening(Estimate.of(1000.0, 0.35)).after(reading(k), SLO).summary().quantile(0.5)
        for k in (0, 5, 20, 100, 600, 1990)
    ]
    assert medians == sorted(medians, reverse=True)


def test_a_reading_cut_short_is_a_failure_whatever_it_counted() -> None:
    before = opening(Estimate.of(1000.0, 0.35))
    after = before.after(reading(0, truncated=True), SLO)
    assert after.summary().quantile(0.5) < before.summary().quantile(0.5)


def test_a_reading_the_generator_limited_says_nothing() -> None:
    before = opening(Estimate.of(1000.0, 0.35))
    assert before.after(Reading(1000.0, 2.0, 2000, 2000, limited="ports"), SLO) is before


def test_one_failure_does_not_outweigh_three_passes() -> None:
    posterior = opening(Estimate.of(1000.0, 0.35)).after(reading(1900, rate=800.0), SLO)
    for rate in (900.0, 950.0, 1000.0):
        posterior = posterior.after(reading(0, rate=rate), SLO)
    assert posterior.summary().quantile(0.05) > log(850.0)
