from __future__ import annotations

from math import log

import numpy as np
import pytest

from autotune.measure import onset
from autotune.measure.noise import REACH

ALLOWED, LIMIT = 0.01, 0.05


@pytest.mark.parametrize("seconds", [0.5, 2.0, 10.0])
def test_more_load_never_violates_less(seconds: float) -> None:
    for row in onset.fractions(ALLOWED, LIMIT, seconds):
        seen = row[~np.isnan(row)]
        assert np.all(np.diff(seen) >= -1e-9)
        assert np.all((seen >= 0.0) & (seen <= 1.0))


def test_a_long_reading_at_the_peak_shows_the_allowed_fraction() -> None:
    at_peak = onset.fractions(ALLOWED, LIMIT, 5000.0)[:, REACH]
    assert at_peak == pytest.approx(ALLOWED, rel=0.05)


def test_the_slope_at_the_peak_is_the_shapes_own() -> None:
    table = np.log(onset.fractions(ALLOWED, LIMIT, 5000.0)[:, REACH - 1 : REACH + 1])
    slopes = np.diff(table, axis=1)[:, 0] / 0.005
    wanted = [shape.slope for shape in onset.SHAPES]
    plain = [not shape.floor for shape in onset.SHAPES]  # a floor's slope changes within a step
    assert slopes[plain] == pytest.approx(np.array(wanted)[plain], rel=0.01)


def test_overload_seen_for_longer_is_seen_more() -> None:
    steep = [i for i, shape in enumerate(onset.SHAPES) if shape.slope > 400.0]
    short, long = (onset.fractions(ALLOWED, LIMIT, s)[steep, REACH + 6] for s in (1.0, 8.0))
    assert np.all(long > short)


@pytest.mark.parametrize("intended", [40, 600])
def test_chances_of_all_counts_sum_to_one(intended: int) -> None:
    fraction = np.tile(np.array([0.001, 0.01, 0.1, 0.4, np.nan]), (len(onset.SHAPES), 1))
    total = sum(onset.chance(float(k), float(intended), fraction) for k in range(intended + 1))
    # The law that is scattered has no upper end, so a few counts fall beyond the reading.
    assert total == pytest.approx(np.ones_like(fraction), abs=0.04)


def test_a_floor_under_the_truth_is_no_evidence_against_it() -> None:
    table = onset.at_least(50.0, 100.0, np.array([0.01, 0.5, 0.99]))
    assert table[0] < 0.05 < table[1] < table[2]


def test_before_any_reading_a_faster_server_is_expected_to_be_steeper() -> None:
    weights = onset.expected(np.array([log(100.0), log(10_000.0)]), ALLOWED, LIMIT)
    slopes = np.array([shape.slope for shape in onset.SHAPES])
    slow, fast = slopes @ weights
    assert weights.sum(axis=0) == pytest.approx([1.0, 1.0])
    assert fast > 3.0 * slow
