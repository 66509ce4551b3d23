"""What a full parameter name stands for, and which of two configurations' settings differ."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from autotune.services.base import Parameter, Settings, Value
from autotune.services.registry import APPS, SERVICES


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
    services = (*SERVICES.values(), *APPS.values())
    return {f"{s.name}.{p.name}": p for s in services for p in s.parameters}


def described(name: str) -> Parameter | None:
    """The catalogue's entry for ``tier.service.parameter``; ``None`` for a user's own."""
    return _catalogue().get(name.partition(".")[2])


def active(settings: Settings) -> frozenset[str]:
    """Names of the parameters that have any effect under ``settings``."""
    return frozenset(name for name in settings if _acts(name, settings))


def _acts(name: str, settings: Settings) -> bool:
    parameter = described(name)
    if parameter is None:
        return True
    prefix = name.removesuffix(parameter.name)
    return all(settings.get(prefix + other) in values for other, values in parameter.when)


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
