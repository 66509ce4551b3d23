"""The records of ``readings.jsonl``: readings of load, and calls of a benchmark command."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from autotune.errors import AutotuneError
from autotune.masking import mask_secrets
from autotune.measure.benchmark import BenchmarkAnswer
from autotune.measure.reading import Reading
from autotune.monitor.activity import HostUsage
from autotune.study import journal
from autotune.study.journal import JournalLine
from autotune.study.record_codec import decode

READINGS_FILE = "readings.jsonl"
CALL_PURPOSE = "call"  # purpose of a reading from a benchmark command


@dataclass(frozen=True)
class RecordedReading:
    """A recorded load reading: trial, time (ISO 8601), purpose, content and host usage.

    `Reading` describes the fields from ``rate`` to ``example``. Bin edges of ``histogram`` are in
    milliseconds, which keeps the records short.
    """

    trial: int
    at: str
    purpose: str
    rate: float
    seconds: float
    intended: int
    violations: int
    errors: Mapping[str, int] = field(default_factory=dict)
    histogram: Mapping[str, int] = field(default_factory=dict)
    truncated: bool = False
    limited: str | None = None
    stolen: float = 0.0
    looked_at: int = 0
    wrong: int = 0
    example: str = ""
    hosts: Mapping[str, HostUsage] = field(default_factory=dict)

    @cached_property
    def reading(self) -> Reading:
        """Return the reading without its trial and hosts."""
        fields = {
            field_name: getattr(self, field_name) for field_name in Reading.__dataclass_fields__
        }
        histogram = {float(edge) / 1000: count for edge, count in self.histogram.items()}
        return Reading(**{**fields, "histogram": histogram})


@dataclass(frozen=True)
class RecordedCall:
    """A call of a benchmark command: its value and sd, or the reason for a missing value."""

    trial: int
    at: str
    seconds: float
    value: float | None = None
    sd: float | None = None
    why: str | None = None
    said: str | None = None


def record_reading(
    trial: int, at: str, purpose: str, reading: Reading, hosts: Mapping[str, HostUsage]
) -> RecordedReading:
    """Return the record of a reading, with the bin edges in milliseconds. Secrets in texts from the load
    generator are masked.
    """
    fields = {
        field_name: _mask_text(getattr(reading, field_name))
        for field_name in Reading.__dataclass_fields__
    }
    # Kinds of errors may be messages, and masked messages may be equal.
    errors: Counter[str] = Counter()
    for kind, count in reading.errors.items():
        errors[mask_secrets(kind)] += count
    # Edges are rounded to six digits, so several bins may have the same edge.
    histogram: Counter[str] = Counter()
    for edge, count in sorted(reading.histogram.items()):
        histogram[f"{edge * 1000:g}"] += count
    counts = {"errors": dict(errors), "histogram": dict(histogram)}
    return RecordedReading(trial, at, purpose, **{**fields, **counts, "hosts": hosts})


def encode_command_call(
    trial: int, at: str, seconds: float, answer: BenchmarkAnswer
) -> dict[str, Any]:
    """Return the JSON object of a command call. The keys depend on the kind of answer. Secrets in texts
    from the command are masked.
    """
    common_fields = {
        "trial": trial,
        "at": at,
        "purpose": CALL_PURPOSE,
        "seconds": round(seconds, 3),
    }
    answer_fields = {key: _mask_text(value) for key, value in dataclasses.asdict(answer).items()}
    return {**common_fields, **answer_fields}


def _mask_text(value: Any) -> Any:
    return mask_secrets(value) if isinstance(value, str) else value


def describe_command_call(call: RecordedCall) -> dict[str, float | str | None]:
    """Return the seconds of a call and its answer. The keys depend on the kind of answer."""
    if call.value is not None:
        return {"seconds": call.seconds, "value": call.value, "sd": call.sd}
    failure_fields: dict[str, float | str | None] = {"seconds": call.seconds, "why": call.why}
    return failure_fields if call.said is None else {**failure_fields, "said": call.said}


def load_reading_records(directory: Path) -> list[RecordedReading | RecordedCall]:
    """Return every reading and call of a study, in order. Raises AutotuneError."""
    path = directory / READINGS_FILE
    return [_decode_reading_record(path, record) for record in journal.read_records(path)]


def load_readings(directory: Path) -> list[RecordedReading]:
    """Return every reading of load, in order. Raises AutotuneError."""
    return [
        record for record in load_reading_records(directory) if isinstance(record, RecordedReading)
    ]


def _decode_reading_record(path: Path, record: JournalLine) -> RecordedReading | RecordedCall:
    try:
        if record.get("purpose") == CALL_PURPOSE:
            return decode(RecordedCall, record)
        return decode(RecordedReading, record)
    except ValueError as error:
        raise AutotuneError(
            f"invalid reading in {path} ({error}): the study is damaged, or another version of autotune "
            "wrote it",
            hint=journal.DAMAGED_HINT,
        ) from error
