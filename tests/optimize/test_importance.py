from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from spaces import many

from autotune.optimize import importance
from autotune.optimize.gp.grid import ParameterGrid
from autotune.optimize.gp.surrogate import SurrogateModel, TrialObservations

SPACE = many(6)
GRID = ParameterGrid.from_dimensions(SPACE.tunable_dimensions, SPACE.baseline)


@pytest.fixture(scope="module")
def surrogate() -> SurrogateModel:
    rng = np.random.default_rng(1)
    points = (rng.random((70, 6)) * GRID.level_counts).astype(int)
    u = points / 100.0
    log_peaks = 0.4 * u[:, 0] + 0.2 * u[:, 1] + 1.2 * (u[:, 2] - 0.5) * (u[:, 3] - 0.5)
    log_peaks += rng.normal(0, 0.01, 70)
    zeros = np.zeros(70)
    nothing = np.empty((0, 6), int)
    return SurrogateModel.fit(
        GRID, TrialObservations(points, log_peaks, zeros, zeros > 0, nothing, nothing)
    )


def test_parameters_come_in_the_order_of_their_effect(surrogate: SurrogateModel) -> None:
    effects = importance.compute_effects(surrogate)
    idle = max(effects["t.x.p4"], effects["t.x.p5"])
    assert effects["t.x.p0"] > effects["t.x.p1"] > 2 * idle


def test_the_pair_that_interacts_is_found(surrogate: SurrogateModel) -> None:
    first = importance.find_interacting_pairs(surrogate)[0]
    assert {first.first, first.second} == {"t.x.p2", "t.x.p3"}
    assert first.effect > 0.02


def test_a_best_value_at_the_end_of_its_range_asks_for_more(surrogate: SurrogateModel) -> None:
    best = GRID.encode({"t.x.p0": 1.0, "t.x.p1": 0.6})
    (edge,) = importance.find_range_edges(surrogate, best)
    assert (edge.parameter, edge.end) == ("t.x.p0", "high")
    assert edge.try_range == (0.0, 2.0)


def test_the_low_end_where_it_goes_down_is_no_reason(surrogate: SurrogateModel) -> None:
    assert importance.find_range_edges(surrogate, GRID.encode({"t.x.p0": 0.0})) == ()


def test_what_matters_is_surer_than_what_does_not(surrogate: SurrogateModel) -> None:
    effects, sds = importance.compute_effects(surrogate), importance.compute_effect_sds(surrogate)
    assert effects.keys() == sds.keys()
    assert effects["t.x.p0"] > 3 * sds["t.x.p0"] > 0
    # 0.4 times a uniform number scatters by 0.4 / √12.
    assert effects["t.x.p0"] == pytest.approx(0.4 / 12**0.5, abs=3 * sds["t.x.p0"] + 0.02)
    for idle in ("t.x.p4", "t.x.p5"):
        assert effects[idle] < 1.645 * sds[idle] + 0.005


def test_an_end_of_a_range_without_a_clear_effect_is_no_reason(surrogate: SurrogateModel) -> None:
    sds, effects = importance.compute_effect_sds(surrogate), importance.compute_effects(surrogate)
    idle = [name for name in effects if effects[name] < 1.645 * sds[name]]
    assert idle
    for name, value in product(idle, (0.0, 1.0)):
        assert importance.find_range_edges(surrogate, GRID.encode({name: value})) == ()


def test_a_configuration_measured_again_and_again_counts_once(surrogate: SurrogateModel) -> None:
    seen = surrogate.observations
    again = replace(seen, points=np.vstack([seen.points, seen.points[[0] * 200]]))
    repeated = replace(surrogate, observations=again)
    assert importance.compute_effects(repeated) == pytest.approx(
        importance.compute_effects(surrogate)
    )


@pytest.mark.parametrize(("low", "wider_ranges"), [(0.0, []), (-1.0, [(-3.0, 1.0)])])
def test_a_range_is_widened_only_if_there_are_values_beyond_its_end(
    low: float, wider_ranges: list[tuple[float, float]]
) -> None:
    first, *others = SPACE.dimensions
    grid = ParameterGrid.from_dimensions((replace(first, low=low), *others), SPACE.baseline)
    rng = np.random.default_rng(1)
    points = (rng.random((70, 6)) * grid.level_counts).astype(int)
    log_peaks = -0.4 * points[:, 0] / 100.0 + rng.normal(0, 0.01, 70)
    zeros, nothing = np.zeros(70), np.empty((0, 6), int)
    surrogate = SurrogateModel.fit(
        grid, TrialObservations(points, log_peaks, zeros, zeros > 0, nothing, nothing)
    )
    edges = importance.find_range_edges(surrogate, grid.encode({"t.x.p0": low}))
    assert [edge.try_range for edge in edges] == wider_ranges
