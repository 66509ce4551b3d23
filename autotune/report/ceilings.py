"""Ceilings as one JSON object and in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autotune.loads.closed import LABEL, Ceiling
from autotune.loads.memcaslap import CacheCeiling
from autotune.report import figures
from autotune.run.ceilings import OfCaches, OfStack

SCHEMA = 1


def as_json(found: OfStack | OfCaches) -> dict[str, Any]:
    """``ceilings``, one for each number of clients or object size; latencies in seconds.

    Of caches: ``rate`` in operations/s, ``gigabits`` in Gb/s, ``hits`` as a fraction of the gets;
    ``chain`` are the keys/s that the whole stack asks of them at its peak.
    """
    if isinstance(found, OfCaches):
        ceilings = [_cache(one) for one in found.ceilings]
        return {
            "schema": SCHEMA,
            "servers": list(found.servers),
            "ceilings": ceilings,
            "chain": round(found.chain, 1),
        }
    return {
        "schema": SCHEMA,
        "generator": found.generator,
        "closed": True,
        "ceilings": [_stack(one) for one in found.ceilings],
    }


def text(found: OfStack | OfCaches) -> str:
    """The same for a person."""
    return "\n".join(_of_caches(found) if isinstance(found, OfCaches) else _of_stack(found))


def _cache(one: CacheCeiling) -> dict[str, Any]:
    return {
        "objects": one.shape,
        "rate": round(one.rate, 1),
        "gigabits": round(one.gigabits, 4),
        "hits": round(one.hits, 4),
        "failed": one.failed,
    }


def _stack(one: Ceiling) -> dict[str, Any]:
    return {
        "concurrency": one.concurrency,
        "rate": round(one.rate, 1),
        "requests": one.requests,
        "errors": dict(one.errors),
        "percentiles": {f"p{at:g}": value for at, value in sorted(one.percentiles.items())},
        "failed": one.failed,
    }


def _of_stack(found: OfStack) -> Iterator[str]:
    yield f"{found.generator}, {LABEL}"
    for one in found.ceilings:
        clients = f"{one.concurrency:>4} at a time"
        if one.failed:
            yield f"{clients}  {one.failed}"
            continue
        at = [f"p{at:g} {figures.latency(t)}" for at, t in sorted(one.percentiles.items())]
        errors = [f"{count} {kind}" for kind, count in one.errors.items()]
        yield "  ".join([clients, f"{figures.rate(one.rate):>7}/s", ", ".join(at), *errors])


def _of_caches(found: OfCaches) -> Iterator[str]:
    yield f"{', '.join(found.servers)} alone, 90 % gets: memcaslap, a closed loop"
    for one in found.ceilings:
        if one.failed:
            yield f"{one.shape:>16}  {one.failed}"
            continue
        yield (
            f"{one.shape:>16}  {figures.rate(one.rate):>9} ops/s  {one.gigabits:.2f} Gb/s  "
            f"{100 * one.hits:.1f} % of gets hit"
        )
    alike = found.ceilings[-1]
    if alike.rate:
        share = figures.share(found.chain, alike.rate)
        yield (
            f"the whole stack asks {figures.rate(found.chain)} keys/s of them at its peak: {share} "
            "of what they answer by themselves when asked as it asks"
        )
