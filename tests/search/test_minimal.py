from __future__ import annotations

import numpy as np
import pytest

from autotune.search.minimal import Predicted, Reduced, Reduction, Reverted

WORTH = {"a": 0.5, "b": 0.3, "c": 0.2, "d": 0.0, "e": 0.0, "f": 0.005, "g": 0.0}
GUESSED = {name: Predicted(worth * 0.8 + 0.01, 0.05) for name, worth in WORTH.items()}


def reduced(noise: float, seed: int = 1, most: int = 200, fails: str | None = None) -> Reduced:
    rng = np.random.default_rng(seed)

    def measure(reverted: Reverted) -> float | None:
        if fails in reverted:
            return None
        return 7.0 - sum(WORTH[name] for name in reverted) + rng.normal(0, noise)

    return Reduction(GUESSED, sum(WORTH.values()), max(noise, 1e-3), measure, most).reduce()


def test_changes_that_carry_the_gain_are_kept_and_the_rest_is_not() -> None:
    found = reduced(0.0)
    assert set(found.kept) == {"a", "b", "c"}
    assert found.share == pytest.approx(1 - 0.005 / 1.005, abs=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_noise_does_not_hide_them(seed: int) -> None:
    found = reduced(0.05, seed)
    assert {"a", "b", "c"} <= set(found.kept)
    assert len(found.kept) <= 4
    assert found.low < found.share < found.high


def test_what_fails_without_a_change_keeps_it() -> None:
    assert "e" in reduced(0.0, fails="e").kept


def test_it_spends_no_more_than_it_may() -> None:
    found = reduced(0.05, most=20)
    assert found.measurements == 20
    assert {"a", "b", "c"} <= set(found.kept)
