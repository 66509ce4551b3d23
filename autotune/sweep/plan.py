"""What a sweep measures, and in which order. Pure."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from autotune.errors import AutotuneError
from autotune.services.base import Settings, Value
from autotune.study import journal

Hosts = Mapping[str, int]
SERVICE = "service"  # the axis of all tiers' deployments
PURPOSE = "sweep"  # of the readings that count


@dataclass(frozen=True)
class Choice:
    """One value on an axis: its label, and the settings it stands for."""

    label: Value
    settings: Settings


@dataclass(frozen=True)
class Axis:
    """A parameter (by its full name), or ``service``: the deployments of all tiers."""

    name: str
    choices: tuple[Choice, ...]

    @property
    def numeric(self) -> bool:
        return all(
            isinstance(c.label, int | float) and not isinstance(c.label, bool) for c in self.choices
        )


@dataclass(frozen=True)
class Plan:
    """``settings`` hold at every point. ``rates`` (requests/s) are offered at each; without any its
    capacity is searched for. ``hosts`` are the numbers of hosts to use, by tier. Every point is measured
    ``repeat`` times; a reading lasts ``seconds``. ``keys`` are looked up by each request.
    """

    title: str
    axes: tuple[Axis, ...]
    hosts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    settings: Settings = field(default_factory=dict)
    rates: tuple[float, ...] = ()
    repeat: int = 3
    seconds: float = 5.0
    seed: int = 1
    keys: int = 1

    @property
    def points(self) -> tuple[Point, ...]:
        """Every combination, the last axis fastest, host counts slowest."""
        chosen = itertools.product(*(axis.choices for axis in self.axes))
        grid = itertools.product(self.combinations, chosen)
        return tuple(
            Point(
                number,
                hosts,
                {axis.name: c.label for axis, c in zip(self.axes, choices, strict=True)},
                {**self.settings, **{k: v for c in choices for k, v in c.settings.items()}},
            )
            for number, (hosts, choices) in enumerate(grid)
        )

    @property
    def combinations(self) -> tuple[dict[str, int], ...]:
        """Every combination of host counts."""
        counts = itertools.product(*self.hosts.values())
        return tuple(dict(zip(self.hosts, numbers, strict=True)) for numbers in counts)

    def record(self) -> dict[str, Any]:
        """As JSON, for the journal."""
        return asdict(self)


@dataclass(frozen=True)
class Point:
    """One combination: its host counts, its place on the axes, and all settings it asks for."""

    number: int
    hosts: Hosts
    labels: Mapping[str, Value]
    settings: Settings


@dataclass(frozen=True)
class Measurement:
    """One measurement of a point: which of its repeats, from 0."""

    point: int
    repeat: int


def plan_of(record: Mapping[str, Any]) -> Plan:
    """The inverse of ``Plan.record``, after a journey through JSON."""
    axes = tuple(
        Axis(axis["name"], tuple(Choice(c["label"], c["settings"]) for c in axis["choices"]))
        for axis in record["axes"]
    )
    fields = {
        key: record[key] for key in ("title", "settings", "repeat", "seconds", "seed", "keys")
    }
    hosts = {tier: tuple(counts) for tier, counts in record["hosts"].items()}
    return Plan(axes=axes, hosts=hosts, rates=tuple(record["rates"]), **fields)


def blocks(plan: Plan) -> Iterator[tuple[Hosts, tuple[Measurement, ...]]]:
    """The order of measurements, in blocks that share their host counts.

    Every point is measured once before any is measured again, so that drift is spread over the
    whole figure; within a repeat the order is random, so that no neighbours on an axis are
    neighbours in time. Changing the number of hosts is costly: within a repeat it is the outer order.
    """
    chance = random.Random(plan.seed)  # noqa: S311  # an order, no secret
    points = plan.points
    for repeat in range(plan.repeat):
        for hosts in chance.sample(plan.combinations, len(plan.combinations)):
            numbers = [point.number for point in points if point.hosts == hosts]
            order = chance.sample(numbers, len(numbers))
            yield hosts, tuple(Measurement(number, repeat) for number in order)


def recorded(directory: Path) -> Plan:
    """The plan of the sweep in ``directory``. Raises AutotuneError where there is none."""
    for record in journal.read(directory / "events.jsonl"):
        if record["event"] == "sweep":
            return plan_of(record["plan"])
    raise AutotuneError(f"{directory.name} is a study, and no sweep")


def is_sweep(directory: Path) -> bool:
    """Whether a study's directory holds a sweep."""
    return any(r["event"] == "sweep" for r in journal.read(directory / "events.jsonl"))


def measured(directory: Path) -> frozenset[Measurement]:
    """Every measurement that was finished."""
    return frozenset(
        Measurement(record["point"], record["turn"])
        for record in journal.read(directory / "events.jsonl")
        if record["event"] == "swept"
    )
