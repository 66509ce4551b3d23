"""The catalogue of parameters: what each is for, its values, and where they come from."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from autotune.errors import AutotuneError
from autotune.report import format as fmt
from autotune.services.base import Parameter, Service, Value
from autotune.services.registry import APPS, SERVICES
from autotune.target.messages import instead


def services(name: str | None) -> tuple[Service, ...]:
    """One service, or all. Raises AutotuneError with the nearest name."""
    by_name = {service.name: service for service in (*SERVICES.values(), *APPS.values())}
    if name is None:
        return tuple(service for service in by_name.values() if service.parameters)
    by_name |= SERVICES
    if name not in by_name:
        hint = instead(name, sorted({service.name for service in by_name.values()}))
        raise AutotuneError(f"there is no service {name!r}", hint=hint)
    return (by_name[name],)


def as_json(name: str | None = None) -> dict[str, Any]:
    """``services`` → parameters, each with everything the catalogue knows. Raises AutotuneError."""
    return {
        "schema": 1,
        "services": {
            service.name: [_entry(parameter) for parameter in service.parameters]
            for service in services(name)
        },
    }


def as_text(name: str | None = None, width: int = 100) -> str:
    """The same for a person: a few lines a parameter. Raises AutotuneError."""
    lines: list[str] = []
    for service in services(name):
        lines += [service.name, "=" * len(service.name)]
        for parameter in service.parameters:
            lines += _lines(parameter, width)
        lines.append("")
    return "\n".join(lines)


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
        "source": parameter.source,
    }


def _lines(parameter: Parameter, width: int) -> Iterator[str]:
    def formatted(value: Value) -> str:
        return fmt.setting(value, parameter.unit)

    yield f"  {parameter.name}: {_range(parameter)}"
    yield from textwrap.wrap(
        parameter.meaning, width, initial_indent="      ", subsequent_indent="      "
    )
    values = [f"stock {formatted(parameter.stock)}"]
    if parameter.recommended is not None:
        values.append(f"recommended {formatted(parameter.recommended)}")
    values += [f"published for {role} {formatted(v)}" for role, v in parameter.published.items()]
    yield f"      {', '.join(values)}; a change needs a {parameter.action.name.lower()}"
    conditions = [f"{other} is {' or '.join(map(_plain, vs))}" for other, vs in parameter.when]
    if conditions:
        yield f"      has an effect when {' and '.join(conditions)}"
    yield f"      source: {parameter.source}"


def _plain(value: Value) -> str:
    return fmt.setting(value)


def _range(parameter: Parameter) -> str:
    if parameter.choices:
        return " | ".join(map(_plain, parameter.choices))
    scale = ", log scale" if parameter.log else ""
    unit = f" {parameter.unit}" if parameter.unit else ""
    return f"{parameter.low} … {parameter.high}{unit}{scale}"
