"""Output of measured ceilings: JSON, text lines, and a table for the HTML report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from autotune.loads.closed import LABEL
from autotune.report import format as fmt
from autotune.study.records import CACHES

SCHEMA = 1
Record = Mapping[str, Any]


def ceilings_json(record: Record) -> dict[str, Any]:
    """Return the record with its schema version; `study.ceilings` defines the other keys."""
    return {"schema": SCHEMA, **record}


def ceiling_lines(record: Record) -> Iterator[str]:
    """Yield a title, one line per ceiling, and a note if one applies."""
    yield _title(record)
    of_caches = record["of"] == CACHES
    for ceiling in record["ceilings"]:
        name = (
            f"{ceiling['objects']:>16}" if of_caches else f"concurrency {ceiling['concurrency']:>4}"
        )
        if ceiling["failed"]:
            yield f"{name}  {ceiling['failed']}"
        elif of_caches:
            yield (
                f"{name}  {fmt.rate(ceiling['rate']):>9} ops/s  {ceiling['gigabits']:.2f} Gb/s  "
                f"hit rate {100 * ceiling['hits']:.1f} %  ({ceiling['how']})"
            )
        else:
            rate, errors = f"{fmt.rate(ceiling['rate']):>7}/s", _error_counts(ceiling)
            held = ["lower bound: load.max_rate reached"] if ceiling["limited"] else []
            yield "  ".join([name, rate, _latencies(ceiling), *errors, *held])
    if note := _note(record):
        yield note


def ceilings_table(record: Record) -> dict[str, Any]:
    """Return ``title``, ``heads``, ``rows`` and ``note`` of the HTML table."""
    if record["of"] == CACHES:
        heads = ["objects", "ceiling", "traffic", "hit rate", "how"]
        rows = [
            [
                ceiling["objects"],
                ceiling["failed"] or f"{fmt.rate(ceiling['rate'])} ops/s",
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
                ceiling["failed"] or _requests(ceiling),
                _latencies(ceiling),
                ", ".join(_error_counts(ceiling)),
            ]
            for ceiling in record["ceilings"]
        ]
    return {"title": _title(record), "heads": heads, "rows": rows, "note": _note(record)}


def _title(record: Record) -> str:
    if record["of"] == CACHES:
        return f"{', '.join(record['servers'])} alone"
    return f"{record['generator']}, {LABEL}"


def _note(record: Record) -> str:
    """Return the stack's keys/s at capacity as a share of the caches' own ceiling.

    The reference is the last ceiling if it was measured with several keys per request. Otherwise it is
    the first ceiling, with one key per request.
    """
    if record["of"] != CACHES:
        return ""
    asked, ceiling = "at the same batch size", record["ceilings"][-1]
    if ceiling["together"] == 1:
        asked, ceiling = "with one key per request", record["ceilings"][0]
    if not ceiling["rate"]:
        return ""
    return (
        f"at capacity the stack reads {fmt.rate(record['chain'])} keys/s: "
        f"{fmt.share(record['chain'], ceiling['rate'])} of the caches' own ceiling {asked}"
    )


def _requests(ceiling: Record) -> str:
    """Return the ceiling as text; a lower bound if load.max_rate was reached."""
    rate = f"{fmt.rate(ceiling['rate'])} requests/s"
    return f"at least {rate} (load.max_rate reached)" if ceiling["limited"] else rate


def _latencies(ceiling: Record) -> str:
    percentiles = ceiling["percentiles"]
    return ", ".join(f"{name} {fmt.latency(value)}" for name, value in percentiles.items())


def _error_counts(ceiling: Record) -> list[str]:
    counts = [f"{count} {kind}" for kind, count in ceiling["errors"].items()]
    return [*counts, ceiling["example"]] if ceiling.get("example") else counts
