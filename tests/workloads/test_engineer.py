"""The engineer's recipe: diagnosis first, then one factor at a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autotune.services.base import Settings
from scripts.workloads.catalogue import Factor
from scripts.workloads.engineer import Attempt, choose_factor, find_best_attempt, follow_recipe

POOL = Factor("web.php_fpm", ({"children": 10}, {"children": 20}, {"children": 40}))
PROXY = Factor("web.nginx", ({"connections": 4096},))
Measure = Callable[[Settings, Attempt | None], Attempt | None]


def stack(capacity: Callable[[Settings], float], limiting: str | None, most: int = 20) -> Measure:
    """Measures by a formula, as often as ``most``."""
    count = 0

    def measure(settings: Settings, best: Attempt | None) -> Attempt | None:
        nonlocal count
        count += 1
        return Attempt(settings, capacity(settings), limiting, count) if count <= most else None

    return measure


def pool_limit(settings: Settings) -> float:
    """Children count up to 20; connections do not count."""
    return float(min(int(settings.get("children", 5)), 20))


@pytest.mark.parametrize(
    ("limiting", "first"),
    [("web.nginx", PROXY), ("web.php_fpm", POOL), ("db.postgresql", POOL), (None, POOL)],
)
def test_the_diagnosis_chooses_the_factor(limiting: str | None, first: Factor) -> None:
    assert choose_factor([POOL, PROXY], limiting) == first
    assert choose_factor([], limiting) is None


def test_steps_that_help_are_kept_and_a_factor_is_left_when_one_does_not() -> None:
    attempts = follow_recipe([POOL, PROXY], stack(pool_limit, "web.php_fpm"))
    assert [attempt.settings for attempt in attempts] == [
        {},
        {"children": 10},
        {"children": 20},
        {"children": 40},
        {"children": 20, "connections": 4096},
    ]
    best = find_best_attempt(attempts)
    assert best is not None
    assert best.settings == {"children": 20}


@pytest.mark.parametrize("most", range(5))
def test_it_ends_when_no_time_is_left(most: int) -> None:
    attempts = follow_recipe([POOL, PROXY], stack(pool_limit, "web.php_fpm", most))
    assert len(attempts) == most


def test_it_goes_on_where_the_stock_settings_miss_the_objective() -> None:
    attempts = follow_recipe([POOL], stack(lambda s: float("children" in s), None))
    best = find_best_attempt(attempts)
    assert best is not None
    assert best.settings == {"children": 10}


def test_there_is_no_best_attempt_where_none_can_be_used() -> None:
    assert find_best_attempt(follow_recipe([POOL], stack(lambda _: 0.0, None))) is None
