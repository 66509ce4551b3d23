from __future__ import annotations

from math import log

import numpy as np
import pytest

from autotune.estimate import Estimate
from autotune.optimize.drift import EMPTY_DRIFT, estimate_drift

PLACES = tuple(range(0, 37, 6))


def seen(change: float, seed: int, noise: float = 0.03) -> dict[int, Estimate]:
    """The reference over 36 trials in which the stack changes by ``change`` (log), steadily."""
    rng = np.random.default_rng(seed)
    return {
        at: Estimate(log(1000) + change * at / PLACES[-1] + rng.normal(0, noise), 0.01)
        for at in PLACES
    }


def test_noise_is_not_taken_for_drift() -> None:
    found = [estimate_drift(seen(0.0, seed), range(37), noise=0.03) for seed in range(60)]
    assert sum(one.is_significant for one in found) <= 3
    assert np.mean([abs(one.total_change.log_mean) for one in found]) < 0.02


@pytest.mark.parametrize("change", [log(1.2), log(0.8)])
def test_a_fifth_over_the_study_is_seen_and_measured(change: float) -> None:
    found = [estimate_drift(seen(change, seed), range(37), noise=0.03) for seed in range(60)]
    assert sum(one.is_significant for one in found) >= 50
    assert np.mean([one.total_change.log_mean for one in found]) == pytest.approx(change, abs=0.04)


def test_shifts_are_in_terms_of_the_last_trial() -> None:
    found = estimate_drift(seen(log(1.2), 1), range(37), noise=0.03)
    assert found.shifts[36].log_mean == pytest.approx(0.0, abs=1e-9)
    assert found.shifts[0].log_mean == pytest.approx(-log(1.2), abs=0.06)


def test_what_all_trials_share_does_not_blur_their_order() -> None:
    # Long after the last look at the reference nobody knows how far the stack has drifted since; how
    # the trials before it compare is as clear as ever.
    found = estimate_drift(seen(log(1.2), 1), range(60), noise=0.03)
    assert found.total_change.sd > 0.1
    assert max(found.shifts[place].sd for place in range(37)) < 0.05
    assert found.shifts[59].sd > 0.1


def test_two_measurements_say_nothing() -> None:
    assert estimate_drift(dict(list(seen(0.2, 1).items())[:2]), range(9)) is EMPTY_DRIFT


def test_it_is_told_in_percent() -> None:
    assert "changed by +" in str(estimate_drift(seen(log(1.2), 1), range(37), noise=0.03))
