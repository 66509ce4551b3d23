from __future__ import annotations

import numpy as np
import pytest

from autotune.measure.logit_normal import (
    compute_count_likelihood,
    compute_exceedance_probability,
    solve_mean_logit,
)

DRAWS = np.random.default_rng(5).standard_normal(200_000)
CASES = [(0.01, 2.4), (0.0003, 1.2), (0.2, 3.5), (0.5, 1.0), (0.97, 2.0)]


def fractions(mean: float, spread: float) -> np.ndarray:
    logits = solve_mean_logit(np.array([mean]), np.array([spread]))[0] + spread * DRAWS
    return 1.0 / (1.0 + np.exp(-logits))


@pytest.mark.parametrize(("mean", "spread"), CASES)
def test_the_fraction_has_its_mean(mean: float, spread: float) -> None:
    assert fractions(mean, spread).mean() == pytest.approx(mean, rel=0.04)


@pytest.mark.parametrize(("mean", "spread"), CASES)
@pytest.mark.parametrize("intended", [150, 2000])
def test_chances_are_those_of_drawn_counts(mean: float, spread: float, intended: int) -> None:
    at = solve_mean_logit(np.array([mean]), np.array([spread])), np.array([spread])
    chances = [
        compute_count_likelihood(float(k), float(intended), *at)[0] for k in range(intended + 1)
    ]
    assert sum(chances) == pytest.approx(1.0, abs=0.06)
    drawn = np.random.default_rng(6).binomial(intended, fractions(mean, spread))
    for least, most in [(0, 0), (1, 1), (2, 5), (6, 30), (31, 149), (intended, intended)]:
        wanted = np.mean((drawn >= least) & (drawn <= most))
        assert sum(chances[least : most + 1]) == pytest.approx(wanted, abs=0.03)


@pytest.mark.parametrize("share", [0.001, 0.01, 0.5])
def test_more_than_a_share(share: float) -> None:
    at = solve_mean_logit(np.array([0.01]), np.array([2.4])), np.array([2.4])
    wanted = np.mean(fractions(0.01, 2.4) > share)
    assert compute_exceedance_probability(share, *at)[0] == pytest.approx(wanted, abs=0.01)
