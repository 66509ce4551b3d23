from __future__ import annotations

import numpy as np
import pytest
from spaces import many

from autotune.optimize import importance
from autotune.optimize.gp.grid import Lattice
from autotune.optimize.gp.surrogate import Evidence, Landscape

SPACE = many(6)
LATTICE = Lattice.of(SPACE.tunable, SPACE.baseline)


@pytest.fixture(scope="module")
def landscape() -> Landscape:
    rng = np.random.default_rng(1)
    rows = (rng.random((70, 6)) * LATTICE.sizes).astype(int)
    u = rows / 100.0
    heights = 0.4 * u[:, 0] + 0.2 * u[:, 1] + 1.2 * (u[:, 2] - 0.5) * (u[:, 3] - 0.5)
    heights += rng.normal(0, 0.01, 70)
    zeros = np.zeros(70)
    nothing = np.empty((0, 6), int)
    return Landscape.of(LATTICE, Evidence(rows, heights, zeros, zeros > 0, nothing, nothing))


def test_parameters_come_in_the_order_of_their_effect(landscape: Landscape) -> None:
    effects = importance.effects(landscape)
    idle = max(effects["t.x.p4"], effects["t.x.p5"])
    assert effects["t.x.p0"] > effects["t.x.p1"] > 2 * idle


def test_the_pair_that_interacts_is_found(landscape: Landscape) -> None:
    first = importance.pairs(landscape)[0]
    assert {first.first, first.second} == {"t.x.p2", "t.x.p3"}
    assert first.effect > 0.02


def test_a_best_value_at_the_end_of_its_range_asks_for_more(landscape: Landscape) -> None:
    best = LATTICE.row({"t.x.p0": 1.0, "t.x.p1": 0.6})
    (edge,) = importance.edges(landscape, best)
    assert (edge.parameter, edge.end) == ("t.x.p0", "high")
    assert edge.try_range == (0.0, 2.0)


def test_the_low_end_where_it_goes_down_is_no_reason(landscape: Landscape) -> None:
    assert importance.edges(landscape, LATTICE.row({"t.x.p0": 0.0})) == ()
