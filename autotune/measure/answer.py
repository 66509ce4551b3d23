"""What a benchmark command says of one configuration: the last line it prints, one JSON object.

``{"value": 41.2}``, with ``"sd"`` where it knows its own standard deviation, or
``{"infeasible": "why"}`` for a configuration that cannot be used. Other keys are left to the user.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import isfinite
from typing import Any


@dataclass(frozen=True)
class Value:
    """What was measured; ``sd`` is the standard deviation that the command says it has."""

    value: float
    sd: float | None = None


@dataclass(frozen=True)
class Unusable:
    """The configuration cannot be used; that is a result, and the search learns from it."""

    why: str


@dataclass(frozen=True)
class Fault:
    """The command failed, which says nothing about the configuration. ``said``: its last words."""

    why: str
    said: str = ""

    def __str__(self) -> str:
        return f"{self.why}\n{self.said}" if self.said else self.why


Answer = Value | Unusable | Fault


def parse(printed: str) -> Answer:
    """The answer in the last line; a Fault when there is none that can be read."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    if not lines:
        return Fault("it printed no answer")
    try:
        found = json.loads(lines[-1])
    except ValueError:
        return Fault(f"its last line is no JSON: {_shown(lines[-1])}")
    if not isinstance(found, dict) or ("value" in found) == ("infeasible" in found):
        return Fault(
            f'its last line is neither {{"value": …}} nor {{"infeasible": "why"}}: '
            f"{_shown(lines[-1])}"
        )
    return _unusable(found["infeasible"]) if "infeasible" in found else _value(found)


def _unusable(why: object) -> Answer:
    if why in (None, False):
        return Fault(f'"infeasible" says why, in words, not {json.dumps(why)}')
    return Unusable(why if isinstance(why, str) and why.strip() else "no reason given")


def _value(found: dict[str, Any]) -> Answer:
    value, sd = _number(found["value"]), _number(found.get("sd"))
    if value is None:
        return Fault(f'"value" is no finite number: {_shown(json.dumps(found["value"]))}')
    if found.get("sd") is not None and (sd is None or sd < 0):
        return Fault(f'"sd" is no number of 0 or more: {_shown(json.dumps(found["sd"]))}')
    return Value(value, sd)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) else None


def _shown(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:119]}…"
