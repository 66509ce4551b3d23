"""Measure the capacity of the memcached hosts alone, with mutilate and a separate objective."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import ceil, floor

from autotune.environments.load_meter import reading
from autotune.loads import mutilate
from autotune.loads.base import LoadError, LoadSpec
from autotune.loads.mutilate import Sampled, Shape
from autotune.loads.offer import LoadCommand, run_together
from autotune.measure import Capacity, Limits, Reading, Slo, search
from autotune.services.base import Endpoint
from autotune.transports.base import Transport

PART = 0.1  # share of the stack's latency limit: a request calls its caches as one step of several
WARM_UP_SECONDS = 1.0
TARGET_SD = 0.05
LIMITS = Limits(start=5000.0, overhead=WARM_UP_SECONDS, load_seconds=60.0, readings=20)
MARGIN = 20.0  # seconds that a transport waits after the program's planned end
LONGEST = 300.0  # seconds until an agent exits if it is not stopped


@dataclass(frozen=True)
class CachePeak:
    """The highest rate (operations/s) within the objective, with its 90 % interval ``low`` to
    ``high``.

    ``gigabits`` (Gb/s) and ``hits`` (fraction of gets) are taken from readings up to that rate.
    ``failed`` contains the reason if no such rate exists.
    """

    shape: str
    how: str
    rate: float = 0.0
    low: float = 0.0
    high: float = 0.0
    gigabits: float = 0.0
    hits: float = 0.0
    together: int = 1
    failed: str | None = None


def own_objective(stack: Slo) -> Slo:
    """Return the objective of the caches: a tenth of the stack's limit at the same percentile."""
    return replace(stack, limit=PART * stack.limit)


def peak(
    servers: Sequence[Endpoint],
    shape: Shape,
    hosts: Mapping[str, Transport],
    slo: Slo,
    max_rate: float,
) -> CachePeak:
    """Load the shape's objects, then search for the capacity up to ``max_rate`` (operations/s).

    ``hosts`` maps addresses to load hosts. The first one measures and the others assist. Raises
    LoadError or HostUnreachable.
    """
    (_, master), *helpers = hosts.items()
    how = f"mutilate, {100 * slo.quantile:g} % within {1000 * slo.limit:g} ms"
    loaded = master.run(mutilate.loading(servers, shape), timeout=60 + MARGIN)
    if not loaded.ok:
        reason = loaded.error_text.strip()
        why = mutilate.failure(reason) or reason or loaded.returncode
        raise LoadError(f"mutilate could not fill the caches: {why}")
    readings: list[tuple[Reading, Sampled]] = []

    def probe(rate: float, seconds: float) -> Reading:
        # mutilate accepts only whole operations/s.
        whole = max(1.0, floor(rate))
        spec = LoadSpec(whole, ceil(seconds), limit=slo.limit, ramp=WARM_UP_SECONDS)
        argv = mutilate.measuring(servers, shape, spec, [address for address, _ in helpers])
        lasting = spec.ramp + spec.seconds
        command = LoadCommand(master, argv, whole, 0.0, lasting, lasting + MARGIN)
        (done,) = run_together([command], max_rate)
        sampled = mutilate.parse(done.stdout, spec)
        readings.append((reading(sampled.result, spec), sampled))
        return readings[-1][0]

    with _agents([host for _, host in helpers]):
        limits = replace(LIMITS, max_rate=max_rate, min_rate=min(LIMITS.min_rate, max_rate))
        capacity = search(probe, slo, target_sd=TARGET_SD, limits=limits)
    return _cache_peak(shape, how, capacity, readings)


def _ended(capacity: Capacity) -> str:
    """Describe the result of a search that did not find the peak."""
    return f"at least: limited by {capacity.limit}" if capacity.limit else str(capacity.verdict)


def _cache_peak(
    shape: Shape, how: str, capacity: Capacity, readings: Sequence[tuple[Reading, Sampled]]
) -> CachePeak:
    if capacity.peak <= 0:
        why = f"limited by {capacity.limit}" if capacity.limit else str(capacity.verdict)
        return CachePeak(shape.name, how, failed=why)
    below = [sampled for r, sampled in readings if r.rate <= 1.05 * capacity.peak]
    operations = sum(sampled.operations for sampled in below)
    gets = sum(sampled.gets for sampled in below)
    traffic = sum(sampled.traffic for sampled in below)
    return CachePeak(
        shape.name,
        how if capacity.verdict == "measured" else f"{how}, {_ended(capacity)}",
        rate=capacity.peak,
        low=capacity.low,
        high=capacity.high,
        gigabits=8e-9 * capacity.peak * traffic / operations if operations else 0.0,
        hits=1.0 - sum(sampled.misses for sampled in below) / gets if gets else 0.0,
    )


@contextmanager
def _agents(hosts: Sequence[Transport]) -> Iterator[None]:
    """Run an agent on each of these hosts during the ``with`` block."""
    script = '"$@" </dev/null >/dev/null 2>&1 & echo $!'
    started: list[tuple[Transport, str]] = []
    try:
        for host in hosts:
            done = host.run(("sh", "-c", script, "sh", *mutilate.agent(LONGEST)))
            started.append((host, done.stdout.strip()))
        yield
    finally:
        for host, number in started:
            if number.isdigit():
                host.run(("kill", number))
