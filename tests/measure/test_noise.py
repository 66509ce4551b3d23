from __future__ import annotations

import numpy as np
import pytest

from autotune.measure.noise import REACH, SIGMAS, STEP, Noise, blur

WIDTH = 2 * REACH + 1


def test_a_constant_stays_what_it_is() -> None:
    blurred = blur(np.full((1, WIDTH), 0.3))
    assert blurred == pytest.approx(np.full((len(SIGMAS), 1, WIDTH), 0.3))


def test_losses_are_one_sided() -> None:
    spike = np.zeros((1, WIDTH))
    spike[0, REACH] = 1.0
    offsets = STEP * np.arange(-REACH, REACH + 1)
    for sigma, row in zip(SIGMAS, blur(spike)[:, 0, :], strict=True):
        # A reading at the peak may come from a rate far below it, not from one far above.
        far = 5.0 * sigma + 2 * STEP
        below, above = row[offsets < -far].sum(), row[offsets > far].sum()
        assert below > 0.05 * np.exp(-far / 0.3)  # a loss of 30 % in the mean, one in twenty
        assert above < 1e-6
        assert row.sum() == pytest.approx(1.0, abs=0.02)


def test_what_was_learned_opens_the_next_search_but_can_be_unlearned() -> None:
    shapes = np.full((3, 2), 1.0 / 3.0)
    weights = np.zeros((len(SIGMAS), 3))
    weights[-1, 0] = 5.0
    learned = Noise().learned(weights, readings=7)
    opening = learned.opening(shapes)
    assert learned.sigma == SIGMAS[-1]
    assert learned.readings == 7
    assert opening.sum(axis=(0, 1)) == pytest.approx([1.0, 1.0])
    assert opening[-1, 0, 0] > 0.7
    assert opening.min() > 0.0


def test_weights_of_another_family_of_shapes_are_not_misread() -> None:
    odd = Noise().learned(np.ones((len(SIGMAS), 4)), readings=3)
    assert odd.opening(np.full((3, 2), 1.0 / 3.0)).shape == (len(SIGMAS), 3, 2)


def test_refuses_weights_that_are_not_a_row_a_level() -> None:
    with pytest.raises(ValueError, match="row of weights"):
        Noise(weights=(1.0,))
