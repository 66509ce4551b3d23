from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from autotune.search.losses import Predicted, Weighings, within

WORTH = {"a": 0.02, "b": 0.0, "c": 0.05, "d": 0.01}
UNKNOWN = {name: Predicted(0.0, 1.0) for name in WORTH}


def weighed(noise: float = 0.0, disturbed: int | None = None) -> Weighings:
    """Every pair reverted, and the winner itself, each four times."""
    rng = np.random.default_rng(1)
    found = Weighings(UNKNOWN, max(noise, 1e-3))
    pairs = [frozenset(pair) for pair in combinations(WORTH, 2)]
    for index, reverted in enumerate([frozenset[str](), *pairs] * 4):
        height = 7.0 - sum(WORTH[name] for name in reverted) + rng.normal(0, noise)
        found.add(reverted, height - (0.4 if index == disturbed else 0.0))
    return found


@pytest.mark.parametrize("name", WORTH)
def test_each_change_is_told_apart_though_none_was_reverted_alone(name: str) -> None:
    mean, sd = weighed().losses().of(frozenset({name}))
    assert mean == pytest.approx(WORTH[name], abs=0.002)
    assert sd < 0.001


def test_a_disturbed_measurement_has_no_say() -> None:
    mean, _ = weighed(0.01, disturbed=9).losses().of(frozenset({"a", "c"}))
    assert mean == pytest.approx(0.07, abs=0.02)


def test_a_sum_is_surer_than_its_parts() -> None:
    found = Weighings(UNKNOWN, 0.05)
    for reverted in [frozenset[str](), frozenset(WORTH)] * 10:
        found.add(reverted, 7.0 - sum(WORTH[name] for name in reverted))
    losses = found.losses()
    assert losses.of(frozenset(WORTH))[1] < losses.of(frozenset({"a"}))[1] / 5


@pytest.mark.parametrize(
    ("losses", "line", "chosen"),
    [
        ([0.3, 0.1, 0.2], 0.3, [False, True, True]),
        ([0.3, 0.1, 0.2], 0.05, [False, False, False]),
        ([0.3, -0.1, 0.2], 0.1, [False, True, True]),
    ],
)
def test_the_least_losses_go_first(losses: list[float], line: float, chosen: list[bool]) -> None:
    assert within(losses, line + 1e-9).tolist() == chosen
