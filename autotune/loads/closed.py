"""Closed loops: so many clients, each asking again as soon as it has its answer.

They find a ceiling, never a peak: a client that waits for a slow answer asks nothing meanwhile, so
a stall is counted once and not for all who would have come during it. Their latencies must not be
set beside those of an open loop, and their rate must not be taken for what the stack would carry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from autotune.loads.base import Request
from autotune.services.base import Argv

LABEL = "closed loop: a ceiling, not what would be carried"


@dataclass(frozen=True)
class Clients:
    """How many of them, for how long; ``timeout`` gives a single request up (seconds)."""

    concurrency: int
    seconds: float
    timeout: float = 2.0


@dataclass(frozen=True)
class Ceiling:
    """What clients got. ``percentiles`` (50, 99 …) are in seconds; ``errors`` count by kind.

    ``failed`` says why there is no result; the other figures are nothing then.
    """

    concurrency: int
    seconds: float = 0.0
    requests: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    percentiles: Mapping[float, float] = field(default_factory=dict)
    failed: str | None = None

    @property
    def wrong(self) -> int:
        return min(self.requests, sum(self.errors.values()))

    @property
    def rate(self) -> float:
        """Right answers per second."""
        return (self.requests - self.wrong) / self.seconds if self.seconds > 0 else 0.0


class ClosedLoad(Protocol):
    """A generator of closed-loop load."""

    @property
    def name(self) -> str: ...

    @property
    def packages(self) -> tuple[str, ...]:
        """Distribution packages (Debian's names) that bring it."""
        ...

    def argv(self, request: Request, clients: Clients) -> Argv:
        """One process, which ends by itself."""
        ...

    def parse(self, printed: str, clients: Clients) -> Ceiling: ...


def no_result(name: str, printed: str, clients: Clients) -> Ceiling:
    """For output that has none in it: its last words say why."""
    said = (printed.strip().splitlines() or ["nothing"])[-1]
    return Ceiling(clients.concurrency, failed=f"{name} printed no result: {said[:200]}")
