from __future__ import annotations

import numpy as np
import pytest

from autotune.simulate.noise import CORRELATION_SECONDS, NoiseModel


def logs(noise: NoiseModel, times: np.ndarray) -> np.ndarray:
    return np.array(
        [
            np.log(noise.draw_capacity_factor(at, noise.create_reading_rng(n)))
            for n, at in enumerate(times)
        ]
    )


def test_no_noise_changes_nothing() -> None:
    calm = NoiseModel(reading_sd=0.0, drift_sd=0.0, outlier_share=0.0)
    assert set(logs(calm, np.arange(20.0))) == {0.0}


def test_the_noise_has_its_sd_and_near_readings_share_half_of_it() -> None:
    times = np.arange(4000) * 3.0
    found = logs(NoiseModel(seed=3, reading_sd=0.04, outlier_share=0.0), times)
    assert found.std() == pytest.approx(0.04, rel=0.1)
    assert np.corrcoef(found[:-1], found[1:])[0, 1] == pytest.approx(0.5, abs=0.07)
    far = round(3 * CORRELATION_SECONDS / 3.0)
    assert np.corrcoef(found[:-far], found[far:])[0, 1] == pytest.approx(0.0, abs=0.12)


def test_disturbances_only_take_away_and_come_as_often_as_said() -> None:
    found = logs(NoiseModel(seed=5, reading_sd=0.0, outlier_share=0.05), np.arange(3000.0))
    assert found.max() == 0.0
    assert np.mean(found < 0) == pytest.approx(0.05, abs=0.015)
    assert np.exp(found.min()) > 0.44


def test_drift_is_slow_and_goes_as_far_as_said() -> None:
    found = logs(
        NoiseModel(seed=2, reading_sd=0.0, outlier_share=0.0, drift_sd=0.1),
        np.arange(0, 4800, 10.0),
    )
    assert np.exp(found.max()) == pytest.approx(1.1, abs=0.002)
    assert np.exp(found.min()) == pytest.approx(0.9, abs=0.002)
    assert np.abs(np.diff(found)).max() < 0.004


def test_the_same_seed_has_the_same_noise_at_any_moment_and_another_has_not() -> None:
    one, again, other = NoiseModel(seed=7), NoiseModel(seed=7), NoiseModel(seed=8)
    assert one.draw_capacity_factor(500.0, one.create_reading_rng(9)) == again.draw_capacity_factor(
        500.0, again.create_reading_rng(9)
    )
    assert one.draw_capacity_factor(500.0, one.create_reading_rng(9)) != other.draw_capacity_factor(
        500.0, other.create_reading_rng(9)
    )
