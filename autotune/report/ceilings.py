"""Ceilings as one JSON object and in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from autotune.loads.closed import LABEL
from autotune.report import format as fmt
from autotune.study.records import CACHES

SCHEMA = 1
Record = Mapping[str, Any]


class Measured(Protocol):
    """Ceilings just measured: ``study.ceilings.OfStack`` and ``OfCaches``."""

    def record(self) -> dict[str, Any]: ...


def as_json(measured: Measured) -> dict[str, Any]:
    """``ceilings``, one for each number of clients or object size; see ``record`` of each kind."""
    return {"schema": SCHEMA, **measured.record()}


def text(measured: Measured) -> str:
    """The same for a person."""
    return "\n".join(lines(measured.record()))


def lines(record: Record) -> Iterator[str]:
    """One set of ceilings as it is on record: who measured it, then a line each."""
    return _of_caches(record) if record["of"] == CACHES else _of_stack(record)


def table(record: Record) -> dict[str, Any]:
    """The same for a page: ``title``, ``heads``, ``rows`` of text and what to make of them."""
    if record["of"] == CACHES:
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
        heads = ["objects", "ceiling", "traffic", "gets that hit", "how"]
        return {"title": _title_of_caches(record), "heads": heads, "rows": rows,
                "note": _beside_the_chain(record)}  # fmt: skip
    rows = [
        [
            str(ceiling["concurrency"]),
            ceiling["failed"] or f"{fmt.rate(ceiling['rate'])} requests/s",
            _latencies(ceiling),
            ", ".join(_errors(ceiling)),
        ]
        for ceiling in record["ceilings"]
    ]
    heads = ["clients at a time", "ceiling", "latency", "errors"]
    return {"title": _title_of_stack(record), "heads": heads, "rows": rows, "note": ""}


def _of_stack(record: Record) -> Iterator[str]:
    yield _title_of_stack(record)
    for ceiling in record["ceilings"]:
        clients = f"{ceiling['concurrency']:>4} at a time"
        if ceiling["failed"]:
            yield f"{clients}  {ceiling['failed']}"
            continue
        rate = f"{fmt.rate(ceiling['rate']):>7}/s"
        yield "  ".join([clients, rate, _latencies(ceiling), *_errors(ceiling)])


def _of_caches(record: Record) -> Iterator[str]:
    yield _title_of_caches(record)
    for ceiling in record["ceilings"]:
        if ceiling["failed"]:
            yield f"{ceiling['objects']:>16}  {ceiling['failed']}"
            continue
        yield (
            f"{ceiling['objects']:>16}  {fmt.rate(ceiling['rate']):>9} ops/s  "
            f"{ceiling['gigabits']:.2f} Gb/s  {100 * ceiling['hits']:.1f} % of gets hit  "
            f"({ceiling['how']})"
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


def _latencies(ceiling: Record) -> str:
    percentiles = ceiling["percentiles"]
    return ", ".join(f"{name} {fmt.latency(value)}" for name, value in percentiles.items())


def _errors(ceiling: Record) -> list[str]:
    return [f"{count} {kind}" for kind, count in ceiling["errors"].items()]
