"""What goes with what: a target is a stack, or a command of the user's own, and never half of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autotune.target.document import Location, instead
from autotune.target.model import OF_A_STACK, ParameterRule, Target
from autotune.target.shown import shown

# Keys that only a stack has, and those that only a command has.
STACK = (*OF_A_STACK, "ssh", "load", "data", "simulated")
COMMAND = ("maximize", "minimize", "unit", "timeout")
DECLARING = ("when", "unit", "meaning")
EXAMPLES = {
    "slo": "slo: {p99: 50ms, errors: 0.1%}",
    "hosts": "hosts: {web1: {address: web1.example.org}}",
    "tiers": "tiers: {lb: {hosts: lb1, service: nginx}}",
}


@dataclass(frozen=True)
class Finding:
    """Something that does not fit, where, and what may help."""

    location: Location
    message: str
    hint: str | None = None


def findings(target: Target) -> Iterator[Finding]:
    """What is missing for the kind of target it is, or belongs to the other kind."""
    yield from _stack(target) if target.command is None else _command(target)


def _stack(target: Target) -> Iterator[Finding]:
    for key in COMMAND:
        if key in target.model_fields_set:
            yield Finding((key,), f"`{key}:` means nothing without `command:`")
    for name, rule in target.parameters.items():
        for key in DECLARING:
            if getattr(rule, key) is not None:
                message = (
                    f"`{key}:` is for parameters of a `command:`; the catalogue knows this one"
                )
                yield Finding(("parameters", name, key), message)
    for key in OF_A_STACK:
        if key not in target.model_fields_set:
            yield Finding((), f"{key!r} is missing", f"such as `{EXAMPLES[key]}`")


def _command(target: Target) -> Iterator[Finding]:
    for key in STACK:
        if key in target.model_fields_set:
            message = f"`{key}:` means nothing beside `command:`, which does its own measuring"
            yield Finding((key,), message, "leave it out")
    if target.maximize and target.minimize:
        yield Finding(("minimize",), "`maximize` and `minimize` exclude each other")
    if not target.parameters:
        example = "such as `parameters: {threads: {range: [1, 16], default: 4}}`"
        yield Finding(("parameters",), "there is nothing to tune: `parameters` is empty", example)
    for name, rule in target.parameters.items():
        yield from _declared(target, name, rule)


def _declared(target: Target, name: str, rule: ParameterRule) -> Iterator[Finding]:
    place = ("parameters", name)
    if rule.drop:
        yield Finding((*place, "drop"), f"{name}: there is nothing to drop it from", "leave it out")
    elif rule.range is None and rule.choices is None and rule.fixed is None:
        message = f"{name}: what may it be? A `range`, `choices` or a `fixed` value"
        yield Finding(place, message)
    others = {other: target.parameters[other] for other in target.parameters if other != name}
    for other, values in (rule.when or {}).items():
        if other not in others:
            hint = instead(other, others)
            yield Finding((*place, "when", other), f"there is no parameter {other!r}", hint)
            continue
        for value in values:
            if others[other].choices is not None and value not in (others[other].choices or ()):
                message = f"{other} is never {shown(value)}"
                yield Finding((*place, "when", other), message)
    if circle := _circle(target, (name,)):
        yield Finding((*place, "when"), f"conditions go in a circle: {' → '.join(circle)}")


def _circle(target: Target, path: tuple[str, ...]) -> tuple[str, ...] | None:
    """The way along conditions from the first parameter of ``path`` back to it."""
    rule = target.parameters.get(path[-1])
    for other in (rule.when or {}) if rule else {}:
        if other == path[0]:
            return (*path, other)
        if other not in path and (found := _circle(target, (*path, other))):
            return found
    return None
