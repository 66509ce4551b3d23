"""How load is made: what is asked, at what rate, and what came of it.

A generator is a way to write command lines and to read what they print. Nothing here runs anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Protocol

from autotune.errors import AutotuneError
from autotune.services.base import Argv, Endpoint


class LoadError(AutotuneError):
    """The load generator cannot be started on a load host."""


@dataclass(frozen=True)
class Request:
    """What is asked, always of the target's own entry, and the body that proves the job was done.

    Without ``expect`` any answer with a 2xx status is right.
    """

    endpoint: Endpoint
    path: str
    expect: bytes | None = None

    @property
    def url(self) -> str:
        return f"http://{self.endpoint}{self.path}"


@dataclass(frozen=True)
class LoadSpec:
    """One reading to take: ``rate`` requests/s, sent for ``seconds``.

    ``timeout`` is when a request is given up, ``limit`` when its answer counts as late (seconds).
    ``ramp`` seconds of the same load come first and are not counted: a second, because PHP-FPM and
    Apache look once a second whether they need more processes, and a pool may have shrunk since the
    last reading. ``seed`` picks the arrivals: the same seed sends at the same moments again;
    ``None`` takes new ones.
    """

    rate: float
    seconds: float
    timeout: float = 2.0
    limit: float = 0.050
    ramp: float = 1.0
    seed: int | None = None

    @property
    def requests(self) -> int:
        return max(1, round(self.rate * self.seconds))


@dataclass(frozen=True)
class LoadResult:
    """What became of ``intended`` requests.

    ``sent`` of them went out. ``histogram`` maps the upper edge of a latency bin (seconds) to the
    right answers in it; ``errors`` counts every other intended request, by kind, so that right
    answers and errors always add up to ``intended``. ``duration`` (seconds) lasts from the first
    request to the last answer. ``truncated``: the load was cut short, or not all of it was made,
    after the server had clearly failed. ``limited`` says why the *generator* fell short, in which
    case the counts say nothing about the server.
    """

    intended: int
    sent: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    histogram: Mapping[float, int] = field(default_factory=dict)
    duration: float = 0.0
    truncated: bool = False
    limited: str | None = None

    @property
    def replies_ok(self) -> int:
        return sum(self.histogram.values())

    @property
    def failed(self) -> int:
        return sum(self.errors.values())

    def later_than(self, seconds: float) -> int:
        """Right answers in bins that end after ``seconds``."""
        return sum(n for edge, n in self.histogram.items() if edge > seconds + 1e-9)

    def reclassify(self, kind: str, wrong: int) -> LoadResult:
        """With ``wrong`` of the right answers turned into errors of ``kind``.

        Which answers they were is not known. They are taken from the fastest, so that errors which
        come quickly never make the rest look quick.
        """
        wrong = min(wrong, self.replies_ok)
        if wrong <= 0:
            return self
        errors = dict(Counter(self.errors) + Counter({kind: wrong}))
        kept = without_fastest(self.histogram, wrong)
        return LoadResult(
            self.intended, self.sent, errors, kept, self.duration, self.truncated, self.limited
        )


def without_fastest(histogram: Mapping[float, int], wrong: int) -> dict[float, int]:
    """The histogram without its ``wrong`` fastest answers."""
    kept = {}
    for edge in sorted(histogram):
        taken = min(histogram[edge], wrong)
        wrong -= taken
        if histogram[edge] > taken:
            kept[edge] = histogram[edge] - taken
    return kept


def total(results: Iterable[LoadResult]) -> LoadResult:
    """Processes that ran side by side as one: everything is summed, the duration is the longest."""
    parts = list(results)
    errors: Counter[str] = Counter()
    histogram: Counter[float] = Counter()
    reasons: set[str] = set()
    for part in parts:
        errors.update(part.errors)
        histogram.update(part.histogram)
        reasons.update(part.limited.split("; ") if part.limited else ())
    return LoadResult(
        intended=sum(part.intended for part in parts),
        sent=sum(part.sent for part in parts),
        errors={kind: errors[kind] for kind in sorted(errors) if errors[kind]},
        histogram={edge: histogram[edge] for edge in sorted(histogram) if histogram[edge]},
        duration=max((part.duration for part in parts), default=0.0),
        truncated=any(part.truncated for part in parts),
        limited="; ".join(sorted(reasons)) or None,
    )


@dataclass(frozen=True)
class Limits:
    """What one process of a generator is trusted with: open connections, and requests per second.

    ``kept``: connections stay open, so requests use up no client ports.
    """

    open_connections: int
    rate: float
    kept: bool = False


@dataclass(frozen=True)
class Process:
    """One command of a reading: it sends ``requests`` within ``span`` seconds and ends by itself.

    ``bound`` (seconds) is when it is stopped at the latest, by its own ``timeout`` wrapper.
    ``open_connections`` is how many it may hold at a time, ``input`` what it reads.
    """

    argv: Argv
    requests: int
    span: float
    bound: float
    open_connections: int
    input: bytes | None = None


class Load(Protocol):
    """A generator of load at a set rate."""

    @property
    def name(self) -> str: ...

    @property
    def programs(self) -> Mapping[str, tuple[str, ...]]:
        """Name → executables that will do, as for services."""
        ...

    @property
    def packages(self) -> tuple[str, ...]:
        """Distribution packages (Debian's names) that bring the programs."""
        ...

    @property
    def elsewhere(self) -> str:
        """Who has the programs where the distribution does not; empty where it does."""
        ...

    @property
    def limits(self) -> Limits: ...

    def processes(self, request: Request, spec: LoadSpec, hosts: int = 1) -> tuple[Process, ...]:
        """What to start together for one reading, at least one process per load host."""
        ...

    def parse(self, process: Process, printed: str, request: Request, spec: LoadSpec) -> LoadResult:
        """What one process printed; what cannot be read is a generator that failed (``limited``)."""
        ...


FINE = 100.0  # bins that the objective's limit spans at least …
WIDEST = 0.001  # … and no bin is wider (seconds)


def binned(latencies: Iterable[float], limit: float) -> dict[float, int]:
    """Upper edge → count, all in seconds. What was within ``limit`` is in a bin that ends by then,
    so the late ones are counted exactly."""
    width = min(WIDEST, limit / FINE)
    found: Counter[float] = Counter()
    for latency in latencies:
        edge = round(max(1, ceil(latency / width - 1e-9)) * width, 9)
        found[min(edge, limit) if latency <= limit else max(edge, latency)] += 1
    return dict(sorted(found.items()))
