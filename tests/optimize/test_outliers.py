"""Which measurements count as disturbed."""

from __future__ import annotations

from math import exp

import numpy as np
import pytest

from autotune.estimate import Estimate
from autotune.optimize.outliers import (
    compute_max_repeat_difference,
    exceeds_prediction,
    find_outlier_threshold,
)


@pytest.mark.parametrize(("sd", "difference"), [(0.01, 0.15), (0.0375, 0.15), (0.1, 0.4)])
def test_noisier_repeats_may_differ_more(sd: float, difference: float) -> None:
    assert compute_max_repeat_difference(sd) == pytest.approx(difference)
    peaks = [Estimate.from_value(100.0, sd) for _ in range(5)]
    assert find_outlier_threshold(peaks) == pytest.approx(100 * exp(-difference))


def test_two_repeats_do_not_show_which_of_them_was_disturbed() -> None:
    assert find_outlier_threshold([Estimate.from_value(value, 0.01) for value in (100, 20)]) == 0.0


@pytest.mark.parametrize(
    ("values", "disturbed"),
    [
        ((60, 60, 150, 150), 0),
        ((60, 150, 150, 150), 1),
        ((150, 60, 60, 150, 150), 0),
        ((60, 150, 150), 1),
        ((60, 60, 150, 150, 150, 150, 150, 150), 2),
        ((60, 60, 60, 150, 150, 150, 150, 150), 0),
    ],
)
def test_only_a_minority_of_repeats_is_disturbed(values: tuple[int, ...], disturbed: int) -> None:
    threshold = find_outlier_threshold([Estimate.from_value(value, 0.02) for value in values])
    assert sum(value < threshold for value in values) == disturbed


def test_a_difference_counts_in_multiples_of_its_sd() -> None:
    differences, sds = np.array([0.29, 0.31, 0.31, -9.0]), np.array([0.1, 0.1, 0.2, 0.1])
    assert exceeds_prediction(differences, sds).tolist() == [False, True, False, False]
