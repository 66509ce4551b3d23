"""Output of measured ceilings: JSON, lines of text, and a table for the HTML report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autotune.loads.closed_load import CLOSED_LOOP_LABEL
from autotune.report import documents
from autotune.report import format as fmt
from autotune.study.ceiling_records import (
    CacheCeilingAtSize,
    CacheCeilings,
    Ceilings,
    StackCeiling,
    StackCeilings,
)


@dataclass(frozen=True)
class CeilingsTable:
    """A table of the HTML report, with a note below the table."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str


def build_ceilings_json(
    record: Ceilings,
) -> documents.MeasuredStackCeilings | documents.MeasuredCacheCeilings:
    """Return ceilings as JSON with a schema version; `study.ceiling_records` describes the other
    keys.
    """
    if isinstance(record, StackCeilings):
        return {"schema": 1, **_encode_stack_ceilings(record)}
    return {"schema": 1, **_encode_cache_ceilings(record)}


def encode_ceilings(
    record: Ceilings,
) -> documents.StackCeilingsObject | documents.CacheCeilingsObject:
    """Return a record of measured ceilings as JSON."""
    if isinstance(record, StackCeilings):
        return _encode_stack_ceilings(record)
    return _encode_cache_ceilings(record)


def _encode_stack_ceilings(ceilings_record: StackCeilings) -> documents.StackCeilingsObject:
    return {
        "of": ceilings_record.of,
        "generator": ceilings_record.generator,
        "closed": ceilings_record.closed,
        "ceilings": [
            {
                "concurrency": ceiling.concurrency,
                "rate": ceiling.rate,
                "requests": ceiling.requests,
                "errors": ceiling.errors,
                "percentiles": ceiling.percentiles,
                "failed": ceiling.failed,
                "limited": ceiling.limited,
                "example": ceiling.example,
            }
            for ceiling in ceilings_record.ceilings
        ],
    }


def _encode_cache_ceilings(ceilings_record: CacheCeilings) -> documents.CacheCeilingsObject:
    return {
        "of": ceilings_record.of,
        "servers": list(ceilings_record.servers),
        "ceilings": [
            {
                "objects": ceiling.objects,
                "how": ceiling.how,
                "together": ceiling.together,
                "rate": ceiling.rate,
                "gigabits": ceiling.gigabits,
                "hits": ceiling.hits,
                "failed": ceiling.failed,
                "limited": ceiling.limited,
            }
            for ceiling in ceilings_record.ceilings
        ],
        "chain": ceilings_record.chain,
    }


def format_ceiling_lines(record: Ceilings) -> Iterator[str]:
    """Yield a title, one line for each ceiling, and the note on the load share, if any."""
    yield _format_ceilings_title(record)
    if isinstance(record, StackCeilings):
        yield from map(_format_stack_ceiling, record.ceilings)
    else:
        yield from map(_format_cache_ceiling, record.ceilings)
    if note := _format_load_share_note(record):
        yield note


def _format_stack_ceiling(ceiling: StackCeiling) -> str:
    row_label = f"concurrency {ceiling.concurrency:>4}"
    if ceiling.failed:
        return f"{row_label}  {ceiling.failed}"
    rate, errors = f"{fmt.format_rate(ceiling.rate):>7}/s", _format_error_counts(ceiling)
    limit_notes = ["lower bound: load.max_rate reached"] if ceiling.limited else []
    return "  ".join([row_label, rate, _format_latencies(ceiling), *errors, *limit_notes])


def _format_cache_ceiling(ceiling: CacheCeilingAtSize) -> str:
    row_label = f"{ceiling.objects:>16}"
    if ceiling.failed:
        return f"{row_label}  {ceiling.failed}"
    return (
        f"{row_label}  {fmt.format_rate(ceiling.rate):>9} ops/s  {ceiling.gigabits:.2f} Gb/s  "
        f"hit rate {100 * ceiling.hits:.1f} %  ({ceiling.how})"
    )


def build_ceilings_table(record: Ceilings) -> CeilingsTable:
    """Return measured ceilings as a table for the HTML report."""
    headings: tuple[str, ...]
    if isinstance(record, StackCeilings):
        headings = ("concurrency", "ceiling", "latency", "errors")
        table_rows = tuple(
            (
                str(ceiling.concurrency),
                ceiling.failed or _format_request_rate(ceiling),
                _format_latencies(ceiling),
                ", ".join(_format_error_counts(ceiling)),
            )
            for ceiling in record.ceilings
        )
        return CeilingsTable(_format_ceilings_title(record), headings, table_rows, "")
    headings = ("objects", "ceiling", "traffic", "hit rate", "how")
    cache_rows = tuple(
        (
            ceiling.objects,
            ceiling.failed or f"{fmt.format_rate(ceiling.rate)} ops/s",
            f"{ceiling.gigabits:.2f} Gb/s",
            f"{100 * ceiling.hits:.1f} %",
            ceiling.how,
        )
        for ceiling in record.ceilings
    )
    return CeilingsTable(
        _format_ceilings_title(record), headings, cache_rows, _format_load_share_note(record)
    )


def _format_ceilings_title(ceilings_record: Ceilings) -> str:
    if isinstance(ceilings_record, CacheCeilings):
        return f"{', '.join(ceilings_record.servers)} alone"
    return f"{ceilings_record.generator}, {CLOSED_LOOP_LABEL}"


def _format_load_share_note(ceilings_record: Ceilings) -> str:
    """Return a note that compares the keys/s that the stack reads with the ceiling of the caches; empty
    if one of them is unknown. If the load of the caches was limited, the share is an upper bound.

    The reference is the last ceiling if it was measured with several keys per request. Otherwise the
    reference is the first ceiling, with one key per request.
    """
    if isinstance(ceilings_record, StackCeilings) or not ceilings_record.ceilings:
        return ""
    condition, ceiling = "at the same batch size", ceilings_record.ceilings[-1]
    if ceiling.together == 1:
        condition, ceiling = "with one key per request", ceilings_record.ceilings[0]
    if not (ceiling.rate and ceilings_record.chain):
        return ""
    share_text = fmt.format_share(ceilings_record.chain, ceiling.rate)
    bound_text = "at most " if ceiling.limited else ""
    return (
        f"at capacity the stack reads {fmt.format_rate(ceilings_record.chain)} keys/s: "
        f"{bound_text}{share_text} of the caches' own ceiling {condition}"
    )


def _format_request_rate(ceiling: StackCeiling) -> str:
    """Return the ceiling as text, as a lower bound if load.max_rate was reached."""
    rate = f"{fmt.format_rate(ceiling.rate)} requests/s"
    return f"at least {rate} (load.max_rate reached)" if ceiling.limited else rate


def _format_latencies(ceiling: StackCeiling) -> str:
    """Return the percentiles as text. While load.max_rate delays a request, the generator reads no
    response, so the latencies of several clients include waits.
    """
    latencies = ", ".join(
        f"{percentile_name} {fmt.format_latency(latency_seconds)}"
        for percentile_name, latency_seconds in ceiling.percentiles.items()
    )
    includes_waits = bool(latencies) and ceiling.limited and ceiling.concurrency > 1
    return f"{latencies} (including waits for load.max_rate)" if includes_waits else latencies


def _format_error_counts(ceiling: StackCeiling) -> list[str]:
    count_texts = [f"{count} {error_kind}" for error_kind, count in ceiling.errors.items()]
    return [*count_texts, ceiling.example] if ceiling.example else count_texts
