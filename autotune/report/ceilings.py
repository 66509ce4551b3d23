"""The ceilings of closed loops and of caches alone: as JSON, as lines for people, as a page's table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from autotune.loads.closed import LABEL
from autotune.report import format as fmt
from autotune.study.records import CACHES

SCHEMA = 1
Record = Mapping[str, Any]


def ceilings_json(record: Record) -> dict[str, Any]:
    """``ceilings``, one for each number of clients or object size, as `study.ceilings` records them."""
    return {"schema": SCHEMA, **record}


def ceiling_lines(record: Record) -> Iterator[str]:
    """The same for a person: who measured them, then a line each."""
    yield _title(record)
    of_caches = record["of"] == CACHES
    for ceiling in record["ceilings"]:
        name = (
            f"{ceiling['objects']:>16}" if of_caches else f"{ceiling['concurrency']:>4} at a time"
        )
        if ceiling["failed"]:
            yield f"{name}  {ceiling['failed']}"
        elif of_caches:
            yield (
                f"{name}  {fmt.rate(ceiling['rate']):>9} ops/s  {ceiling['gigabits']:.2f} Gb/s  "
                f"{100 * ceiling['hits']:.1f} % of gets hit  ({ceiling['how']})"
            )
        else:
            rate, errors = f"{fmt.rate(ceiling['rate']):>7}/s", _error_counts(ceiling)
            held = ["at least: held at load.max_rate"] if ceiling["limited"] else []
            yield "  ".join([name, rate, _latencies(ceiling), *errors, *held])
    if note := _note(record):
        yield note


def ceilings_table(record: Record) -> dict[str, Any]:
    """The same for a page: ``title``, ``heads``, ``rows`` of text and what to make of them."""
    if record["of"] == CACHES:
        heads = ["objects", "ceiling", "traffic", "gets that hit", "how"]
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
        heads = ["clients at a time", "ceiling", "latency", "errors"]
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
    """The keys/s that the whole stack asks of its caches, as a share of the caches' own ceiling.

    The last ceiling is taken if it was measured with several keys at once, as the application asks
    for them; else the first one, for one key at a time.
    """
    if record["of"] != CACHES:
        return ""
    asked, ceiling = "when asked as it asks", record["ceilings"][-1]
    if ceiling["together"] == 1:
        asked, ceiling = "when asked for one key at a time", record["ceilings"][0]
    if not ceiling["rate"]:
        return ""
    return (
        f"the whole stack asks {fmt.rate(record['chain'])} keys/s of them at its capacity: "
        f"{fmt.share(record['chain'], ceiling['rate'])} of what they answer by themselves {asked}"
    )


def _requests(ceiling: Record) -> str:
    """The ceiling; a lower bound if the clients were held at the limit."""
    rate = f"{fmt.rate(ceiling['rate'])} requests/s"
    return f"at least {rate} (held at load.max_rate)" if ceiling["limited"] else rate


def _latencies(ceiling: Record) -> str:
    percentiles = ceiling["percentiles"]
    return ", ".join(f"{name} {fmt.latency(value)}" for name, value in percentiles.items())


def _error_counts(ceiling: Record) -> list[str]:
    counts = [f"{count} {kind}" for kind, count in ceiling["errors"].items()]
    return [*counts, ceiling["example"]] if ceiling.get("example") else counts
