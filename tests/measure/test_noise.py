from __future__ import annotations

import numpy as np
import pytest

from autotune.measure.noise import (
    LOG_RATE_STEP,
    NOISE_SDS,
    TABLE_REACH_STEPS,
    Noise,
    average_over_loss,
    build_prior_noise_weights,
)

WIDTH = 2 * TABLE_REACH_STEPS + 1


def expected_sd(noise: Noise) -> float:
    """The expected sd of the log capacity between readings of one configuration."""
    weights = np.reshape(noise.weights or build_prior_noise_weights(), (len(NOISE_SDS), -1))
    sd_weights = weights.sum(axis=1)
    return float(np.dot(sd_weights, NOISE_SDS) / sd_weights.sum())


def test_a_constant_stays_what_it_is() -> None:
    blurred = average_over_loss(np.full((1, WIDTH), 0.3))
    assert blurred == pytest.approx(np.full((len(NOISE_SDS), 1, WIDTH), 0.3))


def test_losses_are_one_sided() -> None:
    spike = np.zeros((1, WIDTH))
    spike[0, TABLE_REACH_STEPS] = 1.0
    offsets = LOG_RATE_STEP * np.arange(-TABLE_REACH_STEPS, TABLE_REACH_STEPS + 1)
    for sigma, row in zip(NOISE_SDS, average_over_loss(spike)[:, 0, :], strict=True):
        # A reading at the peak may come from a rate far below it, not from one far above.
        far = 5.0 * sigma + 2 * LOG_RATE_STEP
        below, above = row[offsets < -far].sum(), row[offsets > far].sum()
        assert below > 0.05 * np.exp(-far / 0.3)  # a loss of 30 % in the mean, one in twenty
        assert above < 1e-6
        assert row.sum() == pytest.approx(1.0, abs=0.02)


def test_what_was_learned_opens_the_next_search_but_can_be_unlearned() -> None:
    shapes = np.full((3, 2), 1.0 / 3.0)
    weights = np.zeros((len(NOISE_SDS), 3))
    weights[-1, 0] = 5.0
    learned = Noise().learn(weights, readings=7)
    opening = learned.build_prior(shapes)
    assert expected_sd(learned) == NOISE_SDS[-1]
    assert learned.readings == 7
    assert opening.sum(axis=(0, 1)) == pytest.approx([1.0, 1.0])
    assert opening[-1, 0, 0] > 0.7
    assert opening.min() > 0.0


def test_weights_of_another_family_of_shapes_are_not_misread() -> None:
    odd = Noise().learn(np.ones((len(NOISE_SDS), 4)), readings=3)
    assert odd.build_prior(np.full((3, 2), 1.0 / 3.0)).shape == (len(NOISE_SDS), 3, 2)


def test_refuses_weights_that_are_not_a_row_a_level() -> None:
    with pytest.raises(ValueError, match="row of weights"):
        Noise(weights=(1.0,))
