"""The latency objective at its exact limits."""

from __future__ import annotations

import pytest

from autotune.measure import Reading
from autotune.target.model import SloSpec

PERCENTILES = ("p50", "p75", "p80", "p90", "p93", "p95", "p98", "p99", "p99.5", "p99.9", "p99.95")
REQUESTS = 20_000  # of which every percentile allows a whole number


@pytest.mark.parametrize("percentile", PERCENTILES)
def test_exactly_the_allowed_fraction_may_be_late(percentile: str) -> None:
    """As a decimal fraction, 1 - 0.9 is slightly less than 0.1."""
    slo = SloSpec.model_validate({percentile: "50ms"}).objective
    allowed_count = round((100 - float(percentile[1:])) / 100 * REQUESTS)

    def read(late_count: int) -> Reading:
        histogram = {0.01: REQUESTS - late_count, 0.2: late_count}
        return Reading(1000.0, 20.0, REQUESTS, late_count, histogram=histogram)

    assert slo.is_met(read(allowed_count))
    assert not slo.is_met(read(allowed_count + 1))
    assert read(allowed_count).percentile(slo.quantile) == 0.01


def test_exactly_the_allowed_fraction_may_fail() -> None:
    slo = SloSpec.model_validate({"p90": "50ms", "errors": "10%"}).objective
    assert slo.is_met(Reading(2.0, 5.0, 10, 1, {"5xx": 1}, {0.01: 9}))
    assert not slo.is_met(Reading(2.0, 5.0, 10, 2, {"5xx": 2}, {0.01: 8}))
