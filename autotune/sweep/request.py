"""What to sweep, as options or a sweep file say it, and the grid that it asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from autotune.errors import AutotuneError, UsageError
from autotune.loads.offer import excess
from autotune.report import format as fmt
from autotune.services.base import Value
from autotune.space.dimension import Dimension
from autotune.space.space import Space
from autotune.strict import LARGEST, decimal, whole
from autotune.sweep.plan import SERVICE, Axis, Choice, Plan
from autotune.target.document import Document, load
from autotune.target.messages import instead, plural
from autotune.target.read import TargetFile, read
from autotune.target.units import duration, in_unit, rate

KEYS = ("title", "target", "over", "hosts", "with", "rates", "repeat", "seconds")
RAISE = "lower the rate, or raise `load: {max_rate: …}` in the target"
MOST = 1000  # values on one axis
SPELT = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}
T = TypeVar("T")


@dataclass(frozen=True)
class Request:
    """What to sweep, as a user wrote it: values are not yet those of parameters.

    ``rates`` in requests/s, none for capacities; ``seconds`` of one reading.
    """

    title: str = ""
    over: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    hosts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)
    rates: tuple[float, ...] = ()
    repeat: int = 3
    seconds: float = 5.0


def sweep_file(path: Path) -> tuple[TargetFile, Request | None]:
    """A sweep file and its target, or a target alone. Raises TargetError (file:line:column)."""
    document = load(path)
    if "target" not in document.root:
        return read(path), None
    for key in document.root:
        if key not in KEYS:
            raise document.unknown([key], "key", KEYS)
    target = read((path.parent / str(document.root["target"])).resolve())
    return target, _request(document)


def _request(document: Document) -> Request:
    def entries(key: str) -> dict[str, Any]:
        mapping = document.root.get(key, {})
        if not isinstance(mapping, dict):
            raise document.error([key], f"{key}: must have keys of its own")
        return mapping

    def value(key: str, parse: Callable[[Any], T], default: object) -> T:
        try:
            return parse(document.root.get(key, default))
        except ValueError as error:
            raise document.error([key], f"{key}: {error}") from None

    over = entries("over")
    return Request(
        title=str(document.root.get("title", document.path.stem)),
        over={name: _values(document, name, written) for name, written in over.items()},
        hosts={tier: _counts(document, tier, counts) for tier, counts in entries("hosts").items()},
        settings=entries("with"),
        rates=value("rates", lambda written: tuple(map(rate, _listed(written))), []),
        repeat=value("repeat", _repeat, 3),
        seconds=value("seconds", duration, "5s"),
    )


def _listed(written: Any) -> list[Any]:
    return written if isinstance(written, list) else [written]


def _values(document: Document, name: str, written: object) -> tuple[object, ...]:
    try:
        return tuple(written) if isinstance(written, list) else tuple(expand(str(written)))
    except AutotuneError as error:
        raise document.error(["over", name], error.message, hint=error.hint) from None


def _counts(document: Document, tier: str, written: object) -> tuple[int, ...]:
    counts = _listed(written)
    if any(isinstance(count, bool) or not isinstance(count, int) for count in counts):
        raise document.error(["hosts", tier], f"{tier}: numbers of hosts, such as [1, 2, 3]")
    return tuple(counts)


def _repeat(written: object) -> int:
    if isinstance(written, bool) or not isinstance(written, int) or not 1 <= written <= 100:
        raise ValueError("a whole number from 1 to 100")
    return written


def from_options(
    path: Path,
    over: Sequence[str] | None,
    hosts: Sequence[str] | None,
    with_: Sequence[str] | None,
    rates: Sequence[float] | None,
    repeat: int | None,
    *,
    peak: bool,
) -> tuple[TargetFile, Request]:
    """The target and what to sweep; options replace what the file says under the same name.

    Raises TargetError for the file and AutotuneError for options that make no sense.
    """
    file, written = sweep_file(path)
    base = written or Request()
    ranges = _named("--over", over, "no values", "NAME=LOW:HIGH:STEP or NAME=A,B,C")
    request = replace(
        base,
        over={**base.over, **{name: tuple(expand(values)) for name, values in ranges}},
        hosts={**base.hosts, **dict(map(_host_counts, hosts or ()))},
        settings={**base.settings, **dict(_named("--with", with_, "no value", "NAME=VALUE"))},
        rates=tuple(rates) if rates else base.rates,
        repeat=repeat or base.repeat,
    )
    if peak:
        if rates:
            raise AutotuneError("--rate and --peak exclude each other")
        request = replace(request, rates=())
    elif not request.rates and written is None:
        raise AutotuneError("what to measure is not said", hint="give --rate R, or --peak")
    if not all(0 < rate < LARGEST for rate in request.rates):
        raise AutotuneError("a rate must be more than nothing, and one that can be made")
    if why := over_limit(request.rates, file):
        if rates:
            raise UsageError(f"--rate: {why}", hint=RAISE)
        raise load(path).error(["rates"], f"rates: {why}", hint=RAISE)
    return file, request if request.title else replace(request, title=_title(request))


def over_limit(rates: Iterable[float], file: TargetFile) -> str | None:
    """Why the highest of these rates may not be offered to the target; ``None`` if all may."""
    return excess(max(rates, default=0.0), file.target.load.max_rate)


def _named(
    option: str, texts: Iterable[str] | None, lacking: str, form: str
) -> Iterator[tuple[str, str]]:
    """The name and the value of each ``NAME=VALUE``. Raises AutotuneError for one without value."""
    for text in texts or ():
        name, _, value = text.partition("=")
        if not value:
            raise AutotuneError(f"{option} {text}: {lacking}", hint=f"write {form}")
        yield name, value


def _host_counts(text: str) -> tuple[str, tuple[int, ...]]:
    tier, _, numbers = text.partition("=")
    try:
        return tier, tuple(whole(number.strip()) for number in numbers.split(","))
    except ValueError:
        raise AutotuneError(f"--hosts {text}: no numbers", hint="write TIER=1,2,3") from None


def _title(request: Request) -> str:
    varied = [*request.over, *(f"hosts of {tier}" for tier in request.hosts)]
    return f"{'Response time' if request.rates else 'Capacity'} over {' and '.join(varied)}"


def expand(text: str) -> list[str]:
    """The values that ``low:high:step`` or a list with commas stands for."""
    low, *rest = text.split(":")
    if not rest:
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        start, (end, step) = decimal(low.strip()), (decimal(word.strip()) for word in rest)
    except ValueError:
        raise AutotuneError(f"{text!r} is no range", hint="write LOW:HIGH:STEP") from None
    if step <= 0 or end < start or (end - start) / step > MOST:
        raise AutotuneError(f"the range {text} has no values or more than {MOST}")
    count = int((end - start) / step + 1e-9) + 1
    return [f"{start + index * step:.12g}" for index in range(count)]


def plan_of_request(file: TargetFile, request: Request, space: Space) -> Plan:
    """The grid of a request. Raises AutotuneError for what the target does not have."""
    tiers, data = file.target.tiers, file.target.data
    if not request.over and not request.hosts:
        raise AutotuneError("nothing varies", hint="give --over NAME=LOW:HIGH:STEP or --hosts")
    for tier, counts in request.hosts.items():
        if tier not in tiers:
            hint = f"expected one of: {', '.join(tiers)}"
            raise AutotuneError(f"there is no tier {tier!r}", hint=hint)
        most = len(tiers[tier].hosts)
        if not counts or min(counts) < 1 or max(counts) > most:
            raise AutotuneError(
                f"tier {tier} has {plural(most, 'host')}: give numbers from 1 to {most}"
            )
    # How many keys a request looks up is known for the reference application only.
    reference = any(tier.app == "reference" for tier in tiers.values())
    plan = Plan(
        title=request.title,
        axes=tuple(axis_of(name, values, space) for name, values in request.over.items()),
        hosts=request.hosts,
        settings={name: axis_of(name, [value], space).choices[0].label
                  for name, value in request.settings.items()},
        rates=request.rates,
        repeat=request.repeat,
        seconds=request.seconds,
        seed=file.target.search.seed,
        keys=data.keys_per_request if reference else 1,
    )  # fmt: skip
    for axis in plan.axes:
        _check_effect(axis, plan, space)
    return plan


def _check_effect(axis: Axis, plan: Plan, space: Space) -> None:
    """A parameter without effect anywhere in the sweep would draw a flat line and prove nothing."""
    if axis.name == SERVICE:
        return
    for point in plan.points:
        if axis.name in space.active({**space.baseline, **point.settings}):
            return
    conditions = next(d.when for d in space.dimensions if d.name == axis.name)
    needed = ", ".join(f"{name}={'|'.join(map(str, values))}" for name, values in conditions)
    raise AutotuneError(
        f"{axis.name} has no effect under these settings", hint=f"it has with: --with {needed}"
    )


def axis_of(name: str, values: Sequence[object], space: Space) -> Axis:
    """The axis of a parameter with these values; for ``service``, ``all`` means all deployments.

    Raises AutotuneError for a name the target does not have, and for values that do not fit it.
    """
    if name == SERVICE:
        return Axis(SERVICE, _deployments(values, space))
    dimensions = {dimension.name: dimension for dimension in space.dimensions}
    if name not in dimensions:
        raise AutotuneError(f"the target has no parameter {name!r}", hint=instead(name, dimensions))
    typed = [value_of(dimensions[name], value) for value in values]
    return Axis(name, tuple(Choice(value, {name: value}) for value in typed))


def value_of(dimension: Dimension, written: object) -> Value:
    """``written`` (text, or a YAML scalar) as a value of this parameter. Raises AutotuneError."""
    if dimension.choices:
        choices = dimension.parameter.choices or dimension.choices
        for choice in choices:
            switch = isinstance(choice, bool) and SPELT.get(str(written).lower()) is choice
            if switch or str(choice) == str(written):
                return choice
        allowed = f"expected one of: {', '.join(map(str, choices))}"
        raise AutotuneError(f"{dimension.name} cannot be {written}", hint=allowed)
    try:
        number = decimal(str(in_unit(written, dimension.parameter.unit)).strip())
    except ValueError:
        raise AutotuneError(f"{dimension.name}: {written!r} is not a number") from None
    try:
        return dimension.typed(number)
    except ValueError as error:
        raise AutotuneError(str(error)) from None


def _deployments(values: Sequence[object], space: Space) -> tuple[Choice, ...]:
    by_label = {", ".join(map(str, services.values())): services for services in space.deployments}
    if len(by_label) < 2:
        raise AutotuneError(
            "the target leaves no choice of services",
            hint="list them: `service: [nginx, apache]`",
        )
    every = list(values) == ["all"]
    labels = list(by_label) if every else [str(v).replace("/", ", ") for v in values]
    if unknown := [label for label in labels if label not in by_label]:
        expected = ", ".join(label.replace(", ", "/") for label in by_label)
        raise AutotuneError(
            f"there is no deployment {unknown[0]!r}", hint=f"expected one of: {expected}"
        )
    return tuple(Choice(label, by_label[label]) for label in labels)


def directory_name(path: Path, file: TargetFile) -> str:
    """What the sweep's directory is called."""
    return f"{file.target.name}-sweep" if path.resolve() == file.path.resolve() else path.stem


def size_text(plan: Plan) -> str:
    """The size of a sweep, before it begins."""
    readings = f"{plural(len(plan.rates), 'reading')} of {plan.seconds:g} s"
    kind = readings if plan.rates else "a search for its capacity"
    measurements = len(plan.points) * plan.repeat
    seconds = measurements * len(plan.rates) * plan.seconds
    points = plural(len(plan.points), "point")
    load = f", {fmt.duration(seconds)} under load" if seconds else ""
    return f"{points}, each measured {plural(plan.repeat, 'time')}: {measurements} × {kind}{load}."
