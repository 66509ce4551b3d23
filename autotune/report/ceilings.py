"""Output of measured ceilings: JSON, text lines, and a table for the HTML report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from autotune.loads.closed_load import CLOSED_LOOP_LABEL
from autotune.report import format as fmt
from autotune.study.study_state import CACHE_CEILING

SCHEMA_VERSION = 1
CeilingRecord = Mapping[str, Any]


def build_ceilings_json(record: CeilingRecord) -> dict[str, Any]:
    """Return the record with its schema version; `study.ceilings` defines the other keys."""
    return {"schema": SCHEMA_VERSION, **record}


def format_ceiling_lines(record: CeilingRecord) -> Iterator[str]:
    """Yield a title, one line per ceiling, and a note if one applies."""
    yield _format_title(record)
    is_cache_record = record["of"] == CACHE_CEILING
    for ceiling in record["ceilings"]:
        name = (
            f"{ceiling['objects']:>16}"
            if is_cache_record
            else f"concurrency {ceiling['concurrency']:>4}"
        )
        if ceiling["failed"]:
            yield f"{name}  {ceiling['failed']}"
        elif is_cache_record:
            yield (
                f"{name}  {fmt.format_rate(ceiling['rate']):>9} ops/s  {ceiling['gigabits']:.2f} Gb/s  "
                f"hit rate {100 * ceiling['hits']:.1f} %  ({ceiling['how']})"
            )
        else:
            rate, errors = f"{fmt.format_rate(ceiling['rate']):>7}/s", _format_error_counts(ceiling)
            limit_notes = ["lower bound: load.max_rate reached"] if ceiling["limited"] else []
            yield "  ".join([name, rate, _format_latencies(ceiling), *errors, *limit_notes])
    if note := _format_share_note(record):
        yield note


def build_ceilings_table(record: CeilingRecord) -> dict[str, Any]:
    """Return ``title``, ``heads``, ``rows`` and ``note`` of the HTML table."""
    if record["of"] == CACHE_CEILING:
        heads = ["objects", "ceiling", "traffic", "hit rate", "how"]
        rows = [
            [
                ceiling["objects"],
                ceiling["failed"] or f"{fmt.format_rate(ceiling['rate'])} ops/s",
                f"{ceiling['gigabits']:.2f} Gb/s",
                f"{100 * ceiling['hits']:.1f} %",
                ceiling["how"],
            ]
            for ceiling in record["ceilings"]
        ]
    else:
        heads = ["concurrency", "ceiling", "latency", "errors"]
        rows = [
            [
                str(ceiling["concurrency"]),
                ceiling["failed"] or _format_request_rate(ceiling),
                _format_latencies(ceiling),
                ", ".join(_format_error_counts(ceiling)),
            ]
            for ceiling in record["ceilings"]
        ]
    return {
        "title": _format_title(record),
        "heads": heads,
        "rows": rows,
        "note": _format_share_note(record),
    }


def _format_title(record: CeilingRecord) -> str:
    if record["of"] == CACHE_CEILING:
        return f"{', '.join(record['servers'])} alone"
    return f"{record['generator']}, {CLOSED_LOOP_LABEL}"


def _format_share_note(record: CeilingRecord) -> str:
    """Return the stack's keys/s at capacity as a share of the caches' own ceiling.

    The reference is the last ceiling if it was measured with several keys per request. Otherwise it is
    the first ceiling, with one key per request.
    """
    if record["of"] != CACHE_CEILING:
        return ""
    condition, ceiling = "at the same batch size", record["ceilings"][-1]
    if ceiling["together"] == 1:
        condition, ceiling = "with one key per request", record["ceilings"][0]
    if not ceiling["rate"]:
        return ""
    return (
        f"at capacity the stack reads {fmt.format_rate(record['chain'])} keys/s: "
        f"{fmt.format_share(record['chain'], ceiling['rate'])} of the caches' own ceiling {condition}"
    )


def _format_request_rate(ceiling: CeilingRecord) -> str:
    """Return the ceiling as text; a lower bound if load.max_rate was reached."""
    rate = f"{fmt.format_rate(ceiling['rate'])} requests/s"
    return f"at least {rate} (load.max_rate reached)" if ceiling["limited"] else rate


def _format_latencies(ceiling: CeilingRecord) -> str:
    percentiles = ceiling["percentiles"]
    return ", ".join(f"{name} {fmt.format_latency(value)}" for name, value in percentiles.items())


def _format_error_counts(ceiling: CeilingRecord) -> list[str]:
    counts = [f"{count} {kind}" for kind, count in ceiling["errors"].items()]
    return [*counts, ceiling["example"]] if ceiling.get("example") else counts
