"""From a target and its hosts' facts to the dimensions of the search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from autotune.services.base import Bound, Conditions, Parameter, Role, Value
from autotune.services.registry import DEPLOYMENTS, Placed, placed
from autotune.space import derived, kernel
from autotune.space.choices import choice
from autotune.space.dimension import Dimension
from autotune.space.expression import parse
from autotune.space.facts import HostFacts, smallest
from autotune.space.values import value_of
from autotune.target.model import ParameterRule, Scalar, Tier
from autotune.target.read import TargetFile

Facts = Mapping[str, HostFacts]


def dimensions(file: TargetFile, facts: Facts) -> tuple[Dimension, ...]:
    """Every parameter the target leaves in the study, fixed ones included (low = high = baseline).

    Raises TargetError for an unknown service or parameter, an empty range, a default outside it.
    """
    found: dict[str, Dimension] = {}
    for tier_name, tier in file.target.tiers.items():
        _known(file, tier_name, tier)
        here = smallest(facts[host] for host in tier.hosts)
        for dimension in of_tier(tier_name, tier, here):
            same = found.get(dimension.name)
            found[dimension.name] = _merged(same, dimension) if same else dimension
    for name, rule in file.target.parameters.items():
        if name not in found:
            raise file.document.unknown(["parameters", name], "parameter", found)
        if rule.drop:
            # A dropped parameter keeps its baseline: files still need a value.
            found[name] = _fix(found[name], found[name].baseline)
        elif rule.derive is not None:
            found[name] = derived.by_rule(file, found, found[name], rule.derive)
        else:
            found[name] = _adjusted(file, found[name], rule)
    return derived.settled(file, found)


def _known(file: TargetFile, name: str, tier: Tier) -> None:
    """Raises TargetError for a deployment that does not exist."""
    for index, deployment in enumerate(tier.service):
        if deployment not in DEPLOYMENTS:
            place: list[str | int] = ["tiers", name, "service"]
            if not isinstance(file.document.root["tiers"][name]["service"], str):
                place.append(index)
            known = ", ".join(DEPLOYMENTS)
            raise file.document.error(
                place, f"there is no service {deployment!r}", hint=f"expected one of: {known}"
            )


def of_tier(name: str, tier: Tier, facts: HostFacts) -> Iterator[Dimension]:
    """Every parameter of a tier as the catalogue has it, bounded by what its hosts have."""
    chosen = choice(name, tier)
    if chosen:
        yield chosen
    for place in placed(name, tier):
        for parameter in place.service.parameters:
            if parameter.roles is None or place.role in parameter.roles:
                dimension = _dimension(name, place, parameter, facts)
                yield kernel.as_found(dimension, facts) if place.role is Role.HOST else dimension


def _merged(one: Dimension, other: Dimension) -> Dimension:
    """One parameter of a service that plays two roles in a tier: of use in either."""
    # Both start with the condition of their deployment; what follows is the parameter's own.
    (name, values), (_, more) = one.when[0], other.when[0]
    return replace(one, when=((name, (*values, *more)), *one.when[1:]))


def _dimension(tier: str, place: Placed, parameter: Parameter, facts: HostFacts) -> Dimension:
    prefix = f"{tier}.{place.service.name}."
    own: Conditions = tuple((prefix + name, values) for name, values in parameter.when)

    def value(bound: Bound | Value | None) -> Value | None:
        return _bound(bound, facts) if isinstance(bound, str) and not parameter.choices else bound

    low, high = value(parameter.low), value(parameter.high)
    dimension = Dimension(
        name=prefix + parameter.name,
        parameter=parameter,
        baseline=value(parameter.stock),  # type: ignore[arg-type]  # stock is never None
        low=low,  # type: ignore[arg-type]  # numbers where there are no choices
        high=high,  # type: ignore[arg-type]
        log=parameter.log,
        choices=parameter.choices,
        recommended=value(parameter.recommended),
        published=parameter.published.get(place.role),
        when=(*place.when, *own),
        derived=derived.of_catalogue(parameter, prefix),
    )
    if parameter.on_demand:
        return _fix(dimension, dimension.baseline)
    return _including(dimension, (dimension.baseline,))


def _bound(text: str, facts: HostFacts) -> int | float:
    number = parse(text).evaluate(facts.names())
    return int(number) if number == int(number) or number > 100 else number


def _including(dimension: Dimension, values: tuple[Value, ...]) -> Dimension:
    """Bounds from a small host's facts must still hold the stock value."""
    if dimension.choices:
        return dimension
    numbers = [float(value) for value in values]
    assert dimension.low is not None
    assert dimension.high is not None
    low, high = min(dimension.low, *numbers), max(dimension.high, *numbers)
    return replace(dimension, low=dimension.number(low), high=dimension.number(high))


def _fix(dimension: Dimension, value: Value) -> Dimension:
    if dimension.choices:
        return replace(dimension, choices=(value,), baseline=value)
    number = dimension.number(value)
    return replace(dimension, low=number, high=number, baseline=number, derived=None)


def _adjusted(file: TargetFile, dimension: Dimension, rule: ParameterRule) -> Dimension:
    place = ["parameters", dimension.name]

    def read(value: Scalar, key: str) -> Value:
        return value_of(file, dimension, [*place, key], value)

    if rule.fixed is not None:
        return _fix(dimension, read(rule.fixed, "fixed"))
    if rule.range is not None:
        if dimension.choices:
            raise file.document.error([*place, "range"], f"{dimension.name} has choices, no range")
        low, high = (dimension.number(read(value, "range")) for value in rule.range)
        if low >= high:
            raise file.document.error(
                [*place, "range"], f"{dimension.name}: the range [{low}, {high}] is empty"
            )
        dimension = replace(dimension, low=low, high=high)
    if rule.choices is not None:
        values = tuple(read(value, "choices") for value in rule.choices)
        dimension = replace(dimension, choices=values, low=None, high=None)
    if rule.log is not None:
        dimension = replace(dimension, log=rule.log)
    if rule.default is not None:
        dimension = replace(dimension, baseline=read(rule.default, "default"))
    return _with_baseline_inside(file, dimension, rule)


def _with_baseline_inside(file: TargetFile, dimension: Dimension, rule: ParameterRule) -> Dimension:
    if _holds(dimension, dimension.baseline):
        return dimension
    place: list[str | int] = ["parameters", dimension.name]
    if rule.default is not None:
        place.append("default")
    hint = "widen the range, or set `default:` to where the stack stands today"
    raise file.document.error(
        place, f"{dimension.name}: the default {dimension.baseline} is outside {_extent(dimension)}",
        hint=hint,
    )  # fmt: skip


def _holds(dimension: Dimension, value: Value) -> bool:
    if dimension.choices:
        return value in dimension.choices
    assert dimension.low is not None
    assert dimension.high is not None
    return dimension.low <= float(value) <= dimension.high


def _extent(dimension: Dimension) -> str:
    if dimension.choices:
        return ", ".join(str(choice) for choice in dimension.choices)
    return f"[{dimension.low}, {dimension.high}]"
