"""Parameters as users read them: the catalogue, what a full name stands for, which settings differ."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from autotune.errors import AutotuneError
from autotune.parameter_name import ParameterName, own_settings
from autotune.report import format as fmt
from autotune.services.base import Action, Effect, Parameter, Role, Service, Settings, Value
from autotune.services.registry import ALL, DEPLOYMENTS, SERVICES, choice_of, parts
from autotune.space.dimension import CHOICE, is_choice
from autotune.target.messages import instead, same
from autotune.target.model import ParameterRule, Target

Declared = Mapping[str, ParameterRule]
NOTHING: Settings = {}
NONE: Declared = {}
INDENT = 6 * " "
EFFECTS = {
    Effect.CAPACITY: "on the capacity, searched first",
    Effect.SMALL: "small",
    Effect.COSMETIC: "none to speak of",
}
DIRECTIONS = {"": "", "+": ", guides say more", "-": ", guides say less"}


def services(name: str | None) -> tuple[Service, ...]:
    """One service, or all that have parameters. Raises AutotuneError with the nearest name."""
    by_name = {service.name: service for service in ALL}
    if name is None:
        return tuple(service for service in by_name.values() if service.parameters)
    services = by_name | SERVICES
    if name not in services:
        raise AutotuneError(f"there is no service {name!r}", hint=instead(name, sorted(by_name)))
    return (services[name],)


def catalogue_json(name: str | None = None) -> dict[str, Any]:
    """``services`` → parameters, each with everything the catalogue knows. Raises AutotuneError."""
    return {
        "schema": 1,
        "services": {
            service.name: [_entry(parameter) for parameter in service.parameters]
            for service in services(name)
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
    """The same for a person: a few lines a parameter. Raises AutotuneError."""
    lines: list[str] = []
    for service in services(name):
        lines += [service.name, "=" * len(service.name)]
        for parameter in service.parameters:
            lines += _lines(parameter, width)
        lines.append("")
    return "\n".join(lines)


def _lines(parameter: Parameter, width: int) -> Iterator[str]:
    unit, action = parameter.unit, parameter.action.name.lower()
    if parameter.choices:
        values = " | ".join(map(fmt.setting, parameter.choices))
    else:
        scale = ", log scale" if parameter.log else ""
        values = f"{parameter.low} … {parameter.high}{f' {unit}' if unit else ''}{scale}"
    yield f"  {parameter.name}: {values}"
    yield from textwrap.wrap(
        parameter.meaning, width, initial_indent=INDENT, subsequent_indent=INDENT
    )
    presets = [f"stock {fmt.setting(parameter.stock, unit)}"]
    if parameter.recommended is not None:
        presets.append(f"recommended {fmt.setting(parameter.recommended, unit)}")
    for role, value in parameter.published.items():
        presets.append(f"published for {role} {fmt.setting(value, unit)}")
    yield f"{INDENT}{', '.join(presets)}; a change needs a {action}"
    safe = f"; safe from {parameter.safe[0]} to {parameter.safe[1]}" if parameter.safe else ""
    guided = DIRECTIONS[parameter.direction]
    yield f"{INDENT}effect: {EFFECTS[parameter.effect]}{guided}{safe}"
    conditions = [f"{other} is {' or '.join(map(fmt.setting, vs))}" for other, vs in parameter.when]
    if conditions:
        yield f"{INDENT}has an effect when {' and '.join(conditions)}"
    yield f"{INDENT}source: {parameter.source}"


@dataclass(frozen=True)
class Change:
    """One setting that has another value after than before; ``parameter`` when it is catalogued."""

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
        """What it was and what it becomes, for people."""
        before = "–" if self.before is None else fmt.setting(self.before, self.unit)
        return before, fmt.setting(self.after, self.unit)


def declared(target: Target) -> Declared:
    """The parameters that a target declares itself, for a command of the user's own."""
    return target.parameters if target.command is not None else NONE


def described(name: str, settings: Settings = NOTHING, own: Declared = NONE) -> Parameter | None:
    """The catalogue's entry for ``tier.service.parameter``, or what the target itself declares.

    Of two kinds of a service under one name (Apache with processes, Apache with threads) it is the
    one that ``settings`` are about.
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
    siblings = own_settings(settings, full.owner)
    kind = max(kinds, key=lambda kind: sum(p.name in siblings for p in kind.parameters))
    return next(p for p in kind.parameters if p.name == full.parameter)


@cache
def _kinds(services: tuple[Service, ...]) -> dict[str, tuple[Service, ...]]:
    """``service.parameter`` → the services that have it: one may be there in two kinds."""
    kinds: dict[str, tuple[Service, ...]] = {}
    for service in services:
        for parameter in service.parameters:
            name = f"{service.name}.{parameter.name}"
            kinds[name] = (*kinds.get(name, ()), service)
    return kinds


def active(settings: Settings, own: Declared = NONE) -> frozenset[str]:
    """Names of the parameters that have any effect under ``settings``."""
    if own:
        return frozenset(name for name in settings if _acts_by_rule(name, settings, own))
    return frozenset(name for name in settings if _acts(name, settings))


def _acts_by_rule(name: str, settings: Settings, own: Declared) -> bool:
    conditions = (own[name].when or {}) if name in own else {}
    return all(
        settings.get(other) in values and _acts_by_rule(other, settings, own)
        for other, values in conditions.items()
    )


def _acts(name: str, settings: Settings) -> bool:
    """Its own conditions hold, and its service is part of the deployment chosen for its tier."""
    parameter = described(name, settings)
    if parameter is None or is_choice(name):
        return True
    full = ParameterName.parse(name)
    siblings = own_settings(settings, full.owner)
    if any(siblings.get(other) not in values for other, values in parameter.when):
        return False
    roles = _roles(full.service).get(str(settings.get(choice_of(full.tier))))
    if roles is None:
        return True
    return bool(roles if parameter.roles is None else roles & parameter.roles)


@cache
def _roles(service: str) -> dict[str, set[Role]]:
    """Deployment → the roles of the service in it; empty for one that is in no deployment."""
    roles = {
        deployment: {role for part, role in parts(deployment) if part.name == service}
        for deployment in DEPLOYMENTS
    }
    return roles if any(roles.values()) else {}


def changes(before: Settings, after: Settings, own: Declared = NONE) -> tuple[Change, ...]:
    """What to change to get from one to the other, leaving out what has no effect afterwards."""
    acting = active(after, own)
    return tuple(
        Change(name, before.get(name), value, described(name, after, own))
        for name, value in after.items()
        if name in acting and not same(before.get(name), value)
    )
