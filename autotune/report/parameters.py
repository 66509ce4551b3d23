"""Parameters as users read them: catalogue entries, full names, and differing settings."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from autotune.errors import AutotuneError
from autotune.parameter_name import ParameterName, own_settings
from autotune.report import format as fmt
from autotune.services.base import Action, Effect, Parameter, Role, Service, Settings, Trait, Value
from autotune.services.registry import ALL, DEPLOYMENTS, SERVICES, choice_of, parts
from autotune.space.dimension import CHOICE, is_choice
from autotune.target.messages import instead, same
from autotune.target.model import ParameterRule, Target

Declared = Mapping[str, ParameterRule]
NOTHING: Settings = {}
NONE: Declared = {}
INDENT = 6 * " "
EFFECTS = {
    Effect.CAPACITY: "on capacity (searched first)",
    Effect.SMALL: "small",
    Effect.COSMETIC: "negligible",
}
LOADS = {
    Trait.TLS: "TLS",
    Trait.CHURN: "a connection for each request",
}
COSTS = {
    Action.NONE: "a change takes effect immediately",
    Action.RELOAD: "a change needs a reload",
    Action.RESTART: "a change needs a restart",
}
DIRECTIONS = {"": "", "+": ", guides recommend more", "-": ", guides recommend less"}


@dataclass(frozen=True)
class Catalogued:
    """A parameter in the catalogue. If ``deployments`` is empty, it belongs to all of its service."""

    parameter: Parameter
    deployments: tuple[str, ...] = ()


def catalogue(name: str | None = None) -> dict[str, list[Catalogued]]:
    """Return service → parameters, for one service or for all services that have any.

    A service of two kinds, such as Apache with threads or processes, appears once, with the parameters
    of both. Raises AutotuneError with the nearest name.
    """
    kinds: dict[str, list[Service]] = {}
    for service in ALL:
        kinds.setdefault(service.name, []).append(service)
    if name is None:
        return {each: _of_kinds(some) for each, some in kinds.items() if some[0].parameters}
    each = SERVICES[name].name if name in SERVICES else name
    if each not in kinds:
        raise AutotuneError(f"unknown service {name!r}", hint=instead(name, sorted(kinds)))
    return {each: _of_kinds(kinds[each])}


def _of_kinds(kinds: list[Service]) -> list[Catalogued]:
    """Return the parameters that all kinds share, then the ones that differ by kind."""
    shared = [p for p in kinds[0].parameters if all(p in kind.parameters for kind in kinds)]
    own = [
        Catalogued(parameter, (kind.deployment or kind.key,))
        for kind in kinds
        for parameter in kind.parameters
        if parameter not in shared
    ]
    return [*map(Catalogued, shared), *own]


def catalogue_json(name: str | None = None) -> dict[str, Any]:
    """Return ``services`` → parameters with all fields of the catalogue. Raises AutotuneError."""
    return {
        "schema": 1,
        "services": {
            service: [
                _entry(each.parameter) | {"deployments": list(each.deployments)} for each in entries
            ]
            for service, entries in catalogue(name).items()
        },
    }


def _entry(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "meaning": parameter.meaning,
        "unit": parameter.unit,
        "stock": parameter.stock,
        "recommended": parameter.recommended,
        "published": {str(role): value for role, value in parameter.published.items()},
        "low": parameter.low,
        "high": parameter.high,
        "log": parameter.log,
        "choices": list(parameter.choices),
        "when": {other: list(values) for other, values in parameter.when},
        "roles": sorted(map(str, parameter.roles)) if parameter.roles else None,
        "action": parameter.action.name.lower(),
        "effect": str(parameter.effect),
        "direction": parameter.direction,
        "safe": list(parameter.safe) if parameter.safe else None,
        "source": parameter.source,
    }


def catalogue_text(name: str | None = None, width: int = 100) -> str:
    """Return the catalogue as text, a few lines per parameter. Raises AutotuneError."""
    lines: list[str] = []
    for service, entries in catalogue(name).items():
        lines += [service, "=" * len(service)]
        for each in entries:
            lines += _lines(each, width)
        lines.append("")
    return "\n".join(lines)


def _lines(each: Catalogued, width: int) -> Iterator[str]:
    parameter = each.parameter
    yield f"  {parameter.name}: {values(parameter)}"
    yield from textwrap.wrap(
        parameter.meaning, width, initial_indent=INDENT, subsequent_indent=INDENT
    )
    yield f"{INDENT}{presets(parameter)}; {COSTS[parameter.action]}"
    yield f"{INDENT}effect: {effect(parameter)}"
    yield from (f"{INDENT}{sentence}" for sentence in conditions(each))
    yield f"{INDENT}source: {parameter.source}"


def values(parameter: Parameter) -> str:
    """Return the choices or the range of a parameter as text."""
    if parameter.choices:
        return " | ".join(map(fmt.setting, parameter.choices))
    unit = f" {parameter.unit}" if parameter.unit else ""
    return f"{parameter.low} … {parameter.high}{unit}{', log scale' if parameter.log else ''}"


def presets(parameter: Parameter) -> str:
    """Return the stock value and the values that presets and guides recommend, as text."""
    presets = {"stock": parameter.stock, "recommended": parameter.recommended}
    presets |= {f"published for {role}": value for role, value in parameter.published.items()}
    return ", ".join(
        f"{name} {fmt.setting(value, parameter.unit)}"
        for name, value in presets.items()
        if value is not None
    )


def effect(parameter: Parameter) -> str:
    """Return the expected effect, the advised direction, the safe range and the decisive loads."""
    safe = f"; safe from {parameter.safe[0]} to {parameter.safe[1]}" if parameter.safe else ""
    loads = "".join(f"; decides under {LOADS[each]}" for each in sorted(parameter.decides))
    return f"{EFFECTS[parameter.effect]}{DIRECTIONS[parameter.direction]}{safe}{loads}"


def conditions(each: Catalogued) -> Iterator[str]:
    """Yield the conditions under which a parameter has an effect."""
    if each.deployments:
        yield f"in {' and '.join(each.deployments)} only"
    siblings = [
        f"{other} is {' or '.join(map(fmt.setting, some))}" for other, some in each.parameter.when
    ]
    if siblings:
        yield f"has an effect only if {' and '.join(siblings)}"


@dataclass(frozen=True)
class Change:
    """One setting whose value differs; ``parameter`` is its entry in the catalogue, if any."""

    name: str
    before: Value | None
    after: Value
    parameter: Parameter | None = None

    @property
    def unit(self) -> str:
        return self.parameter.unit if self.parameter else ""

    @property
    def meaning(self) -> str:
        return self.parameter.meaning if self.parameter else ""

    @property
    def texts(self) -> tuple[str, str]:
        """The old and the new value, as text."""
        before = "–" if self.before is None else fmt.setting(self.before, self.unit)
        return before, fmt.setting(self.after, self.unit)


def declared(target: Target) -> Declared:
    """Return the parameters that a target declares for the user's own command."""
    return target.parameters if target.command is not None else NONE


def described(name: str, settings: Settings = NOTHING, own: Declared = NONE) -> Parameter | None:
    """Return the catalogue's entry for ``tier.service.parameter``, or the target's own declaration.

    Two kinds of a service can share a name, such as Apache with processes or threads. The entry then
    comes from the kind with the most parameters in ``settings``.
    """
    if name in own:
        return Parameter(
            name=name,
            stock="",
            action=Action.NONE,
            meaning=own[name].meaning or "",
            source="the target",
            unit=own[name].unit or "",
        )
    if is_choice(name):
        return CHOICE
    full = ParameterName.parse(name)
    kinds = _kinds(tuple(ALL)).get(full.within_tier)
    if not kinds:
        return None
    kind = kinds[0]
    if len(kinds) > 1:
        siblings = own_settings(settings, full.owner)
        kind = max(kinds, key=lambda kind: sum(p.name in siblings for p in kind.parameters))
    return next(p for p in kind.parameters if p.name == full.parameter)


@cache
def _kinds(services: tuple[Service, ...]) -> dict[str, tuple[Service, ...]]:
    """Return ``service.parameter`` → services with it; several if a service has several kinds."""
    kinds: dict[str, tuple[Service, ...]] = {}
    for service in services:
        for parameter in service.parameters:
            name = f"{service.name}.{parameter.name}"
            kinds[name] = (*kinds.get(name, ()), service)
    return kinds


def active(settings: Settings, own: Declared = NONE) -> frozenset[str]:
    """Return the names of the parameters that have an effect under ``settings``."""
    return frozenset(name for name in settings if acts(name, settings, own))


def acts(name: str, settings: Settings, own: Declared = NONE) -> bool:
    """True if the parameter has an effect under ``settings``."""
    return _acts_by_rule(name, settings, own) if own else _acts(name, settings)


def _acts_by_rule(name: str, settings: Settings, own: Declared) -> bool:
    conditions = (own[name].when or {}) if name in own else {}
    return all(
        settings.get(other) in values and _acts_by_rule(other, settings, own)
        for other, values in conditions.items()
    )


def _acts(name: str, settings: Settings) -> bool:
    """True if the parameter's conditions hold and the tier's deployment uses its service."""
    parameter = described(name, settings)
    if parameter is None or is_choice(name):
        return True
    full = ParameterName.parse(name)
    if any(settings.get(f"{full.owner}.{other}") not in values for other, values in parameter.when):
        return False
    roles = _roles(full.service).get(str(settings.get(choice_of(full.tier))))
    if roles is None:
        return True
    return bool(roles if parameter.roles is None else roles & parameter.roles)


@cache
def _roles(service: str) -> dict[str, set[Role]]:
    """Return deployment → the roles of the service in it; empty if no deployment uses it."""
    roles = {
        deployment: {role for part, role in parts(deployment) if part.name == service}
        for deployment in DEPLOYMENTS
    }
    return roles if any(roles.values()) else {}


def changes(before: Settings, after: Settings, own: Declared = NONE) -> tuple[Change, ...]:
    """Return the settings that differ and have an effect in ``after``."""
    return tuple(
        Change(name, before.get(name), value, described(name, after, own))
        for name, value in after.items()
        if not same(before.get(name), value) and acts(name, after, own)
    )
