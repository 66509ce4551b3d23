"""A sweep that is kept in a file: a target, what to vary, what to hold."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.errors import AutotuneError
from autotune.space.space import Space
from autotune.sweep import axes
from autotune.sweep.plan import Axis, Plan
from autotune.target.document import Document, load
from autotune.target.read import TargetFile, read
from autotune.target.units import duration, rate

KEYS = ("title", "target", "over", "hosts", "with", "rates", "repeat", "seconds")


@dataclass(frozen=True)
class Wanted:
    """What to sweep, as a user wrote it: values are not yet those of parameters.

    ``rates`` in requests/s, none for peaks; ``seconds`` of one reading.
    """

    title: str
    over: tuple[tuple[str, tuple[object, ...]], ...]
    hosts: dict[str, tuple[int, ...]]
    settings: dict[str, object]
    rates: tuple[float, ...] = ()
    repeat: int = 3
    seconds: float = 5.0


def sweep_file(path: Path) -> tuple[TargetFile, Wanted | None]:
    """A sweep file and its target, or a target alone. Raises TargetError (file:line:column)."""
    document = load(path)
    if "target" not in document.root:
        return read(path), None
    for key in document.root:
        if key not in KEYS:
            raise document.unknown([key], "key", KEYS)
    target = read((path.parent / str(document.root["target"])).resolve())
    return target, _wanted(document)


def plan(file: TargetFile, wanted: Wanted, space: Space) -> Plan:
    """What is wanted, held against the target. Raises AutotuneError for what it does not have."""
    if not wanted.over and not wanted.hosts:
        raise AutotuneError("nothing varies", hint="give --over NAME=LOW:HIGH:STEP or --hosts")
    for tier, counts in wanted.hosts.items():
        _enough(file, tier, counts)
    settings = {
        name: value for name, given in wanted.settings.items()
        for value in [axes.of(name, [given], space).choices[0].label]
    }  # fmt: skip
    made = Plan(
        title=wanted.title,
        axes=tuple(axes.of(name, values, space) for name, values in wanted.over),
        hosts=wanted.hosts,
        settings=settings,
        rates=wanted.rates,
        repeat=wanted.repeat,
        seconds=wanted.seconds,
        seed=file.target.search.seed,
        keys=_keys(file),
    )
    for one in made.axes:
        _matters(one, made, space)
    return made


def _enough(file: TargetFile, tier: str, counts: tuple[int, ...]) -> None:
    tiers = file.target.tiers
    if tier not in tiers:
        raise AutotuneError(
            f"there is no tier {tier!r}", hint=f"expected one of: {', '.join(tiers)}"
        )
    most = len(tiers[tier].hosts)
    if not counts or min(counts) < 1 or max(counts) > most:
        raise AutotuneError(f"tier {tier} has {most} hosts: give numbers from 1 to {most}")


def _matters(one: Axis, made: Plan, space: Space) -> None:
    """A parameter without effect anywhere in the sweep would draw a flat line and prove nothing."""
    if one.name == axes.SERVICE:
        return
    for point in made.points:
        if one.name in space.active({**space.baseline, **point.settings}):
            return
    conditions = next(d.when for d in space.dimensions if d.name == one.name)
    said = ", ".join(f"{name}={'|'.join(map(str, values))}" for name, values in conditions)
    raise AutotuneError(
        f"{one.name} has no effect under these settings", hint=f"it has with: --with {said}"
    )


def _keys(file: TargetFile) -> int:
    """Keys each request looks up, where the application is one whose requests are known."""
    reference = any(tier.app == "reference" for tier in file.target.tiers.values())
    return file.target.data.keys_per_request if reference else 1


def _wanted(document: Document) -> Wanted:
    root = document.root
    over = _mapping(document, "over")
    hosts = _mapping(document, "hosts")
    return Wanted(
        title=str(root.get("title", document.path.stem)),
        over=tuple((name, _values(document, name, over[name])) for name in over),
        hosts={tier: _counts(document, tier, hosts[tier]) for tier in hosts},
        settings=_mapping(document, "with"),
        rates=_rates(document),
        repeat=_whole(document, "repeat", 3),
        seconds=_seconds(document),
    )


def _mapping(document: Document, key: str) -> dict[str, Any]:
    mapping = document.root.get(key, {})
    if not isinstance(mapping, dict):
        raise document.error([key], f"{key}: must have keys of its own")
    return mapping


def _values(document: Document, name: str, written: object) -> tuple[object, ...]:
    try:
        return tuple(written) if isinstance(written, list) else tuple(axes.spread(str(written)))
    except AutotuneError as error:
        raise document.error(["over", name], error.message, hint=error.hint) from None


def _counts(document: Document, tier: str, written: object) -> tuple[int, ...]:
    listed = written if isinstance(written, list) else [written]
    if any(isinstance(n, bool) or not isinstance(n, int) for n in listed):
        raise document.error(["hosts", tier], f"{tier}: numbers of hosts, such as [1, 2, 3]")
    return tuple(listed)


def _rates(document: Document) -> tuple[float, ...]:
    written = document.root.get("rates", [])
    try:
        return tuple(rate(text) for text in (written if isinstance(written, list) else [written]))
    except ValueError as error:
        raise document.error(["rates"], f"rates: {error}") from None


def _whole(document: Document, key: str, default: int) -> int:
    number = document.root.get(key, default)
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= 100:
        raise document.error([key], f"{key}: a whole number from 1 to 100")
    return number


def _seconds(document: Document) -> float:
    try:
        return duration(document.root.get("seconds", "5s"))
    except ValueError as error:
        raise document.error(["seconds"], f"seconds: {error}") from None
