"""Records of measured ceilings: maximum throughput of the stack in a closed loop, or of its caches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from autotune.masking import mask_secrets

if TYPE_CHECKING:  # these modules are slow to import, and only their types are needed
    from autotune.environments.cache_peak import CachePeak
    from autotune.loads.closed_load import ClosedLoopCeiling
    from autotune.loads.memcaslap import CacheCeiling

STACK_CEILING, CACHE_CEILING = "stack", "caches"  # values of the record field ``of``


@dataclass(frozen=True)
class StackCeiling:
    """The closed-loop result with ``concurrency`` clients: correct responses/s, and latencies in
    seconds.

    ``failed`` is the reason for a missing result. ``limited`` is true if ``load.max_rate`` limited the
    clients.
    """

    concurrency: int
    rate: float
    requests: int
    errors: Mapping[str, int]
    percentiles: Mapping[str, float]
    failed: str | None
    limited: bool
    example: str

    @classmethod
    def from_result(cls, result: ClosedLoopCeiling) -> StackCeiling:
        """Return the record of a measured ceiling."""
        return cls(
            concurrency=result.concurrency,
            rate=round(result.rate, 1),
            requests=result.requests,
            errors=dict(result.errors),
            percentiles={
                f"p{percent:g}": value for percent, value in sorted(result.percentiles.items())
            },
            failed=_mask_text(result.failure),
            limited=result.is_rate_limited,
            example=mask_secrets(result.example),
        )


@dataclass(frozen=True)
class StackCeilings:
    """Closed-loop results at the entry tier, by number of clients."""

    of: str = field(default=STACK_CEILING, kw_only=True)
    generator: str
    closed: bool = field(default=True, kw_only=True)
    ceilings: tuple[StackCeiling, ...]


@dataclass(frozen=True)
class CacheCeilingAtSize:
    """The result for cached objects of one size (``objects``), measured with the generator ``how``.

    ``together`` is the number of keys per get. ``rate`` is in operations/s, ``gigabits`` in Gb/s,
    ``hits`` a fraction of the gets. ``failed`` is the reason for a missing result. If the load was
    ``limited``, ``rate`` is a lower bound.
    """

    objects: str
    how: str
    together: int
    rate: float
    gigabits: float
    hits: float
    failed: str | None
    limited: bool = False

    @classmethod
    def from_result(cls, result: CacheCeiling | CachePeak) -> CacheCeilingAtSize:
        """Return the record of a measured ceiling."""
        return cls(
            objects=result.shape,
            how=result.generator,
            together=result.keys_per_get,
            rate=round(result.rate, 1),
            gigabits=round(result.gigabits, 4),
            hits=round(result.hit_share, 4),
            failed=_mask_text(result.failure),
            limited=result.is_load_limited,
        )


@dataclass(frozen=True)
class CacheCeilings:
    """Results for the memcached hosts alone, by object size.

    ``chain`` is the number of keys/s that the whole stack requests from the caches while it serves its
    peak load. ``chain`` is 0 if the capacity is unknown, for example if ``load.max_rate`` limited the
    load.
    """

    of: str = field(default=CACHE_CEILING, kw_only=True)
    servers: tuple[str, ...]
    ceilings: tuple[CacheCeilingAtSize, ...]
    chain: float


Ceilings = StackCeilings | CacheCeilings


def _mask_text(text: str | None) -> str | None:
    """Return a text from a load generator without its secrets."""
    return None if text is None else mask_secrets(text)
