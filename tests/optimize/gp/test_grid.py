from __future__ import annotations

import numpy as np
import pytest
from spaces import DIMENSIONS, SPACE

from autotune.optimize.gp.grid import (
    MAX_LEVELS,
    GridAxis,
    ParameterGrid,
    compute_unit_position,
    compute_value_at_position,
    find_distinct_indices,
)
from autotune.services.base import Settings
from autotune.space.dimension import Dimension

GRID = ParameterGrid.from_dimensions(SPACE.tunable_dimensions, SPACE.baseline)
KEEPALIVE = DIMENSIONS[1]


@pytest.mark.parametrize("dimension", [d for d in SPACE.tunable_dimensions if not d.choices])
def test_units_and_values_are_each_others_inverse(dimension: Dimension) -> None:
    assert compute_unit_position(dimension, dimension.low) == pytest.approx(0.0)
    assert compute_unit_position(dimension, dimension.high) == pytest.approx(1.0)
    for value in {compute_value_at_position(dimension, u) for u in np.linspace(0, 1, 7)}:
        assert compute_value_at_position(
            dimension, compute_unit_position(dimension, value)
        ) == pytest.approx(value)


def test_a_logarithmic_range_from_zero_gives_small_values_room() -> None:
    assert compute_value_at_position(KEEPALIVE, 0.0) == 0
    assert compute_value_at_position(KEEPALIVE, 0.5) == pytest.approx(22, abs=1)


def test_few_whole_numbers_are_levels_each() -> None:
    by_name = {d.name: GridAxis.from_dimension(d) for d in SPACE.tunable_dimensions}
    assert by_name["web.x.threads"].values == (1, 2, 3, 4)
    assert len(by_name["cache.x.growth"].values) == MAX_LEVELS


def test_a_row_stands_for_its_configuration() -> None:
    configuration = {**SPACE.baseline, "web.x.children": 40, "os.x.flag": True}
    values = GRID.decode(GRID.encode(configuration))
    assert "web.x.fixed" not in values
    assert values["web.x.children"] == pytest.approx(40, rel=0.03)
    assert values["os.x.flag"] is True


@pytest.mark.parametrize("preset", [SPACE.baseline, SPACE.preset_settings("recommended")])
def test_what_is_known_by_name_is_not_rounded(preset: Settings) -> None:
    assert GRID.decode(GRID.encode(preset)).items() <= preset.items()


def test_what_has_no_effect_rests() -> None:
    some = [{"lb.x.service": "apache", "lb.x.keepalive": k} for k in (0, 100, 500)]
    points = GRID.encode_all(some)
    assert len({point.tobytes() for point in points}) == 3
    assert len({point.tobytes() for point in GRID.reset_inactive(points)}) == 1
    live = GRID.encode_all([{"lb.x.service": "nginx", "lb.x.keepalive": 100}])
    assert (GRID.reset_inactive(live) == live).all()


@pytest.mark.parametrize("axis", GRID.axes, ids=lambda axis: axis.dimension.name)
def test_every_level_is_found_again_by_its_value(axis: GridAxis) -> None:
    levels = range(len(axis.values))
    found = [axis.values[axis.find_level(axis.values[level])] for level in levels]
    assert found == [axis.values[level] for level in levels]


def test_what_is_measured_again_counts_once() -> None:
    points = np.array([[3, 1], [0, 2], [3, 1], [3, 1], [0, 0], [0, 2]])
    assert list(find_distinct_indices(points)) == [0, 1, 4]
