from __future__ import annotations

import numpy as np
import pytest
from spaces import dimension

from autotune.estimate import InstanceCapacity
from autotune.optimize.gp import composite
from autotune.optimize.gp.composite import (
    SHARPNESS_CHOICES,
    CompositeModel,
    compute_soft_minimum,
    fit_composite,
)
from autotune.optimize.gp.gaussian_process import compute_axis_covariance
from autotune.optimize.gp.grid import ParameterGrid
from autotune.space.space import SearchSpace

TIERS = ("lb", "web", "cache")
NAMES = [f"{tier}.x.p{n}" for tier in TIERS for n in range(3)]
SPACE = SearchSpace(tuple(dimension(n, baseline=0.5, low=0.0, high=1.0) for n in NAMES), (), {})
GRID = ParameterGrid.from_dimensions(SPACE.tunable_dimensions, SPACE.baseline)
TOPS = np.array([6.5, 6.7, 8.0])


def truth(points: np.ndarray) -> np.ndarray:
    """Log capacity of each tier: its first parameter has a best, the others do nothing."""
    units = points / 100.0
    return TOPS[:, None] - 2.0 * (units[:, [0, 3, 6]].T - np.array([[0.8], [0.7], [0.3]])) ** 2


def measured(
    count: int, *, missing: float = 0.0, wrong: float = 0.0
) -> tuple[np.ndarray, np.ndarray, list[dict[str, InstanceCapacity]]]:
    """Points, their log peaks and what they tell of the tiers; ``wrong``: all that is told of
    the web.
    """
    rng = np.random.default_rng(3)
    points = (rng.random((count, len(NAMES))) * GRID.level_counts).astype(int)
    parts = truth(points)
    told = [
        {
            f"{tier}.cpu": InstanceCapacity(
                float(parts[k, i] + rng.normal(0, 0.1) + wrong * (tier == "web")), 0.1, (tier,)
            )
            for k, tier in enumerate(TIERS)
            if rng.random() >= missing
        }
        for i in range(count)
    ]
    return points, compute_soft_minimum(parts, 4.0) - 0.2 + rng.normal(0, 0.03, count), told


def fitted(
    points: np.ndarray, log_peaks: np.ndarray, told: list[dict[str, InstanceCapacity]]
) -> CompositeModel:
    covariance_tables = tuple(
        compute_axis_covariance(a, int(p))
        for a, p in zip(GRID.axes, points[log_peaks.argmax()], strict=True)
    )
    found = fit_composite(
        GRID, covariance_tables, points, told, log_peaks, np.full(len(points), 0.03)
    )
    assert found is not None
    return found


def test_it_knows_the_way_up_for_a_tier_that_does_not_limit_yet() -> None:
    found = fitted(*measured(16))
    best = np.array([80, 50, 50, 70, 50, 50, 30, 50, 50])
    wide = np.array([80, 50, 50, 20, 50, 50, 30, 50, 50])
    mean, sd = found.predict(np.array([best, wide]))
    assert mean[0] - mean[1] > 0.15
    assert (sd > 0).all()
    assert found.sharpness in SHARPNESS_CHOICES


@pytest.mark.parametrize(("missing", "wrong"), [(0.0, 0.0), (0.35, 0.0), (0.0, -2.0), (0.35, -2.0)])
def test_parts_that_are_missing_or_read_wrong_cost_little(missing: float, wrong: float) -> None:
    points, log_peaks, told = measured(24, missing=missing, wrong=wrong)
    found = fitted(points, log_peaks, told)
    new = (np.random.default_rng(9).random((200, len(NAMES))) * GRID.level_counts).astype(int)
    mean, _ = found.predict(new)
    true = compute_soft_minimum(truth(new), 4.0)
    assert np.corrcoef(mean, true)[0, 1] > 0.6


def test_demand_on_a_tier_may_depend_on_the_tiers_that_are_called_with_it() -> None:
    rng = np.random.default_rng(5)
    points = (rng.random((16, len(NAMES))) * GRID.level_counts).astype(int)
    web = 6.0 - 2.0 * (points[:, NAMES.index("cache.x.p0")] / 100 - 0.8) ** 2
    told = [
        {
            "web.cpu": InstanceCapacity(float(log), 0.05, ("web",)),
            "web.workers": InstanceCapacity(9.0, 0.05, ("web", "cache")),
            "lb.cpu": InstanceCapacity(9.0, 0.05, ("lb",)),
        }
        for log in web
    ]
    found = fitted(points, web + rng.normal(0, 0.02, len(web)), told)
    tiers = [{NAMES[axis].partition(".")[0] for axis in m.axes} for m in found.capacity_models]
    assert {"web", "cache"} in tiers
    assert not any("lb" in each and len(each) > 1 for each in tiers)
    small = np.full(len(NAMES), 50)
    large = small.copy()
    small[NAMES.index("cache.x.p0")], large[NAMES.index("cache.x.p0")] = 20, 80
    (low, high), _ = found.predict(np.array([small, large]))
    assert high - low > 0.3


def searched(seed: int) -> tuple[np.ndarray, ...]:
    """Points as a search tries them, eight anywhere and others near the best of these; more near it."""
    rng = np.random.default_rng(seed)
    first = (rng.random((8, len(NAMES))) * GRID.level_counts).astype(int)
    leader = first[compute_soft_minimum(truth(first), 4.0).argmax()]
    changed = rng.random((216, len(NAMES))) < 0.3
    steps = rng.integers(-25, 26, changed.shape)
    near = np.clip(leader + steps * changed, 0, 100)
    return np.vstack([first, near[:16]]), near[16:]


def test_peaks_tell_what_the_narrowest_part_carries(monkeypatch: pytest.MonkeyPatch) -> None:
    errors: dict[float, list[float]] = {}
    for seed in range(8):
        points, new = searched(seed)
        rng, parts = np.random.default_rng(seed), truth(points)
        log_peaks = compute_soft_minimum(parts, 4.0) + rng.normal(0, 0.03, len(points))
        told = [
            {
                f"{tier}.cpu": InstanceCapacity(log + rng.normal(0, 0.15), 0.15, (tier,))
                for tier, log in zip(TIERS, each, strict=True)
            }
            for each in parts.T
        ]
        for near in (0.0, composite.NEAR_BEST_MARGIN):  # without and with what peaks say
            with monkeypatch.context() as patched:
                patched.setattr(composite, "NEAR_BEST_MARGIN", near)
                mean, _ = fitted(points, log_peaks, told).predict(new)
            errors.setdefault(near, []).append(np.std(mean - compute_soft_minimum(truth(new), 4.0)))
    without, with_peaks = map(np.mean, errors.values())
    assert with_peaks < 0.9 * without


def test_a_disturbed_peak_tells_parts_nothing() -> None:
    points, log_peaks, told = measured(24)
    best = int(log_peaks.argmax())
    disturbed = log_peaks.copy()
    disturbed[best] -= 0.6
    parts = [
        model.predict(points[[best]])[0]
        for peaks in (log_peaks, disturbed)
        for model in fitted(points, peaks, told).capacity_models
    ]
    as_measured, as_disturbed = np.array(parts).reshape(2, -1)
    assert as_disturbed == pytest.approx(as_measured, abs=0.1)


def test_without_enough_said_of_parts_there_is_none() -> None:
    points, log_peaks, told = measured(12)
    covariance_tables = tuple(compute_axis_covariance(axis) for axis in GRID.axes)
    sds = np.full(12, 0.03)
    assert fit_composite(GRID, covariance_tables, points, [{}] * 12, log_peaks, sds) is None
    alone = [{"lb.cpu": each["lb.cpu"]} for each in told]
    assert fit_composite(GRID, covariance_tables, points, alone, log_peaks, sds) is None
    assert (
        fit_composite(GRID, covariance_tables, points, [*told[:3], *[{}] * 9], log_peaks, sds)
        is None
    )


def test_draws_are_of_what_is_predicted() -> None:
    found = fitted(*measured(16))
    new = (np.random.default_rng(5).random((6, len(NAMES))) * GRID.level_counts).astype(int)
    mean, sd = found.predict(new)
    drawn = found.draw_samples(new, 2000, np.random.default_rng(1))
    assert drawn.mean(axis=0) == pytest.approx(mean, abs=0.03)
    assert drawn.std(axis=0) == pytest.approx(sd, rel=0.3)


def test_the_soft_minimum_is_a_little_below_the_least() -> None:
    parts = np.array([[1.0], [1.0], [9.0]])
    assert compute_soft_minimum(parts, 4.0)[0] == pytest.approx(1.0 - np.log(2) / 4.0, abs=1e-6)
