"""Readings as a study keeps them: a line of ``readings.jsonl`` each."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from autotune.measure.reading import Reading


def record_of(reading: Reading) -> dict[str, Any]:
    """As JSON. The histogram's edges are milliseconds: shorter lines, and keys that read well."""
    fields = dataclasses.asdict(reading)
    fields["histogram"] = {f"{edge * 1000:g}": n for edge, n in sorted(reading.histogram.items())}
    return fields


def reading_of(record: Mapping[str, Any]) -> Reading:
    """The reading that was recorded, by this version or an earlier one."""
    histogram = record.get("histogram") or {}
    return Reading(
        rate=record["rate"],
        seconds=record["seconds"],
        intended=record["intended"],
        violations=record["violations"],
        errors=record.get("errors") or {},
        histogram={float(edge) / 1000: count for edge, count in histogram.items()},
        truncated=bool(record.get("truncated")),
        limited=record.get("limited"),
        disturbed=record.get("disturbed"),
    )
