"""Measure the capacity of the memcached hosts alone, with mutilate and a separate objective."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import ceil, floor

from autotune.environments.load_meter import build_reading
from autotune.loads import mutilate
from autotune.loads.base import LoadError, LoadSpec
from autotune.loads.load_commands import LoadCommand, run_together
from autotune.loads.mutilate import MutilateReading, MutilateShape
from autotune.measure import Capacity, Reading, SearchLimits, Slo, search_peak
from autotune.services.base import Endpoint
from autotune.transports.base import Transport

# The caches' latency limit as a share of the stack's limit. The share is low, because a request to a
# cache is only one step of a request to the stack.
SLO_LIMIT_FRACTION = 0.1
WARM_UP_SECONDS = 1.0
TARGET_SD = 0.05
SEARCH_LIMITS = SearchLimits(
    start_rate=5000.0, overhead_seconds=WARM_UP_SECONDS, max_load_seconds=60.0, max_readings=20
)
TIMEOUT_MARGIN_SECONDS = 20.0  # time that a transport waits after the program's planned end
AGENT_MAX_SECONDS = 300.0  # time after which an agent exits by itself


@dataclass(frozen=True)
class CachePeak:
    """The highest rate (operations/s) that meets the objective, with its 90 % interval from ``low``
    to ``high``.

    ``gigabits`` (Gb/s) and ``hit_share`` (fraction of gets) come from readings up to ``rate``. If no
    rate meets the objective, ``failure`` contains the reason. If the load could not reach the peak
    (``is_load_limited``), ``rate`` is a lower bound.
    """

    shape: str
    generator: str
    rate: float = 0.0
    low: float = 0.0
    high: float = 0.0
    gigabits: float = 0.0
    hit_share: float = 0.0
    keys_per_get: int = 1
    failure: str | None = None
    is_load_limited: bool = False


def derive_cache_slo(stack: Slo) -> Slo:
    """Return the caches' objective: a tenth of the stack's latency limit, at the same
    percentile.
    """
    return replace(stack, limit=SLO_LIMIT_FRACTION * stack.limit)


def measure_cache_peak(
    servers: Sequence[Endpoint],
    load_shape: MutilateShape,
    hosts: Mapping[str, Transport],
    slo: Slo,
    max_rate: float,
) -> CachePeak:
    """Fill the caches with objects, search for the capacity up to ``max_rate`` (operations/s), and
    return the result.

    ``hosts`` maps addresses to load hosts. The first load host measures, and the other load hosts
    assist. Raises LoadError or HostUnreachable.
    """
    (_, master), *helper_hosts = hosts.items()
    method_text = f"mutilate, {100 * slo.quantile:g} % within {1000 * slo.limit:g} ms"
    load_result = master.run(
        mutilate.build_load_command(servers, load_shape), timeout=60 + TIMEOUT_MARGIN_SECONDS
    )
    if not load_result.ok:
        reason = load_result.error_text.strip()
        failure_reason = mutilate.find_failure_reason(reason) or reason or load_result.returncode
        raise LoadError(f"mutilate could not fill the caches: {failure_reason}")
    readings: list[tuple[Reading, MutilateReading]] = []

    def probe(rate: float, seconds: float) -> Reading:
        # mutilate accepts only whole operations/s.
        whole_rate = max(1.0, floor(rate))
        spec = LoadSpec(
            whole_rate, ceil(seconds), latency_limit=slo.limit, ramp_seconds=WARM_UP_SECONDS
        )
        argv = mutilate.build_measure_command(
            servers, load_shape, spec, [address for address, _ in helper_hosts]
        )
        total_seconds = spec.ramp_seconds + spec.seconds
        command = LoadCommand(
            master, argv, whole_rate, 0.0, total_seconds, total_seconds + TIMEOUT_MARGIN_SECONDS
        )
        (command_output,) = run_together([command], max_rate)
        sampled_reading = mutilate.parse_output(command_output.stdout, spec)
        readings.append((build_reading(sampled_reading.result, spec), sampled_reading))
        return readings[-1][0]

    with _run_agents([host for _, host in helper_hosts]):
        limits = replace(
            SEARCH_LIMITS, max_rate=max_rate, min_rate=min(SEARCH_LIMITS.min_rate, max_rate)
        )
        capacity = search_peak(probe, slo, target_sd=TARGET_SD, limits=limits)
    return _build_cache_peak(load_shape, method_text, capacity, readings)


def _describe_failure(capacity: Capacity) -> str:
    """Return the reason why a search did not find the peak."""
    return f"at least: limited by {capacity.limit}" if capacity.limit else str(capacity.verdict)


def _build_cache_peak(
    load_shape: MutilateShape,
    generator: str,
    capacity: Capacity,
    readings: Sequence[tuple[Reading, MutilateReading]],
) -> CachePeak:
    if capacity.peak <= 0 or capacity.verdict == "unmet":  # no rate met the objective
        reason = f"limited by {capacity.limit}" if capacity.limit else str(capacity.verdict)
        return CachePeak(load_shape.name, generator, failure=reason)
    readings_below_peak = [reading for r, reading in readings if r.rate <= 1.05 * capacity.peak]
    operations = sum(reading.operations for reading in readings_below_peak)
    get_count = sum(reading.gets for reading in readings_below_peak)
    traffic = sum(reading.traffic for reading in readings_below_peak)
    return CachePeak(
        load_shape.name,
        generator
        if capacity.verdict == "measured"
        else f"{generator}, {_describe_failure(capacity)}",
        rate=capacity.peak,
        low=capacity.low,
        high=capacity.high,
        gigabits=8e-9 * capacity.peak * traffic / operations if operations else 0.0,
        hit_share=1.0 - sum(reading.misses for reading in readings_below_peak) / get_count
        if get_count
        else 0.0,
        is_load_limited=capacity.limit is not None,
    )


@contextmanager
def _run_agents(hosts: Sequence[Transport]) -> Iterator[None]:
    """Run a mutilate agent on each of ``hosts`` within the ``with`` block."""
    script = '"$@" </dev/null >/dev/null 2>&1 & echo $!'
    started_agents: list[tuple[Transport, str]] = []
    try:
        for host in hosts:
            command_result = host.run(
                ("sh", "-c", script, "sh", *mutilate.build_agent_command(AGENT_MAX_SECONDS))
            )
            started_agents.append((host, command_result.stdout.strip()))
        yield
    finally:
        for host, process_id in started_agents:
            if process_id.isdigit():
                host.run(("kill", process_id))
