"""What of a winner goes back to what runs before it is proven."""

from __future__ import annotations

from dataclasses import replace
from math import exp

import numpy as np
import optuna
from spaces import dimension

from autotune.optimize.searcher import Outcome, Searcher
from autotune.optimize.simplify import chances, simplified
from autotune.services.base import Action, Effect, Settings
from autotune.space.expression import parse_comparison
from autotune.space.rules import Rule
from autotune.space.space import Space

MATTERS, RESTARTS = "web.x.p0", ("cache.y.p8", "cache.y.p9")
NAMES = (*(f"web.x.p{n}" for n in range(8)), *RESTARTS)


def _dimension(name: str) -> object:
    found = dimension(name, baseline=0.2, low=0.0, high=1.0)
    action = Action.RESTART if name in RESTARTS else Action.RELOAD
    effect = Effect.CAPACITY if name == MATTERS else Effect.SMALL
    return replace(found, parameter=replace(found.parameter, action=action, effect=effect))


SPACE = Space(tuple(map(_dimension, NAMES)), (), {})  # type: ignore[arg-type]


def searched(count: int = 24) -> tuple[Searcher, Settings]:
    """A search in which only one parameter matters, and its best: changed everywhere."""
    rng = np.random.default_rng(2)
    search = Searcher(optuna.storages.InMemoryStorage(), "s", SPACE, "gp", 1, 40)
    search.record(None, SPACE.baseline, Outcome(100 * exp(0.16), {"trial": 0, "sd": 0.02}))
    for number in range(1, count):
        settings = {name: float(rng.random()) for name in NAMES}
        peak = 100 * exp(0.8 * settings[MATTERS] + rng.normal(0, 0.02))
        search.record(None, settings, Outcome(peak, {"trial": number, "sd": 0.02}))
    return search, dict.fromkeys(NAMES, 0.9)


def test_what_does_nothing_is_reverted_and_what_matters_stays() -> None:
    search, winner = searched()
    found = simplified(search.surrogate(), SPACE, winner)
    assert found.settings[MATTERS] == 0.9
    assert set(RESTARTS) <= set(found.reverted)
    assert len(found.reverted) >= 7
    assert {n: found.settings[n] for n in found.reverted} == dict.fromkeys(found.reverted, 0.2)
    assert found.probability > 0.5


def test_what_was_accepted_stays_reverted_and_what_was_refused_is_no_part_of_more() -> None:
    search, winner = searched()
    accepted, refused = RESTARTS[:1], frozenset({"web.x.p1", "web.x.p2"})
    found = simplified(search.surrogate(), SPACE, winner, accepted, [refused])
    assert set(accepted) < set(found.reverted)
    assert not refused <= set(found.reverted)
    assert MATTERS not in found.reverted


def test_what_carries_the_gain_is_hardly_free() -> None:
    search, winner = searched()
    needed, idle = chances(search.surrogate(), SPACE, winner, [[MATTERS], RESTARTS])
    assert needed < 0.05
    assert idle > 0.5


def test_a_rule_that_needs_a_change_keeps_it() -> None:
    text = "cache.y.p8 >= web.x.p0 - 0.3"
    ruled = replace(SPACE, constraints=(Rule(text, parse_comparison(text)),))
    search, winner = searched()
    assert "cache.y.p8" not in simplified(search.surrogate(), ruled, winner).reverted


def test_the_baseline_has_nothing_to_revert() -> None:
    search, _ = searched()
    found = simplified(search.surrogate(), SPACE, SPACE.baseline)
    assert found.reverted == ()
    assert found.settings == SPACE.baseline
