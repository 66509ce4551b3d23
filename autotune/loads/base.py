"""How load is made: a generator is a command per process and a parser of what it prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from autotune.services.base import Endpoint

Argv = tuple[str, ...]


@dataclass(frozen=True)
class Request:
    """What is asked: always the target's own entry. ``expect`` is the body of a right answer."""

    endpoint: Endpoint
    path: str
    expect: bytes | None = None

    @property
    def url(self) -> str:
        return f"http://{self.endpoint}{self.path}"


@dataclass(frozen=True)
class Order:
    """One reading to take: ``rate`` in requests/s for ``seconds``.

    ``timeout`` is when a request is given up, ``limit`` when it counts as late (both in seconds).
    """

    rate: float
    seconds: float
    timeout: float = 2.0
    limit: float = 0.05

    @property
    def requests(self) -> int:
        return max(1, round(self.rate * self.seconds))


@dataclass(frozen=True)
class Tally:
    """What one generator process counted.

    ``histogram`` maps the upper edge of a latency bin in seconds to the answers with status 2xx in
    it; ``errors`` count everything else that was intended, by kind. ``body_bytes`` is the mean size
    of an answer's body. ``sending`` is how long the process took to send (seconds). ``limited`` says
    why the generator itself could not do what it was told.
    """

    intended: int
    errors: Mapping[str, int] = field(default_factory=dict)
    histogram: Mapping[float, int] = field(default_factory=dict)
    sending: float = 0.0
    body_bytes: float | None = None
    truncated: bool = False
    limited: str | None = None

    @property
    def answered(self) -> int:
        return sum(self.histogram.values())


def total(tallies: Iterable[Tally]) -> Tally:
    """Several processes as one: counts and histograms are summed, percentiles never averaged."""
    parts = list(tallies)
    errors: Counter[str] = Counter()
    histogram: Counter[float] = Counter()
    for part in parts:
        errors.update(part.errors)
        histogram.update(part.histogram)
    sizes = [(p.body_bytes, p.answered) for p in parts if p.body_bytes is not None and p.answered]
    answered = sum(count for _, count in sizes)
    return Tally(
        intended=sum(part.intended for part in parts),
        errors={kind: count for kind, count in errors.items() if count},
        histogram=dict(histogram),
        sending=max((part.sending for part in parts), default=0.0),
        body_bytes=sum(size * n for size, n in sizes) / answered if answered else None,
        truncated=any(part.truncated for part in parts),
        limited=next((part.limited for part in parts if part.limited), None),
    )


def without_fastest(histogram: Mapping[float, int], wrong: int) -> dict[float, int]:
    """The histogram without ``wrong`` answers that turned out to be errors.

    Which ones they were is not known. They are taken from the fastest, so that errors which come
    quickly never make the rest look quick.
    """
    kept = {}
    for edge in sorted(histogram):
        taken = min(histogram[edge], wrong)
        wrong -= taken
        if histogram[edge] > taken:
            kept[edge] = histogram[edge] - taken
    return kept


class Load(Protocol):
    """A generator of load at a set rate."""

    @property
    def name(self) -> str: ...

    @property
    def programs(self) -> Mapping[str, tuple[str, ...]]: ...

    @property
    def packages(self) -> tuple[str, ...]: ...

    def processes(self, request: Request, order: Order) -> tuple[Argv, ...]:
        """Commands to start together for one reading; each ends by itself."""
        ...

    def parse(self, printed: str, order: Order, processes: int) -> Tally:
        """What one of ``processes`` printed."""
        ...
