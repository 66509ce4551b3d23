"""Ceilings as one JSON object and in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from autotune.loads.closed import LABEL
from autotune.report import format as fmt
from autotune.study.records import CACHES

SCHEMA = 1
Record = Mapping[str, Any]


class Found(Protocol):
    """Ceilings just measured: ``study.ceilings.OfStack`` and ``OfCaches``."""

    def record(self) -> dict[str, Any]: ...


def as_json(found: Found) -> dict[str, Any]:
    """``ceilings``, one for each number of clients or object size; see ``record`` of each kind."""
    return {"schema": SCHEMA, **found.record()}


def text(found: Found) -> str:
    """The same for a person."""
    return "\n".join(lines(found.record()))


def lines(record: Record) -> Iterator[str]:
    """One set of ceilings as it is on record: who measured it, then a line each."""
    return _of_caches(record) if record["of"] == CACHES else _of_stack(record)


def table(record: Record) -> dict[str, Any]:
    """The same for a page: ``title``, ``heads``, ``rows`` of text and what to make of them."""
    if record["of"] == CACHES:
        rows = [
            [
                one["objects"],
                one["failed"] or f"{fmt.rate(one['rate'])} ops/s",
                f"{one['gigabits']:.2f} Gb/s",
                f"{100 * one['hits']:.1f} %",
                one["how"],
            ]
            for one in record["ceilings"]
        ]
        heads = ["objects", "ceiling", "traffic", "gets that hit", "how"]
        return {"title": _title_of_caches(record), "heads": heads, "rows": rows,
                "note": _beside_the_chain(record)}  # fmt: skip
    rows = [
        [
            str(one["concurrency"]),
            one["failed"] or f"{fmt.rate(one['rate'])} requests/s",
            _latencies(one),
            ", ".join(_errors(one)),
        ]
        for one in record["ceilings"]
    ]
    heads = ["clients at a time", "ceiling", "latency", "errors"]
    return {"title": _title_of_stack(record), "heads": heads, "rows": rows, "note": ""}


def _of_stack(record: Record) -> Iterator[str]:
    yield _title_of_stack(record)
    for one in record["ceilings"]:
        clients = f"{one['concurrency']:>4} at a time"
        if one["failed"]:
            yield f"{clients}  {one['failed']}"
            continue
        rate = f"{fmt.rate(one['rate']):>7}/s"
        yield "  ".join([clients, rate, _latencies(one), *_errors(one)])


def _of_caches(record: Record) -> Iterator[str]:
    yield _title_of_caches(record)
    for one in record["ceilings"]:
        if one["failed"]:
            yield f"{one['objects']:>16}  {one['failed']}"
            continue
        yield (
            f"{one['objects']:>16}  {fmt.rate(one['rate']):>9} ops/s  "
            f"{one['gigabits']:.2f} Gb/s  {100 * one['hits']:.1f} % of gets hit  ({one['how']})"
        )
    if note := _beside_the_chain(record):
        yield note


def _title_of_stack(record: Record) -> str:
    return f"{record['generator']}, {LABEL}"


def _title_of_caches(record: Record) -> str:
    return f"{', '.join(record['servers'])} alone"


def _beside_the_chain(record: Record) -> str:
    """The last ceiling is the one with as many keys at once as the application asks for, if any is."""
    asked = "when asked as it asks"
    alike = record["ceilings"][-1]
    if alike["together"] == 1:
        alike, asked = record["ceilings"][0], "when asked for one key at a time"
    if not alike["rate"]:
        return ""
    share = fmt.share(record["chain"], alike["rate"])
    return (
        f"the whole stack asks {fmt.rate(record['chain'])} keys/s of them at its capacity: {share} "
        f"of what they answer by themselves {asked}"
    )


def _latencies(one: Record) -> str:
    found = one["percentiles"]
    return ", ".join(f"{name} {fmt.latency(value)}" for name, value in found.items())


def _errors(one: Record) -> list[str]:
    return [f"{count} {kind}" for kind, count in one["errors"].items()]
