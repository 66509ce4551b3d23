"""The measurements of a sweep and their order, in pure functions."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from autotune.errors import AutotuneError
from autotune.services.base import Settings, Value
from autotune.study import journal

HostCounts = Mapping[str, int]
SERVICE_AXIS = "service"  # name of the axis whose values are deployments of all tiers
SWEEP_PURPOSE = "sweep"  # purpose of the readings that count in the results


@dataclass(frozen=True)
class AxisValue:
    """One value on an axis: its label and its settings."""

    label: Value
    settings: Settings


@dataclass(frozen=True)
class SweepAxis:
    """An axis of the grid: a parameter by its full name, or ``service`` for the deployments of all
    tiers.
    """

    name: str
    choices: tuple[AxisValue, ...]

    @property
    def is_numeric(self) -> bool:
        return all(
            isinstance(c.label, int | float) and not isinstance(c.label, bool) for c in self.choices
        )


@dataclass(frozen=True)
class SweepPlan:
    """The grid of a sweep. ``settings`` apply to every point.

    Every point gets load at each of ``rates`` (in requests/s). Without rates, autotune measures the
    capacity of every point. ``hosts`` lists the numbers of hosts to use, by tier. Every point is
    measured ``repeat`` times; a reading lasts ``seconds`` seconds. Each request looks up ``keys`` keys.
    """

    title: str
    axes: tuple[SweepAxis, ...]
    hosts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    settings: Settings = field(default_factory=dict)
    rates: tuple[float, ...] = ()
    repeat: int = 3
    seconds: float = 5.0
    seed: int = 1
    keys: int = 1

    @property
    def point_count(self) -> int:
        """Return the number of points in the grid, which may be too large for a list of its points."""
        value_counts = [len(axis.choices) for axis in self.axes]
        return prod([*value_counts, *map(len, self.hosts.values())])

    @property
    def points(self) -> tuple[GridPoint, ...]:
        """Return every point of the grid; the last axis varies fastest, host counts slowest."""
        value_combinations = itertools.product(*(axis.choices for axis in self.axes))
        grid = itertools.product(self.host_combinations, value_combinations)
        return tuple(
            GridPoint(
                number,
                host_counts,
                {axis.name: c.label for axis, c in zip(self.axes, axis_values, strict=True)},
                {**self.settings, **{k: v for c in axis_values for k, v in c.settings.items()}},
            )
            for number, (host_counts, axis_values) in enumerate(grid)
        )

    @property
    def host_combinations(self) -> tuple[dict[str, int], ...]:
        """Return every combination of host counts."""
        count_combinations = itertools.product(*self.hosts.values())
        return tuple(dict(zip(self.hosts, numbers, strict=True)) for numbers in count_combinations)

    def to_record(self) -> dict[str, Any]:
        """Return the plan as JSON, for the journal."""
        return asdict(self)


@dataclass(frozen=True)
class GridPoint:
    """One combination: host counts, labels on the axes, and settings."""

    number: int
    hosts: HostCounts
    labels: Mapping[str, Value]
    settings: Settings


@dataclass(frozen=True)
class PointMeasurement:
    """One measurement of a point; ``repeat`` counts from 0."""

    point: int
    repeat: int


def parse_plan_record(record: Mapping[str, Any]) -> SweepPlan:
    """Return the plan from its JSON record."""
    axes = tuple(
        SweepAxis(
            axis["name"], tuple(AxisValue(c["label"], c["settings"]) for c in axis["choices"])
        )
        for axis in record["axes"]
    )
    plain_fields = {
        key: record[key] for key in ("title", "settings", "repeat", "seconds", "seed", "keys")
    }
    host_counts = {tier: tuple(tier_counts) for tier, tier_counts in record["hosts"].items()}
    return SweepPlan(axes=axes, hosts=host_counts, rates=tuple(record["rates"]), **plain_fields)


def order_measurements(
    plan: SweepPlan,
) -> Iterator[tuple[HostCounts, tuple[PointMeasurement, ...]]]:
    """Yield the measurements in order, in blocks with the same host counts.

    Every point is measured once before any point is repeated, so that drift affects all points alike.
    Within a repeat the order is random, so that neighbours on an axis are not measured one after the
    other. Host counts change least often, because a change is costly.
    """
    rng = random.Random(plan.seed)  # noqa: S311 # a random order, not a secret
    points = plan.points
    for repeat in range(plan.repeat):
        for host_counts in rng.sample(plan.host_combinations, len(plan.host_combinations)):
            point_numbers = [point.number for point in points if point.hosts == host_counts]
            point_order = rng.sample(point_numbers, len(point_numbers))
            yield host_counts, tuple(PointMeasurement(number, repeat) for number in point_order)


def order_rates(plan: SweepPlan, measurement: PointMeasurement) -> list[float]:
    """Return the rates of a measurement in the order in which they are offered."""
    order_seed = f"{plan.seed} {measurement.point} {measurement.repeat}"
    return random.Random(order_seed).sample(plan.rates, len(plan.rates))  # noqa: S311 # a random order


def read_plan(directory: Path) -> SweepPlan:
    """Return the plan of the sweep in ``directory``. Raises AutotuneError if the directory contains a
    study.
    """
    for record in journal.read_records(directory / "events.jsonl"):
        if record.get("event") == "sweep":
            return parse_plan_record(record["plan"])
    raise AutotuneError(
        f"{directory.name} is a study, not a sweep",
        hint="`autotune report` shows the results of studies",
    )


def is_sweep(directory: Path) -> bool:
    """True if the directory contains a sweep."""
    return any(r.get("event") == "sweep" for r in journal.read_records(directory / "events.jsonl"))


def read_finished_measurements(directory: Path) -> frozenset[PointMeasurement]:
    """Return the finished measurements of the sweep in ``directory``."""
    return frozenset(
        PointMeasurement(record["point"], record["turn"])
        for record in journal.read_records(directory / "events.jsonl")
        if record.get("event") == "swept"
    )


def is_finished(directory: Path) -> bool:
    """True if all measurements of the sweep in ``directory`` are finished."""
    finished_measurements = read_finished_measurements(directory)
    return all(
        measurement in finished_measurements
        for _, block in order_measurements(read_plan(directory))
        for measurement in block
    )
