"""Simulate readings of a stack in virtual time, with request counts and a latency histogram."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from autotune.deploy.deploy_result import DeployFailed, DeployResult, Fleet, build_host_records
from autotune.deploy.desired_state import build_desired_state, list_changed_parameters
from autotune.deploy.stack import ServiceInstance, Stack
from autotune.loads.reading_run import RUNAWAY_VIOLATION_SHARE
from autotune.measure.reading import Reading
from autotune.monitor.activity import HostUsage
from autotune.runtimes import load_runtime
from autotune.services.base import Action, Settings
from autotune.simulate.chain import Array, StationChain, build_chain
from autotune.simulate.noise import NoiseModel
from autotune.simulate.topology import ChainTopology
from autotune.target.runtimes import DEFAULT_RUNTIME
from autotune.target.slo import Slo

RAMP_SECONDS = 0.5  # seconds of load before a reading counts, as with real generators
# The histogram's bins are 1 ms wide up to FINE_BINS_SECONDS, as in httperf's output, and wider above.
FINE_BINS_SECONDS, COARSE_BIN_SECONDS = 0.1, 0.02


@dataclass
class SimulatedStack:
    """A chain that is deployed, loaded and observed in virtual time.

    ``virtual_seconds`` is the virtual time in seconds, and ``reading_count`` the number of readings. A
    resumed study continues from the last ``virtual_seconds`` and ``reading_count``. Requests time out
    after ``timeout`` seconds. ``cache_hits`` and ``cache_misses`` are the cache's counters.
    """

    topology: ChainTopology
    slo: Slo
    noise: NoiseModel = field(default_factory=NoiseModel)
    timeout: float = 2.0
    virtual_seconds: float = 0.0
    reading_count: int = 0
    cache_hits: int = 0
    cache_misses: int = 0

    def __post_init__(self) -> None:
        self._chain: StationChain | None = None
        bin_edges = {
            *np.arange(1, round(FINE_BINS_SECONDS * 1000) + 1) / 1000.0,
            self.slo.limit,
            self.timeout,
        }
        bin_edges |= set(
            np.arange(FINE_BINS_SECONDS + COARSE_BIN_SECONDS, self.timeout, COARSE_BIN_SECONDS)
            .round(6)
            .tolist()
        )
        self._edges: Array = np.array(
            sorted(e for e in bin_edges if e <= self.timeout), dtype=float
        )

    def deploy(self, settings: Settings) -> str | None:
        """Apply ``settings``, and return ``None``. If the software refuses the settings, return the
        reason.
        """
        deployed_chain = build_chain(self.topology, settings)
        if deployed_chain.refusal_reason is None:
            self._chain = deployed_chain
        return deployed_chain.refusal_reason

    def take_reading(
        self, rate: float, seconds: float, ramp_seconds: float = RAMP_SECONDS
    ) -> tuple[Reading, dict[str, HostUsage]]:
        """Return one reading after ``ramp_seconds`` seconds of load, and each host's usage."""
        assert self._chain is not None, "nothing is deployed"
        rng = self.noise.create_reading_rng(self.reading_count)
        self.reading_count += 1
        # Load on a reduced capacity is equivalent to more load on the full capacity.
        offered_rate = rate / self.noise.draw_capacity_factor(self.virtual_seconds, rng)
        is_truncated = ramp_seconds > 0 and bool(
            self._compute_late_shares(offered_rate, ramp_seconds)[self._limit_bin]
            > RUNAWAY_VIOLATION_SHARE
        )
        counted_seconds = ramp_seconds if is_truncated else seconds
        late_shares = self._compute_late_shares(offered_rate, counted_seconds)
        reading = self._build_reading(
            rate, offered_rate, counted_seconds, late_shares, rng, truncated=is_truncated
        )
        self.virtual_seconds += ramp_seconds + (0.0 if is_truncated else seconds)
        missed_keys = round(reading.intended * self._chain.missed_keys)
        self.cache_misses += missed_keys
        self.cache_hits += reading.intended * self.topology.data.keys_per_request - missed_keys
        return reading, _compute_host_usages(
            self.topology, self._chain, offered_rate, counted_seconds
        )

    def advance_clock(self, seconds: float) -> None:
        """Advance the virtual time without load."""
        self.virtual_seconds += seconds

    @property
    def _limit_bin(self) -> int:
        return int(np.searchsorted(self._edges, self.slo.limit - 1e-9))

    def _compute_late_shares(self, offered_rate: float, seconds: float) -> Array:
        assert self._chain is not None
        return self._chain.compute_late_shares(offered_rate, self._edges, seconds)

    def _build_reading(
        self,
        rate: float,
        offered_rate: float,
        seconds: float,
        late_shares: Array,
        rng: np.random.Generator,
        *,
        truncated: bool,
    ) -> Reading:
        """Return a reading with every intended request either in the histogram or among the errors."""
        assert self._chain is not None
        intended_requests = max(1, int(rng.poisson(rate * seconds)))
        error_shares = self._chain.compute_error_shares(offered_rate)
        lost_share = min(1.0, sum(error_shares.values()))
        failed_shares = [
            share * lost_share / sum(error_shares.values()) for share in error_shares.values()
        ]
        answered_shares = (1.0 - lost_share) * np.diff(1.0 - late_shares, prepend=0.0).clip(0.0)
        outcome_shares = np.concatenate(
            [answered_shares, failed_shares, [(1.0 - lost_share) * late_shares[-1]]]
        ).clip(0.0)
        outcome_counts = rng.multinomial(intended_requests, outcome_shares / outcome_shares.sum())
        bin_count = len(self._edges)
        error_kinds = [*error_shares, "timeout"]
        error_counts = {
            k: int(n) for k, n in zip(error_kinds, outcome_counts[bin_count:], strict=True) if n
        }
        histogram = {
            float(e): int(n) for e, n in zip(self._edges, outcome_counts, strict=False) if n
        }
        late_count = int(outcome_counts[self._limit_bin + 1 : bin_count].sum())
        return Reading(
            rate=rate,
            seconds=seconds,
            intended=intended_requests,
            violations=late_count + sum(error_counts.values()),
            errors=error_counts,
            histogram=histogram,
            truncated=truncated,
        )


def _compute_host_usages(
    topology: ChainTopology, chain: StationChain, offered_rate: float, seconds: float
) -> dict[str, HostUsage]:
    """Return each host's usage during a reading, as the host's counters would show it."""
    usage_by_host: dict[str, HostUsage] = {}
    all_tiers = (topology.lb, topology.web, topology.cache, topology.store)
    for hosts, station in zip(all_tiers, chain.stations, strict=True):
        queue_length = (
            max(0.0, station.compute_utilisation(offered_rate) - 1.0)
            * station.max_rate
            * seconds
            / 2.0
        )
        requests_at_station = (
            min(offered_rate, station.max_rate)
            * station.compute_time_spent(offered_rate, 0.995).mean
        )
        busy_share = min(
            1.0,
            offered_rate * station.service_seconds / hosts.total_cpus,
            station.compute_utilisation(offered_rate),
        )
        load_average = (requests_at_station + queue_length) / hosts.count
        host_usage = HostUsage(
            cpu=round(busy_share, 4),
            steal=0.0,
            load=round(load_average, 2),
            running=round(load_average, 2),
            memory=0.0,
            sockets=round(load_average),
            time_wait=0,
            network=0.0,
        )
        usage_by_host |= dict.fromkeys(hosts.host_names, host_usage)
    return usage_by_host


# Virtual seconds of a reload, and of a restart until the tier responds again.
ACTION_SECONDS = {Action.NONE: 0.0, Action.RELOAD: 1.0, Action.RESTART: 3.0}


class SimulatedFleet(Fleet):
    """A fleet that deploys to a simulated stack; ``render(settings, instance)`` returns an instance's
    files by path.
    """

    def __init__(
        self,
        stack: SimulatedStack,
        service_stack: Stack,
        render: Callable[[Settings, ServiceInstance], Mapping[str, bytes]],
    ) -> None:
        self._stack, self._service_stack, self._render = stack, service_stack, render
        self._deployed_settings: Settings | None = None

    def deploy(self, settings: Settings) -> DeployResult:
        """Deploy ``settings``. If the software refuses the settings, change nothing and raise
        DeployFailed.
        """
        desired_state = build_desired_state(
            settings,
            self._service_stack,
            partial(self._render, settings),
            load_runtime(DEFAULT_RUNTIME).layout,
        )
        refusal_reason = self._stack.deploy(settings)
        if refusal_reason is not None:
            raise DeployFailed(refusal_reason)
        actions = {
            instance.name: self._select_action(instance, settings)
            for instance in desired_state.instances
        }
        self._stack.virtual_seconds += max(ACTION_SECONDS[action] for action in actions.values())
        self._deployed_settings = dict(settings)
        return DeployResult(
            desired_state.files,
            actions,
            dict(settings),
            hosts=build_host_records(desired_state, {}),
        )

    def restore(self) -> None:
        """Leave all hosts unchanged, because a simulated deployment changes no host."""

    def _select_action(self, instance: ServiceInstance, settings: Settings) -> Action:
        if self._deployed_settings is None or instance not in self._service_stack.active_instances(
            self._deployed_settings
        ):
            return Action.RESTART
        changed_parameters = list_changed_parameters(instance, self._deployed_settings, settings)
        return max((parameter.action for parameter in changed_parameters), default=Action.NONE)
