"""What a full parameter name stands for, and which of two configurations' settings differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from autotune.report import format as fmt
from autotune.services.base import Action, Parameter, Role, Service, Settings, Value
from autotune.services.registry import ALL, DEPLOYMENTS, choice_of, parts
from autotune.space.dimension import CHOICE, is_choice
from autotune.target.messages import same
from autotune.target.model import ParameterRule, Target

Declared = Mapping[str, ParameterRule]


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
    def texts(self) -> tuple[str, str]:
        """What it was and what it becomes, for people."""
        before = "–" if self.before is None else fmt.setting(self.before, self.unit)
        return before, fmt.setting(self.after, self.unit)


NOTHING: Settings = {}
NONE: Declared = {}


def declared(target: Target) -> Declared:
    """The parameters that a target declares itself, for a command of the user's own."""
    return target.parameters if target.command is not None else NONE


@cache
def _catalogue() -> dict[str, tuple[Service, ...]]:
    """``service.parameter`` → the services that have it: one may be there in two kinds."""
    services: dict[str, tuple[Service, ...]] = {}
    for service in ALL:
        for parameter in service.parameters:
            name = f"{service.name}.{parameter.name}"
            services[name] = (*services.get(name, ()), service)
    return services


def described(name: str, settings: Settings = NOTHING, own: Declared = NONE) -> Parameter | None:
    """The catalogue's entry for ``tier.service.parameter``, or what the target itself declares.

    Of two kinds of a service under one name (Apache with processes, Apache with threads) it is the
    one that ``settings`` are about.
    """
    if name in own:
        return _own(name, own[name])
    if is_choice(name):
        return CHOICE
    kinds = _catalogue().get(name.partition(".")[2])
    if not kinds:
        return None
    prefix = ".".join(name.split(".")[:2]) + "."
    kind = max(kinds, key=lambda kind: sum(prefix + p.name in settings for p in kind.parameters))
    return next(p for p in kind.parameters if name == prefix + p.name)


def _own(name: str, rule: ParameterRule) -> Parameter:
    return Parameter(
        name=name,
        stock="",
        action=Action.NONE,
        meaning=rule.meaning or "",
        source="the target",
        unit=rule.unit or "",
    )


def active(settings: Settings, own: Declared = NONE) -> frozenset[str]:
    """Names of the parameters that have any effect under ``settings``."""
    acts = _acts_by_rule if own else _acts
    return frozenset(name for name in settings if acts(name, settings, own))


def _acts_by_rule(name: str, settings: Settings, own: Declared) -> bool:
    conditions = (own[name].when or {}) if name in own else {}
    return all(
        settings.get(other) in values and _acts_by_rule(other, settings, own)
        for other, values in conditions.items()
    )


def _acts(name: str, settings: Settings, _: Declared) -> bool:
    parameter = described(name, settings)
    if parameter is None or is_choice(name):
        return True
    prefix = name.removesuffix(parameter.name)
    own = all(settings.get(prefix + other) in values for other, values in parameter.when)
    return own and _runs(name, parameter, settings)


def _runs(name: str, parameter: Parameter, settings: Settings) -> bool:
    """Whether the parameter's service is part of the deployment chosen for its tier."""
    tier, service = name.split(".")[:2]
    chosen = settings.get(choice_of(tier))
    if chosen not in DEPLOYMENTS or not any(
        _roles(service, deployment) for deployment in DEPLOYMENTS
    ):
        return True
    roles = _roles(service, str(chosen))
    return bool(roles if parameter.roles is None else roles & parameter.roles)


def _roles(service: str, deployment: str) -> set[Role]:
    return {role for part, role in parts(deployment) if part.name == service}


def changes(before: Settings, after: Settings, own: Declared = NONE) -> tuple[Change, ...]:
    """What to change to get from one to the other, leaving out what has no effect afterwards."""
    acting = active(after, own)
    return tuple(
        Change(name, before.get(name), value, described(name, after, own))
        for name, value in after.items()
        if name in acting and not same(before.get(name), value)
    )
