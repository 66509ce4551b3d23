from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest

from autotune.errors import AutotuneError
from autotune.optimize.ablation import (
    FAILED,
    Ablation,
    AblationResult,
    EffectRegression,
    PredictedEffect,
    RevertedChanges,
    select_affordable_changes,
)

WORTH = {"a": 0.5, "b": 0.3, "c": 0.2, "d": 0.0, "e": 0.0, "f": 0.005, "g": 0.0}
GUESSED = {name: PredictedEffect(worth * 0.8 + 0.01, 0.05) for name, worth in WORTH.items()}


def reduced(
    noise: float, seed: int = 1, most: int = 200, fails: str | None = None
) -> AblationResult:
    rng = np.random.default_rng(seed)

    def measure(reverted: RevertedChanges) -> float | None:
        if fails in reverted:
            return FAILED
        return 7.0 - sum(WORTH[name] for name in reverted) + rng.normal(0, noise)

    return Ablation(GUESSED, sum(WORTH.values()), max(noise, 1e-3), measure, most).run()


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


@pytest.mark.parametrize("result", [FAILED, None])
@pytest.mark.parametrize("most", [60, 5])
def test_a_winner_that_fails_cannot_be_reduced(most: int, result: float | None) -> None:
    with pytest.raises(AutotuneError, match="in none of 8 measurements"):
        Ablation(GUESSED, 1.0, 0.05, lambda _: result, most).run()


def test_what_fails_without_a_change_keeps_it() -> None:
    assert "e" in reduced(0.0, fails="e").kept


def fail_first(
    failing: RevertedChanges, results: list[float | None]
) -> Callable[[RevertedChanges], float | None]:
    """Measurements without noise. The first ones of the set ``failing`` have these ``results``."""
    pending = list(results)

    def measure(reverted: RevertedChanges) -> float | None:
        if reverted == failing and pending:
            return pending.pop(0)
        return 7.0 - sum(WORTH[name] for name in reverted)

    return measure


@pytest.mark.parametrize(
    ("results", "is_removable"),
    [
        ([None], True),
        ([FAILED], True),
        ([None, None], False),
        ([None, FAILED], False),
        ([FAILED, FAILED], False),
    ],
)
def test_a_set_that_was_measured_later_does_not_count_as_failed(
    results: list[float | None], is_removable: bool
) -> None:
    measure = fail_first(frozenset("e"), results)
    ablation = Ablation(GUESSED, sum(WORTH.values()), 1e-3, measure, 200)
    ablation._measure_set(frozenset())
    assert ("e" in ablation._screen_changes()) is is_removable


@pytest.mark.parametrize(
    ("results", "is_reverted"), [([None], True), ([None, None], False), ([FAILED], False)]
)
def test_a_measurement_that_showed_nothing_does_not_refuse_a_set(
    results: list[float | None], is_reverted: bool
) -> None:
    largest = frozenset("defg")
    measure = fail_first(largest, results)
    found = Ablation(GUESSED, sum(WORTH.values()), 1e-3, measure, 200).run()
    assert (set(found.dropped) == largest) is is_reverted


def test_it_spends_no_more_than_it_may() -> None:
    found = reduced(0.05, most=20)
    assert found.measurements == 20
    assert {"a", "b", "c"} <= set(found.kept)


SMALL = {"a": 0.02, "b": 0.0, "c": 0.05, "d": 0.01}
UNKNOWN = {name: PredictedEffect(0.0, 1.0) for name in SMALL}


def weighed(noise: float = 0.0, disturbed: int | None = None) -> EffectRegression:
    """Every pair reverted, and the winner itself, each four times."""
    rng = np.random.default_rng(1)
    found = EffectRegression(UNKNOWN, max(noise, 1e-3))
    pairs = [frozenset(pair) for pair in combinations(SMALL, 2)]
    for index, reverted in enumerate([frozenset[str](), *pairs] * 4):
        height = 7.0 - sum(SMALL[name] for name in reverted) + rng.normal(0, noise)
        found.add_measurement(reverted, height - (0.4 if index == disturbed else 0.0))
    return found


@pytest.mark.parametrize("name", SMALL)
def test_each_change_is_told_apart_though_none_was_reverted_alone(name: str) -> None:
    mean, sd = weighed().fit_effects().estimate_loss(frozenset({name}))
    assert mean == pytest.approx(SMALL[name], abs=0.002)
    assert sd < 0.001


def test_a_disturbed_measurement_has_no_say() -> None:
    mean, _ = weighed(0.01, disturbed=9).fit_effects().estimate_loss(frozenset({"a", "c"}))
    assert mean == pytest.approx(0.07, abs=0.02)


def test_a_sum_is_surer_than_its_parts() -> None:
    found = EffectRegression(UNKNOWN, 0.05)
    for reverted in [frozenset[str](), frozenset(SMALL)] * 10:
        found.add_measurement(reverted, 7.0 - sum(SMALL[name] for name in reverted))
    losses = found.fit_effects()
    assert losses.estimate_loss(frozenset(SMALL))[1] < losses.estimate_loss(frozenset({"a"}))[1] / 5


@pytest.mark.parametrize(
    ("losses", "line", "chosen"),
    [
        ([0.3, 0.1, 0.2], 0.3, [False, True, True]),
        ([0.3, 0.1, 0.2], 0.05, [False, False, False]),
        ([0.3, -0.1, 0.2], 0.1, [False, True, True]),
    ],
)
def test_the_least_losses_go_first(losses: list[float], line: float, chosen: list[bool]) -> None:
    assert select_affordable_changes(losses, line + 1e-9).tolist() == chosen
