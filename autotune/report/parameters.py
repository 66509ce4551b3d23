"""What a full parameter name stands for, and which of two configurations' settings differ."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from autotune.services.base import Parameter, Settings, Value
from autotune.services.placement import all_services, choice_of
from autotune.services.registry import DEPLOYMENTS, parts
from autotune.space import choices


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


@cache
def _catalogue() -> dict[str, Parameter]:
    return {f"{s.name}.{p.name}": p for s in all_services() for p in s.parameters}


def described(name: str) -> Parameter | None:
    """The catalogue's entry for ``tier.service.parameter``; ``None`` for a user's own."""
    return (
        choices.PARAMETER if choices.is_choice(name) else _catalogue().get(name.partition(".")[2])
    )


def active(settings: Settings) -> frozenset[str]:
    """Names of the parameters that have any effect under ``settings``."""
    return frozenset(name for name in settings if _acts(name, settings))


def _acts(name: str, settings: Settings) -> bool:
    parameter = described(name)
    if parameter is None or choices.is_choice(name):
        return True
    prefix = name.removesuffix(parameter.name)
    own = all(settings.get(prefix + other) in values for other, values in parameter.when)
    return own and _runs(name, parameter, settings)


def _runs(name: str, parameter: Parameter, settings: Settings) -> bool:
    """Whether the parameter's service is part of the deployment chosen for its tier."""
    tier, service = name.split(".")[:2]
    chosen = settings.get(choice_of(tier))
    if chosen not in DEPLOYMENTS:
        return True
    roles = {role for part, role in parts(str(chosen)) if part.name == service}
    everywhere = {part.name for one in DEPLOYMENTS for part, _ in parts(one)}
    if service not in everywhere:
        return True
    return bool(roles if parameter.roles is None else roles & parameter.roles)


def changes(before: Settings, after: Settings) -> tuple[Change, ...]:
    """What to change to get from one to the other, leaving out what has no effect afterwards."""
    return tuple(
        Change(name, before.get(name), value, described(name))
        for name, value in after.items()
        if name in active(after) and not _same(before.get(name), value)
    )


def _same(one: Value | None, other: Value) -> bool:
    # In Python True == 1, and a switch is no number.
    return one == other and isinstance(one, bool) == isinstance(other, bool)
