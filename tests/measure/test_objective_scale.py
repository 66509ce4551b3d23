from __future__ import annotations

from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.measure.objective_scale import ASSUMED_SD, EXACT_SD, ObjectiveScale, pool_sd

VALUES = st.floats(-1e9, 1e9).filter(lambda value: value == 0 or abs(value) > 1e-6)
SCALES = st.builds(ObjectiveScale, st.booleans(), VALUES)


@given(SCALES, VALUES, VALUES)
def test_a_higher_score_is_better(scale: ObjectiveScale, one: float, other: float) -> None:
    if one != other:
        better = (one > other) == scale.maximize
        assert (scale.log_score(one) >= scale.log_score(other)) == better or scale.log_score(
            one
        ) == pytest.approx(scale.log_score(other), rel=1e-9)
    assert scale.score(one) > 0


@given(SCALES, VALUES)
def test_a_score_leads_back_to_its_value(scale: ObjectiveScale, value: float) -> None:
    size = max(abs(scale.reference), abs(value), 1e-6)
    assert scale.convert_score_to_value(scale.score(value)) == pytest.approx(
        value, rel=1e-6, abs=1e-6 * size
    )


@given(st.floats(1, 1e6), st.floats(0.02, 1e3))
def test_positive_values_compare_by_their_ratio(reference: float, ratio: float) -> None:
    up, down = ObjectiveScale(True, reference), ObjectiveScale(False, reference)
    assert up.score(reference * ratio) == pytest.approx(reference * ratio)
    assert up.log_score(reference * ratio) - up.log_score(reference) == pytest.approx(log(ratio))
    assert down.log_score(reference * ratio) - down.log_score(reference) == pytest.approx(
        -log(ratio)
    )


@given(SCALES, VALUES)
def test_an_sd_is_carried_over_by_the_slope(scale: ObjectiveScale, value: float) -> None:
    step = 1e-4 * max(abs(value), abs(scale.reference), 1e-3)
    slope = abs(scale.log_score(value + step) - scale.log_score(value - step)) / (2 * step)
    assert scale.log_score_sd(value, 1.0) == pytest.approx(slope, rel=0.05)


@pytest.mark.parametrize("groups", [[], [[1.0]], [[1.0], [7.0]], [[]]])
def test_without_repeats_it_is_assumed(groups: list[list[float]]) -> None:
    assert pool_sd(groups) == pytest.approx(ASSUMED_SD)


def test_the_same_answer_again_and_again_is_exact() -> None:
    assert pool_sd([[2.0, 2.0, 2.0], [5.0]]) == EXACT_SD
    assert pool_sd([[2.0, 2.0]]) > EXACT_SD  # once may be chance


@pytest.mark.parametrize("true", [0.005, 0.01, 0.05, 0.3])
def test_repeats_tell(true: float) -> None:
    rng = np.random.default_rng(3)
    groups = [list(rng.normal(level, true, 3)) for level in range(40)]
    assert pool_sd(groups) == pytest.approx(true, rel=0.2)
