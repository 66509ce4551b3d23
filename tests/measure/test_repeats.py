from __future__ import annotations

import numpy as np
import pytest

from autotune.measure.repeats import ASSUMED_SD, EXACT_SD, scatter


@pytest.mark.parametrize("groups", [[], [[1.0]], [[1.0], [7.0]], [[]]])
def test_without_repeats_it_is_assumed(groups: list[list[float]]) -> None:
    assert scatter(groups) == pytest.approx(ASSUMED_SD)


def test_the_same_answer_again_and_again_is_exact() -> None:
    assert scatter([[2.0, 2.0, 2.0], [5.0]]) == EXACT_SD
    assert scatter([[2.0, 2.0]]) > EXACT_SD  # once may be chance


@pytest.mark.parametrize("true", [0.005, 0.01, 0.05, 0.3])
def test_repeats_tell(true: float) -> None:
    rng = np.random.default_rng(3)
    groups = [list(rng.normal(level, true, 3)) for level in range(40)]
    assert scatter(groups) == pytest.approx(true, rel=0.2)
