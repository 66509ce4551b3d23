from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from autotune.sweep.plan import (
    AxisValue,
    PointMeasurement,
    SweepAxis,
    SweepPlan,
    order_measurements,
    parse_plan_record,
)


def axis(name: str, *values: int | str) -> SweepAxis:
    return SweepAxis(name, tuple(AxisValue(value, {name: value}) for value in values))


PLAN = SweepPlan(
    "both",
    (axis("a.b.c", 1, 2, 3), axis("a.b.d", "x", "y")),
    hosts={"web": (1, 2), "cache": (3,)},
    settings={"a.b.e": 5},
    rates=(100.0, 200.0),
    repeat=2,
)

plans = st.builds(
    SweepPlan,
    st.just("some"),
    st.lists(st.integers(1, 4), max_size=2).map(
        lambda sizes: tuple(axis(f"p{i}", *range(n)) for i, n in enumerate(sizes))
    ),
    st.dictionaries(st.sampled_from(["web", "cache"]), st.just((1, 2))),
    repeat=st.integers(1, 3),
    seed=st.integers(0, 5),
)


def test_points_are_every_combination() -> None:
    points = PLAN.points
    assert len(points) == 12
    assert [point.number for point in points] == list(range(12))
    assert points[0].labels == {"a.b.c": 1, "a.b.d": "x"}
    assert points[-1].hosts == {"web": 2, "cache": 3}
    assert points[-1].settings == {"a.b.e": 5, "a.b.c": 3, "a.b.d": "y"}


def test_the_journal_gives_the_plan_back() -> None:
    assert parse_plan_record(json.loads(json.dumps(PLAN.to_record()))) == PLAN


@given(plans)
def test_every_point_is_visited_once_in_each_turn_with_its_own_hosts(plan: SweepPlan) -> None:
    made = [
        (hosts, measurement)
        for hosts, measurements in order_measurements(plan)
        for measurement in measurements
    ]
    wanted = {PointMeasurement(p.number, turn) for p in plan.points for turn in range(plan.repeat)}
    assert len(made) == len(wanted)
    assert {measurement for _, measurement in made} == wanted
    points = plan.points
    assert all(points[measurement.point].hosts == hosts for hosts, measurement in made)
    assert [measurement.repeat for _, measurement in made] == sorted(
        measurement.repeat for _, measurement in made
    )


def test_the_order_is_shuffled_and_the_same_again() -> None:
    def order(seed: int) -> list[int]:
        plan = SweepPlan("x", (axis("p", *range(30)),), repeat=1, seed=seed)
        return [
            measurement.point
            for _, measurements in order_measurements(plan)
            for measurement in measurements
        ]

    assert order(1) == order(1)
    assert order(1) != order(2)
    assert order(1) != sorted(order(1))
