from __future__ import annotations

from math import exp, log

import numpy as np
import pytest

from autotune.measure import Estimate, Noise, Reading, Slo
from autotune.measure.noise import LOG_RATE_STEP
from autotune.measure.onset import FLAT_FRACTIONS, Onset
from autotune.measure.posterior import (
    PeakPosterior,
    PosteriorSummary,
    ViolationCounts,
    compute_bound_likelihood,
    compute_flat_likelihood,
    compute_shape_likelihood,
    select_worst_counts,
)

SLO = Slo(quantile=0.99, limit=0.050, errors=0.001)


def opening(prior: Estimate | None = None) -> PeakPosterior:
    return PeakPosterior.start(
        prior, Noise(), SLO.limit, lowest_rate=1.0, highest_rate=1e5, expected_rate=1000.0
    )


def reading(violations: int, *, rate: float = 1000.0, truncated: bool = False) -> Reading:
    return Reading(rate, 2.0, int(2 * rate), violations, truncated=truncated)


@pytest.mark.parametrize(
    ("errors", "violations", "counts"),
    [
        ({}, 30, ViolationCounts(30.0, 1000.0, 0.01)),
        ({"status 502": 2}, 5, ViolationCounts(2.0, 1000.0, 0.001)),
        ({"status 502": 2}, 40, ViolationCounts(40.0, 1000.0, 0.01)),
        ({"status 502": 1000}, 1000, ViolationCounts(1000.0, 1000.0, 0.001)),
    ],
)
def test_a_reading_is_judged_by_what_it_comes_closest_to_breaking(
    errors: dict[str, int], violations: int, counts: ViolationCounts
) -> None:
    got = select_worst_counts(Reading(500.0, 2.0, 1000, violations, errors=errors), SLO)
    assert (got.violations, got.intended) == (counts.violations, counts.intended)
    assert got.allowed_share == pytest.approx(counts.allowed_share)


def test_nothing_intended_is_a_failure() -> None:
    assert not SLO.is_met(Reading(500.0, 2.0, 0, 0))


@pytest.mark.parametrize(
    "flawed",
    [
        Reading(500.0, 0.4, 1000, 0, truncated=True),
        Reading(500.0, 2.0, 1000, 0, limited="descriptors"),
    ],
)
def test_flawed_readings_never_pass(flawed: Reading) -> None:
    assert not SLO.is_met(flawed)


def test_the_prior_is_what_it_says_with_heavy_tails() -> None:
    summary = opening(Estimate.from_value(1000.0, 0.3)).summarize()
    assert exp(summary.quantile(0.5)) == pytest.approx(1000.0, rel=0.05)
    assert summary.probability_above(Estimate.from_value(3000.0)) > 0.01


@pytest.mark.parametrize(
    ("weights", "split"),
    [
        ([1, 2, 3, 2, 1], (1.5, 2.5)),  # symmetric: next to the median
        ([5, 5, 0, 0, 0, 0, 1], (1.0, 6.0)),  # between two parts, far above the median
        ([1, 0, 0, 0, 0, 5, 5], (0.0, 5.0)),
    ],
)
def test_the_variance_is_split_between_the_parts_of_a_distribution(
    weights: list[float], split: tuple[float, float]
) -> None:
    distribution = np.cumsum(weights) / np.sum(weights)
    summary = PosteriorSummary(log(100.0), distribution, np.ones((1, 1)), 0.0)
    steps = (summary.find_variance_split() - log(100.0)) / LOG_RATE_STEP
    assert split[0] <= steps <= split[1]


@pytest.mark.parametrize("sd", [0.0, -1.0])
def test_a_prior_needs_a_width(sd: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        opening(Estimate.from_value(1000.0, sd))


def test_more_violations_mean_a_lower_peak() -> None:
    medians = [
        opening(Estimate.from_value(1000.0, 0.35))
        .with_reading(reading(k), SLO)
        .summarize()
        .quantile(0.5)
        for k in (0, 5, 20, 100, 600, 1990)
    ]
    assert np.all(np.diff(medians) < LOG_RATE_STEP)  # overload is overload


def test_a_reading_cut_short_is_a_failure_whatever_it_counted() -> None:
    before = opening(Estimate.from_value(1000.0, 0.35))
    after = before.with_reading(reading(0, truncated=True), SLO)
    assert after.summarize().quantile(0.5) < before.summarize().quantile(0.5)


def test_a_reading_the_generator_limited_says_nothing() -> None:
    before = opening(Estimate.from_value(1000.0, 0.35))
    assert before.with_reading(Reading(1000.0, 2.0, 2000, 2000, limited="ports"), SLO) is before


def test_one_failure_does_not_outweigh_three_passes() -> None:
    posterior = opening(Estimate.from_value(1000.0, 0.35)).with_reading(
        reading(1900, rate=800.0), SLO
    )
    for rate in (900.0, 950.0, 1000.0):
        posterior = posterior.with_reading(reading(0, rate=rate), SLO)
    assert posterior.summarize().quantile(0.05) > log(850.0)


FRACTION = np.array([[0.0, 0.001, 0.01, 0.1, 0.4, 0.9, 1.0, np.nan]])


def shown(likeness: float, fraction: np.ndarray = FRACTION) -> Onset:
    return Onset(fraction, np.full_like(fraction, likeness))


@pytest.mark.parametrize("intended", [40, 600])
@pytest.mark.parametrize("likeness", [0.0, 0.05, 0.6, 1.0, np.nan])
def test_chances_of_all_counts_sum_to_one(intended: int, likeness: float) -> None:
    if np.isnan(likeness):  # only where overload leaves everything open
        onset = Onset(FRACTION, np.where(np.isnan(FRACTION), np.nan, 0.1))
    else:
        onset = shown(likeness)
    counts = range(intended + 1)
    total = sum(compute_shape_likelihood(float(k), float(intended), onset) for k in counts)
    assert total == pytest.approx(np.ones_like(FRACTION), abs=0.02)


def test_chances_of_a_server_without_a_peak_sum_to_one() -> None:
    total = sum(compute_flat_likelihood(float(k), 200.0, 0.01) for k in range(201))
    assert total == pytest.approx(np.ones_like(FLAT_FRACTIONS), abs=1e-6)


def test_requests_independent_of_each_other_are_binomial() -> None:
    few = Onset(np.array([[0.02]]), np.array([[0.0]]))
    chances = [compute_shape_likelihood(float(k), 50.0, few)[0, 0] for k in (0, 1, 2)]
    binomial = [0.98**50, 50 * 0.02 * 0.98**49, 1225 * 0.02**2 * 0.98**48]
    assert chances == pytest.approx(binomial, rel=0.04)


def test_busy_periods_make_none_and_many_likelier_than_some() -> None:
    fraction = np.array([[0.01]])
    alone, bursts = shown(0.0, fraction), shown(0.3, fraction)
    for violations, likelier in [(0.0, bursts), (20.0, alone), (200.0, bursts)]:
        other = alone if likelier is bursts else bursts
        more = compute_shape_likelihood(violations, 2000.0, likelier)
        assert more > 2.0 * compute_shape_likelihood(violations, 2000.0, other)


def test_a_floor_under_the_truth_is_no_evidence_against_it() -> None:
    table = compute_bound_likelihood(50.0, 100.0, np.array([0.01, 0.5, 0.99]))
    assert table[0] < 0.05 < table[1] < table[2]
