"""A target on several test beds, which run the same stack on different hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.environments import base
from autotune.environments.base import Checked, Environment, Preview, Session
from autotune.environments.evaluation import History
from autotune.errors import AutotuneError
from autotune.space.facts import HostFacts
from autotune.space.space import Space
from autotune.target.beds import directory_of
from autotune.target.read import TargetFile

AT_ONCE = 16
# Allowed relative difference of memory, and of bounds derived from it, between equal machines.
SAME = 0.02


@dataclass(frozen=True)
class Beds:
    """The environments of several test beds, used as one: see `base.Environment`.

    A study measures on all beds concurrently. Operations that need one session use the first bed.
    ``differing`` contains one line per difference between the beds.
    """

    file: TargetFile
    environments: Mapping[str, Environment]
    differing: tuple[str, ...] = ()

    @property
    def first(self) -> Environment:
        return next(iter(self.environments.values()))

    @property
    def space(self) -> Space:
        return self.first.space

    @property
    def facts(self) -> Mapping[str, HostFacts]:
        return self.first.facts

    @property
    def dropped(self) -> tuple[str, ...]:
        return (*self.first.dropped, *self.differing)

    def announce(self, *, study: bool = True) -> str:
        lines = dict.fromkeys(each.announce(study=study) for each in self.environments.values())
        return "\n".join([f"Test beds, used concurrently: {', '.join(self.environments)}.", *lines])

    def software(self) -> Mapping[str, Mapping[str, str]]:
        return self.first.software()

    def check(self) -> Checked:
        checks = {name: each.check() for name, each in self.environments.items()}
        alike = "test beds are equal" if not self.differing else "test beds have the same space"
        return Checked(
            held=(
                *(f"bed {name}: {line}" for name, each in checks.items() for line in each.held),
                f"{alike}: {', '.join(checks)}",
            ),
            left_out=self.dropped,
            not_checked=tuple(dict.fromkeys(x for c in checks.values() for x in c.not_checked)),
        )

    def headroom(self) -> str:
        return "; ".join(f"bed {name}: {e.headroom()}" for name, e in self.environments.items())

    def preview(self) -> Preview:
        return self.first.preview()

    def session(
        self, directory: Path, note: Callable[[str], None], history: History
    ) -> AbstractContextManager[Session]:
        name = next(iter(self.environments))
        return self.first.session(directory_of(directory, name), note, history)


def prepare(
    file: TargetFile, names: Sequence[str], adopted: Mapping[str, Any] | None = None
) -> Beds:
    """Inspect the hosts of these beds. Read-only. ``adopted`` contains the recorded files by bed.

    Raises AutotuneError that lists every difference in allowed values or baselines. Raises
    TargetError like `base.prepare`.
    """

    def prepared(name: str) -> Environment:
        of_bed = file.of_bed(name)
        return base.prepare(replace(of_bed, adopted=adopted[name]) if adopted else of_bed)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        environments = dict(zip(names, pool.map(prepared, names), strict=True))
    (first, reference), *others = environments.items()
    ours = limits(reference.space)
    lines = [line for name, other in others
             for line in unlike(f"bed {first}", ours, f"bed {name}", limits(other.space))]  # fmt: skip
    if lines:
        raise AutotuneError(
            "the test beds differ and cannot share a study:\n"
            + "\n".join(f"  {line}" for line in lines),
            hint="make their hosts equal, or exclude a bed with `--beds`",
        )
    traits = {name: _traits(environment) for name, environment in environments.items()}
    differing = [line for name, _ in others
                 for line in _differences(first, traits[first], name, traits[name])]  # fmt: skip
    return Beds(file, environments, tuple(differing))


def limits(space: Space) -> dict[str, dict[str, Any]]:
    """Return each parameter's baseline and allowed values as JSON values."""
    return {
        d.name: {
            "baseline": d.baseline,
            "lowest": d.low,
            "highest": d.high,
            "choices": list(d.choices),
        }
        for d in space.dimensions
    }


def unlike(
    first: str, ours: Mapping[str, Any], name: str, theirs: Mapping[str, Any]
) -> Iterator[str]:
    """Yield a line for each difference in ``limits`` that prevents a shared study."""
    for parameter in (*ours, *(p for p in theirs if p not in ours)):
        if parameter not in theirs or parameter not in ours:
            here, there = (first, name) if parameter in ours else (name, first)
            yield f"{parameter}: exists on {here}, but not on {there}"
            continue
        for what, value in ours[parameter].items():
            another = theirs[parameter][what]
            if not _same(value, another):
                yield f"{parameter}: {what} {value} on {first}, {another} on {name}"


def _same(value: Any, another: Any) -> bool:
    if isinstance(value, float | int) and isinstance(another, float | int):
        return abs(value - another) <= SAME * max(abs(value), abs(another))
    return bool(value == another)


def _traits(environment: Environment) -> dict[str, dict[str, Any]]:
    """Return the resources, kernel settings and software of each host, to compare beds."""
    software = environment.software()
    return {
        host: {
            "CPUs": facts.cpus,
            "memory": facts.memory,
            "descriptors": facts.nofile,
            **facts.kernel,
            **software.get(host, {}),
        }
        for host, facts in environment.facts.items()
    }


def _differences(
    first: str,
    traits: Mapping[str, Mapping[str, Any]],
    name: str,
    other: Mapping[str, Mapping[str, Any]],
) -> Iterator[str]:
    for host, ours in traits.items():
        theirs = other[host]
        for what in (*ours, *(w for w in theirs if w not in ours)):
            value, another = ours.get(what), theirs.get(what)
            if not _same(value, another):
                yield f"beds differ: {what} of {host} is {value} on {first}, {another} on {name}"
