"""What a study's readings come to, trial by trial: counts that can be summed, nothing averaged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from autotune.study.store import CALL

WARM_UP = "warm-up"


@dataclass(frozen=True)
class ReadingCounts:
    """Readings of one trial. ``errors`` are requests that failed outright, by kind.

    ``warmed`` counts the warm-up's windows, and ``disturbed`` the readings that did not count for
    what was taken of the hosts' CPU time; neither is in any other count. ``last`` is the newest
    reading as it was recorded.
    """

    readings: int = 0
    warmed: int = 0
    disturbed: int = 0
    limited: int = 0
    intended: int = 0
    violations: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    last: Mapping[str, Any] | None = None

    @property
    def failed(self) -> float:
        """Fraction of the intended requests that failed outright."""
        return sum(self.errors.values()) / self.intended if self.intended else 0.0


def count_readings(readings: Iterable[Mapping[str, Any]]) -> dict[int, ReadingCounts]:
    """Trial number → its counts, from the records of ``readings.jsonl`` (any order)."""
    found: dict[int, ReadingCounts] = {}
    for reading in readings:
        number = reading["trial"]
        found[number] = _after(found.get(number, ReadingCounts()), reading)
    return found


def _after(so_far: ReadingCounts, reading: Mapping[str, Any]) -> ReadingCounts:
    if reading.get("disturbed"):
        return replace(so_far, disturbed=so_far.disturbed + 1, last=reading)
    if reading.get("purpose") == WARM_UP:
        return replace(so_far, warmed=so_far.warmed + 1, last=reading)
    if reading.get("purpose") == CALL:
        return replace(so_far, readings=so_far.readings + 1)
    return replace(
        so_far,
        readings=so_far.readings + 1,
        limited=so_far.limited + (reading.get("limited") is not None),
        intended=so_far.intended + reading["intended"],
        violations=so_far.violations + reading["violations"],
        errors=dict(Counter(so_far.errors) + Counter(reading.get("errors") or {})),
        last=reading,
    )
