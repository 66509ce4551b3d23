from __future__ import annotations

from dataclasses import replace

import numpy as np
import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spaces import DIMENSIONS, SPACE

from autotune.optimize.gp.grid import Grid
from autotune.optimize.gp.sampler import STEP, guided_candidates, restarts
from autotune.optimize.gp.surrogate import MOVES
from autotune.optimize.searcher import Outcome, Searcher
from autotune.services.base import Action, Settings
from autotune.space.space import Space

GRID = Grid.of(SPACE.tunable, SPACE.baseline)
NAMES = [axis.dimension.name for axis in GRID.axes]
TOLD = [f"{name}{way}" for name in NAMES for way in "+-"] + ["lb.x.service=apache"]


def changed(settings: Settings, moves: list[str]) -> list[dict[str, object]]:
    """What each follower of one incumbent changes."""
    incumbent = GRID.encode({**SPACE.baseline, **settings})
    found = guided_candidates(GRID, incumbent[None, :], [moves])
    before = GRID.decode(incumbent)
    return [
        {name: value for name, value in GRID.decode(point).items() if value != before[name]}
        for point in found
    ]


@pytest.mark.parametrize(
    ("settings", "moves", "expected"),
    [
        # A tenth of a logarithmic range from 2 to 256 is a factor of 1.6, in a hundred steps.
        ({"web.x.children": 40}, ["web.x.children+"], [{"web.x.children": 66}] * 2),
        ({"web.x.children": 40}, ["web.x.children-"], [{"web.x.children": 25}] * 2),
        # Never beyond the range; a short range moves by one at least.
        ({"web.x.threads": 4}, ["web.x.threads+"], []),
        ({"web.x.threads": 3}, ["web.x.threads+"], [{"web.x.threads": 4}] * 2),
        # All together first, then each alone.
        (
            {"web.x.children": 40},
            ["web.x.children+", "lb.x.service=apache"],
            [
                {"web.x.children": 66, "lb.x.service": "apache"},
                {"lb.x.service": "apache"},
                {"web.x.children": 66},
            ],
        ),
        # What does not exist, has no order, is not on offer, or is the case already.
        ({}, ["web.y.children+", "lb.x.service+", "lb.x.service=iis", "lb.x.service=nginx"], []),
        ({}, ["", "+", "=", "web.x.children"], []),
    ],
)
def test_moves_are_made_alone_and_together(
    settings: Settings, moves: list[str], expected: list[dict[str, object]]
) -> None:
    assert changed(settings, moves) == expected


@given(st.lists(st.sampled_from(TOLD), max_size=6), st.integers(0, 1000))
def test_nothing_else_changes(moves: list[str], seed: int) -> None:
    rng = np.random.default_rng(seed)
    incumbents = (rng.random((3, len(NAMES))) * GRID.sizes).astype(np.intp)
    found = guided_candidates(GRID, incumbents, [moves] * 3)
    told = {move.rstrip("+-").partition("=")[0] for move in moves}
    others = [i for i, name in enumerate(NAMES) if name not in told]
    for point in found:
        assert (point >= 0).all()
        assert (point < GRID.sizes).all()
        assert any((point[others] == incumbent[others]).all() for incumbent in incumbents)
        near = np.abs(point - incumbents) <= np.maximum(1, np.round(STEP * GRID.sizes))
        assert near[:, [a.ordered for a in GRID.axes]].all(axis=1).any()


def test_most_suggestions_heed_what_was_advised() -> None:
    search = Searcher(optuna.storages.InMemoryStorage(), "s", SPACE, "gp", 1, 30)
    known = [SPACE.baseline, SPACE.preset("recommended")]
    for number, settings in enumerate(known):
        notes = {"trial": number, "phase": "recommended", MOVES: "web.x.children+ web.x.none+"}
        search.record(None, settings, Outcome(1000.0 + number, notes))
    guided = []
    for number in range(2, 6):
        asked = search.ask()
        settings = {**SPACE.baseline, **asked.values}
        search.record(asked.number, settings, Outcome(900.0, {"trial": number, "phase": "search"}))
        guided.append(
            any(
                {n for n in NAMES if settings[n] != incumbent[n]} == {"web.x.children"}
                and settings["web.x.children"] > incumbent["web.x.children"]
                for incumbent in known
            )
        )
    # The fourth would, but there is nothing left that was advised and not tried.
    assert guided == [True, False, True, False]


COSTLY = ("lb.x.keepalive", "lb.x.service", "cache.x.growth")
RESTARTING = Space(
    tuple(
        replace(d, parameter=replace(d.parameter, action=Action.RESTART)) if d.name in COSTLY else d
        for d in DIMENSIONS
    ),
    (),
    {},
)
RESTARTING_GRID = Grid.of(RESTARTING.tunable, RESTARTING.baseline)


def test_a_service_is_restarted_once_and_reloads_cost_nothing() -> None:
    changes = [
        {},
        {"web.x.children": 90},
        {"lb.x.keepalive": 90, "lb.x.service": "apache"},
        {"lb.x.keepalive": 90, "cache.x.growth": 2.0},
    ]
    assert list(
        restarts(RESTARTING_GRID, RESTARTING_GRID.encode({}), RESTARTING_GRID.encode_all(changes))
    ) == [0, 0, 1, 2]
