from __future__ import annotations

from dataclasses import replace

import numpy as np
from spaces import DIMENSIONS, SPACE

from autotune.optimize.gp.grid import ParameterGrid
from autotune.optimize.gp.proposal import (
    FAILURES_TO_SHRINK,
    MAX_CHANGES,
    MIN_CHANGES,
    choose_change_count,
    count_restarts,
    list_recommended_points,
    select_plausible_rows,
)
from autotune.optimize.gp.surrogate import TrialObservations
from autotune.services.base import Action
from autotune.space.space import SearchSpace

GRID = ParameterGrid.from_dimensions(SPACE.tunable_dimensions, SPACE.baseline)
NAMES = [axis.dimension.name for axis in GRID.axes]


def test_a_move_recommended_before_for_another_bottleneck_is_a_candidate() -> None:
    points = GRID.encode_all([{}, {"web.x.children": 40}])
    none = np.empty((0, len(NAMES)), int)
    told = TrialObservations(
        points, np.array([7.0, 7.3]), np.full(2, 0.03), np.zeros(2, bool), none, none,
        (("web.x.threads+",), ("os.x.flag=True",)), suggested=(False, True),
    )  # fmt: skip

    def list_setting_changes(index: int, *, is_first: bool) -> dict[str, float]:
        return {
            NAMES[axis]: bonus
            for listed, bonus in list_recommended_points(
                GRID, told, index, is_first_leader=is_first
            )
            for axis in np.flatnonzero((listed != points[index]).any(axis=0))
        }

    bonuses = list_setting_changes(1, is_first=True)
    assert set(bonuses) == {"os.x.flag", "web.x.threads"}
    assert bonuses["os.x.flag"] > bonuses["web.x.threads"] > 0
    assert set(list_setting_changes(1, is_first=False)) == {"os.x.flag"}


def test_advice_for_what_is_far_behind_is_left_alone() -> None:
    mean, sd = np.array([-1.2, 0.0, -0.05, -0.4]), np.full(4, 0.04)
    assert list(select_plausible_rows(mean, sd)) == [1, 2]


def test_failures_narrow_the_search_and_a_success_widens_it() -> None:
    worse = [-0.2] * FAILURES_TO_SHRINK
    assert choose_change_count(np.array([0.0])) == MAX_CHANGES
    assert choose_change_count(np.array([0.0, *worse])) == MAX_CHANGES // 2
    assert choose_change_count(np.array([0.0, *worse, *worse, *worse])) == MIN_CHANGES
    assert choose_change_count(np.array([0.0, *worse, *worse, 0.3])) == 2 * MIN_CHANGES


COSTLY = ("lb.x.keepalive", "lb.x.service", "cache.x.growth")
RESTARTING = SearchSpace(
    tuple(
        replace(d, parameter=replace(d.parameter, action=Action.RESTART)) if d.name in COSTLY else d
        for d in DIMENSIONS
    ),
    (),
    {},
)
RESTARTING_GRID = ParameterGrid.from_dimensions(RESTARTING.tunable_dimensions, RESTARTING.baseline)


def test_a_service_is_restarted_once_and_reloads_cost_nothing() -> None:
    changes = [
        {},
        {"web.x.children": 90},
        {"lb.x.keepalive": 90, "lb.x.service": "apache"},
        {"lb.x.keepalive": 90, "cache.x.growth": 2.0},
    ]
    assert list(
        count_restarts(
            RESTARTING_GRID, RESTARTING_GRID.encode({}), RESTARTING_GRID.encode_all(changes)
        )
    ) == [0, 0, 1, 2]


def test_kernel_values_of_a_tier_are_one_service_whatever_dots_their_names_have() -> None:
    names = ("web.sysctl.net.core.somaxconn", "web.sysctl.net.ipv4.tcp_max_syn_backlog")
    (costly, _) = (d for d in RESTARTING.tunable_dimensions if d.name in COSTLY and not d.choices)
    dimensions = tuple(replace(costly, name=name) for name in names)
    grid = ParameterGrid.from_dimensions(dimensions, dict.fromkeys(names, costly.baseline))
    before = grid.encode(dict.fromkeys(names, costly.baseline))
    after = np.array([[0, 0], [len(axis.values) - 1 for axis in grid.axes]])
    assert max(count_restarts(grid, before, after)) == 1
