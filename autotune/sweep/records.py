"""What a study's journal says of a sweep."""

from __future__ import annotations

from pathlib import Path

from autotune.errors import AutotuneError
from autotune.study import journal
from autotune.sweep.plan import Plan, Visit, plan_of

PURPOSE = "sweep"  # of the readings that count


def recorded(directory: Path) -> Plan:
    """The plan of the sweep in ``directory``. Raises AutotuneError where there is none."""
    for record in journal.read(directory / "events.jsonl"):
        if record["event"] == "sweep":
            return plan_of(record["plan"])
    raise AutotuneError(f"{directory.name} is a study, and no sweep")


def is_sweep(directory: Path) -> bool:
    """Whether a study's directory holds a sweep."""
    return any(r["event"] == "sweep" for r in journal.read(directory / "events.jsonl"))


def visited(directory: Path) -> frozenset[Visit]:
    """Every visit that was finished."""
    return frozenset(
        Visit(record["point"], record["turn"])
        for record in journal.read(directory / "events.jsonl")
        if record["event"] == "swept"
    )
