from __future__ import annotations

import numpy as np
import pytest

from autotune.measure import likelihood
from autotune.measure.onset import FLAT, Onset

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
    total = sum(likelihood.chance(float(k), float(intended), onset) for k in counts)
    assert total == pytest.approx(np.ones_like(FRACTION), abs=0.02)


def test_chances_of_a_server_without_a_peak_sum_to_one() -> None:
    total = sum(likelihood.flat_chance(float(k), 200.0, 0.01) for k in range(201))
    assert total == pytest.approx(np.ones_like(FLAT), abs=1e-6)


def test_requests_independent_of_each_other_are_binomial() -> None:
    few = Onset(np.array([[0.02]]), np.array([[0.0]]))
    chances = [likelihood.chance(float(k), 50.0, few)[0, 0] for k in (0, 1, 2)]
    binomial = [0.98**50, 50 * 0.02 * 0.98**49, 1225 * 0.02**2 * 0.98**48]
    assert chances == pytest.approx(binomial, rel=0.04)


def test_busy_periods_make_none_and_many_likelier_than_some() -> None:
    fraction = np.array([[0.01]])
    alone, bursts = shown(0.0, fraction), shown(0.3, fraction)
    for violations, likelier in [(0.0, bursts), (20.0, alone), (200.0, bursts)]:
        other = alone if likelier is bursts else bursts
        more = likelihood.chance(violations, 2000.0, likelier)
        assert more > 2.0 * likelihood.chance(violations, 2000.0, other)


def test_a_floor_under_the_truth_is_no_evidence_against_it() -> None:
    table = likelihood.at_least(50.0, 100.0, np.array([0.01, 0.5, 0.99]))
    assert table[0] < 0.05 < table[1] < table[2]
