from __future__ import annotations

from math import exp, hypot, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.estimate import SDS_WITHIN_90, Estimate, compute_half_width

estimates = st.builds(Estimate.from_value, st.floats(1e-3, 1e6), st.floats(0.0, 0.5))


def test_ninety_percent_is_what_tables_say() -> None:
    assert (SDS_WITHIN_90, compute_half_width(0.95)) == (1.645, 1.960)


def test_the_interval_is_symmetric_in_the_logarithm() -> None:
    low, high = Estimate.from_value(1000.0, 0.1).interval()
    assert low == pytest.approx(1000 * exp(-0.1645))
    assert high == pytest.approx(1000 * exp(0.1645))
    assert Estimate.from_value(1000.0, 0.1).interval(0.95)[0] < low


@given(estimates, estimates)
def test_a_ratio_has_the_uncertainty_of_both(one: Estimate, other: Estimate) -> None:
    ratio = one.ratio_to(other)
    assert ratio.value == pytest.approx(one.value / other.value)
    assert ratio.sd == pytest.approx(hypot(one.sd, other.sd))
    assert ratio.value * other.ratio_to(one).value == pytest.approx(1.0)


def test_noise_adds_to_what_it_says_of_itself() -> None:
    assert Estimate.from_value(10.0, 0.03).widen_by_noise(0.04).sd == pytest.approx(0.05)


def test_precise_measurements_weigh_more() -> None:
    assert (
        Estimate.pool([Estimate.from_value(1000, 0.02), Estimate.from_value(2000, 0.2)]).value
        < 1010
    )


def test_measurements_that_scatter_are_less_sure() -> None:
    apart = Estimate.pool([Estimate.from_value(value, 0.02) for value in (900, 1000, 1111)])
    agreeing = Estimate.pool([Estimate.from_value(1000, 0.02)] * 3)
    assert agreeing.sd == pytest.approx(0.02 / 3**0.5)
    assert apart.sd == pytest.approx(agreeing.sd * log(1000 / 900) / 0.02, rel=0.01)


@given(st.lists(estimates, min_size=1, max_size=9))
def test_what_is_pooled_lies_among_the_measurements(measured: list[Estimate]) -> None:
    logs = [estimate.log_mean for estimate in measured]
    assert min(logs) - 1e-9 <= Estimate.pool(measured).log_mean <= max(logs) + 1e-9


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_only_positive_quantities_have_one(value: float) -> None:
    with pytest.raises(ValueError, match="math domain error"):
        Estimate.from_value(value)
