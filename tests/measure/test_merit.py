from __future__ import annotations

from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.measure.merit import Scale

VALUES = st.floats(-1e9, 1e9).filter(lambda value: value == 0 or abs(value) > 1e-6)
SCALES = st.builds(Scale, st.booleans(), VALUES)


@given(SCALES, VALUES, VALUES)
def test_more_merit_is_better(scale: Scale, one: float, other: float) -> None:
    if one != other:
        better = (one > other) == scale.maximize
        assert (scale.log(one) >= scale.log(other)) == better or scale.log(one) == pytest.approx(
            scale.log(other), rel=1e-9
        )
    assert scale.merit(one) > 0


@given(SCALES, VALUES)
def test_a_merit_leads_back_to_its_value(scale: Scale, value: float) -> None:
    size = max(abs(scale.reference), abs(value), 1e-6)
    assert scale.value(scale.merit(value)) == pytest.approx(value, rel=1e-6, abs=1e-6 * size)


@given(st.floats(1, 1e6), st.floats(0.02, 1e3))
def test_positive_values_compare_by_their_ratio(reference: float, ratio: float) -> None:
    up, down = Scale(True, reference), Scale(False, reference)
    assert up.merit(reference * ratio) == pytest.approx(reference * ratio)
    assert up.log(reference * ratio) - up.log(reference) == pytest.approx(log(ratio))
    assert down.log(reference * ratio) - down.log(reference) == pytest.approx(-log(ratio))


@given(SCALES, VALUES)
def test_an_sd_is_carried_over_by_the_slope(scale: Scale, value: float) -> None:
    step = 1e-4 * max(abs(value), abs(scale.reference), 1e-3)
    slope = abs(scale.log(value + step) - scale.log(value - step)) / (2 * step)
    assert scale.sd(value, 1.0) == pytest.approx(slope, rel=0.05)
