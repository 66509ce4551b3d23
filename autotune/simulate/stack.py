"""Readings of a simulated stack: rate and seconds in, counts and a histogram out, time virtual."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from autotune.deploy.deployed import Deployed, DeployFailed, Fleet, host_records
from autotune.deploy.desired_state import changed_parameters, desired_state
from autotune.deploy.runtime import installed_layout
from autotune.deploy.stack import Part, Stack
from autotune.measure.reading import Reading
from autotune.monitor.activity import HostUsage
from autotune.services.base import Action, Settings
from autotune.simulate.chain import Array, Chain, chain
from autotune.simulate.noise import NoiseModel
from autotune.simulate.topology import Topology
from autotune.target.slo import Slo

RAMP = 0.5  # seconds of load before a reading counts, as with real generators …
RAN_AWAY = 0.7  # … and the share of violations in them that stops the reading
# Upper edges of the histogram in seconds: 1 ms bins as in httperf's output, coarser above.
FINE, COARSE = 0.1, 0.02


@dataclass
class SimulatedStack:
    """A chain that is deployed, loaded and observed in virtual time.

    ``now`` is the virtual time in seconds, ``readings`` the number of readings. A resumed study continues
    both from its last values. Requests time out after ``timeout`` seconds. ``hits`` and ``misses`` are
    the cache's counters.
    """

    topology: Topology
    slo: Slo
    noise: NoiseModel = field(default_factory=NoiseModel)
    timeout: float = 2.0
    now: float = 0.0
    readings: int = 0
    hits: int = 0
    misses: int = 0

    def __post_init__(self) -> None:
        self._chain: Chain | None = None
        edges = {*np.arange(1, round(FINE * 1000) + 1) / 1000.0, self.slo.limit, self.timeout}
        edges |= set(np.arange(FINE + COARSE, self.timeout, COARSE).round(6).tolist())
        self._edges: Array = np.array(sorted(e for e in edges if e <= self.timeout), dtype=float)

    def deploy(self, settings: Settings) -> str | None:
        """Apply ``settings``; return why the software refuses them, or ``None``."""
        deployed = chain(self.topology, settings)
        if deployed.refused is None:
            self._chain = deployed
        return deployed.refused

    def take(
        self, rate: float, seconds: float, ramp: float = RAMP
    ) -> tuple[Reading, dict[str, HostUsage]]:
        """Return one reading after ``ramp`` seconds of load, and the usage of the hosts."""
        assert self._chain is not None, "nothing is deployed"
        rng = self.noise.reading(self.readings)
        self.readings += 1
        # Lower capacity is equivalent to more load on the full capacity.
        offered = rate / self.noise.capacity(self.now, rng)
        truncated = ramp > 0 and bool(self._beyond(offered, ramp)[self._at_limit] > RAN_AWAY)
        counted = ramp if truncated else seconds
        beyond = self._beyond(offered, counted)
        reading = self._counted(rate, offered, counted, beyond, rng, truncated=truncated)
        self.now += ramp + (0.0 if truncated else seconds)
        missed = round(reading.intended * self._chain.missed)
        self.misses += missed
        self.hits += reading.intended * self.topology.data.keys_per_request - missed
        return reading, _usage(self.topology, self._chain, offered, counted)

    def skip(self, seconds: float) -> None:
        """Advance the time without load."""
        self.now += seconds

    @property
    def _at_limit(self) -> int:
        return int(np.searchsorted(self._edges, self.slo.limit - 1e-9))

    def _beyond(self, offered: float, seconds: float) -> Array:
        assert self._chain is not None
        return self._chain.slower_than(offered, self._edges, seconds)

    def _counted(
        self,
        rate: float,
        offered: float,
        seconds: float,
        beyond: Array,
        rng: np.random.Generator,
        *,
        truncated: bool,
    ) -> Reading:
        """Return a reading with every intended request in the histogram or among the errors."""
        assert self._chain is not None
        intended = max(1, int(rng.poisson(rate * seconds)))
        failing = self._chain.errors(offered)
        lost = min(1.0, sum(failing.values()))
        shares = [share * lost / sum(failing.values()) for share in failing.values()]
        answered = (1.0 - lost) * np.diff(1.0 - beyond, prepend=0.0).clip(0.0)
        odds = np.concatenate([answered, shares, [(1.0 - lost) * beyond[-1]]]).clip(0.0)
        counts = rng.multinomial(intended, odds / odds.sum())
        bins = len(self._edges)
        kinds = [*failing, "timeout"]
        errors = {k: int(n) for k, n in zip(kinds, counts[bins:], strict=True) if n}
        histogram = {float(e): int(n) for e, n in zip(self._edges, counts, strict=False) if n}
        late = int(counts[self._at_limit + 1 : bins].sum())
        return Reading(
            rate=rate,
            seconds=seconds,
            intended=intended,
            violations=late + sum(errors.values()),
            errors=errors,
            histogram=histogram,
            truncated=truncated,
        )


def _usage(
    topology: Topology, loaded: Chain, offered: float, seconds: float
) -> dict[str, HostUsage]:
    """Return each host's usage during a reading, as its own counters would show it."""
    usage: dict[str, HostUsage] = {}
    tiers = (topology.lb, topology.web, topology.cache, topology.store)
    for hosts, station in zip(tiers, loaded.stations, strict=True):
        backlog = max(0.0, station.use(offered) - 1.0) * station.rate * seconds / 2.0
        inside = min(offered, station.rate) * station.time(offered, 0.995).mean
        busy = min(1.0, offered * station.work / hosts.all_cpus, station.use(offered))
        load = (inside + backlog) / hosts.count
        each = HostUsage(
            cpu=round(busy, 4), steal=0.0, load=round(load, 2), running=round(load, 2), memory=0.0,
            sockets=round(load), time_wait=0, network=0.0,
        )  # fmt: skip
        usage |= dict.fromkeys(hosts.hosts, each)
    return usage


# Virtual seconds of a reload, and of a restart until the tier answers again.
TAKES = {Action.NONE: 0.0, Action.RELOAD: 1.0, Action.RESTART: 3.0}


class SimulatedFleet(Fleet):
    """Deploys to a simulated stack; ``render(settings, part)`` returns a part's files by path."""

    def __init__(
        self,
        stack: SimulatedStack,
        laid: Stack,
        render: Callable[[Settings, Part], Mapping[str, bytes]],
    ) -> None:
        self._stack, self._laid, self._render = stack, laid, render
        self._in_place: Settings | None = None

    def deploy(self, settings: Settings) -> Deployed:
        """Deploy ``settings``. Raises DeployFailed without a change if the software refuses them."""
        desired = desired_state(
            settings, self._laid, partial(self._render, settings), installed_layout()
        )
        refused = self._stack.deploy(settings)
        if refused is not None:
            raise DeployFailed(refused)
        actions = {part.name: self._action(part, settings) for part in desired.parts}
        self._stack.now += max(TAKES[action] for action in actions.values())
        self._in_place = dict(settings)
        return Deployed(desired.files, actions, dict(settings), hosts=host_records(desired, {}))

    def restore(self) -> None:
        """No host was changed, so there is nothing to restore."""

    def _action(self, part: Part, settings: Settings) -> Action:
        if self._in_place is None or part not in self._laid.active(self._in_place):
            return Action.RESTART
        changed = changed_parameters(part, self._in_place, settings)
        return max((parameter.action for parameter in changed), default=Action.NONE)
