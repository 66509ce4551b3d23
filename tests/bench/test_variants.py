from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from autotune.services.base import Value
from autotune.space.dimension import Dimension
from bench.variants import VARIANTS, Variant


def drawn(dimension: Dimension, rng: np.random.Generator) -> Value:
    if dimension.choices:
        return dimension.choices[int(rng.integers(len(dimension.choices)))]
    low, high = float(dimension.low or 0), float(dimension.high or 0)
    unit = rng.random()
    return dimension.clip(
        low * (high / low) ** unit if dimension.is_logarithmic else low + unit * (high - low)
    )


def settings(variant: Variant, count: int) -> Iterator[dict[str, Value]]:
    rng = np.random.default_rng(1)
    for _ in range(count):
        yield {d.name: drawn(d, rng) for d in variant.space.dimensions}


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_there_is_a_hill_to_climb_and_a_part_that_fails(variant: Variant) -> None:
    peaks = np.array([variant.true_peak(s) for s in settings(variant, 150)])
    # A space of few parameters has no corner that fails.
    assert (0.1 if not variant.searched else 0.0) <= np.mean(peaks == 0.0) < 0.5
    baseline = variant.true_peak({})
    advised = variant.true_peak(variant.space.preset_settings("recommended"))
    assert 0 < baseline < 0.5 * advised
    assert peaks.max() > 2 * np.median(peaks[peaks > 0])


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_what_is_inactive_has_no_effect(variant: Variant) -> None:
    for chosen in settings(variant, 15):
        active = variant.space.active_parameters(chosen)
        reset = {d.name: d.baseline for d in variant.space.dimensions if d.name not in active}
        assert variant.true_peak({**chosen, **reset}) == variant.true_peak(chosen)


def test_a_measured_peak_scatters_about_the_true_one_and_is_repeatable() -> None:
    variant = VARIANTS["published"]
    true = variant.true_peak({})
    rng = np.random.default_rng(3)
    ratios = np.array([(variant.peak({}, rng) or 0.0) / true for _ in range(300)])
    assert np.median(np.log(ratios)) == pytest.approx(0.0, abs=0.01)
    assert np.mean(ratios < 0.81) == pytest.approx(0.03, abs=0.025)
    assert variant.peak({}, np.random.default_rng(9)) == variant.peak({}, np.random.default_rng(9))


def test_what_cannot_be_used_has_no_peak_at_all() -> None:
    variant = VARIANTS["published"]
    refused = {"lb.nginx.use": "select", "lb.nginx.worker_connections": 2000}
    assert variant.true_peak(refused) == 0.0
    assert variant.peak(refused, np.random.default_rng(1)) is None
