"""A model of the stack in virtual time, which touches no host and sends no load."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from autotune.deploy import stack as stacks
from autotune.deploy.desired_state import desired_state
from autotune.deploy.runtime import installed_layout
from autotune.deploy.stack import Part, Stack
from autotune.diagnose.capacities import capacities, of_hosts
from autotune.diagnose.context import Bottleneck
from autotune.diagnose.diagnosis import WatchedReading
from autotune.environments.base import Checked, Preview, size
from autotune.environments.clock import Clock
from autotune.environments.evaluation import History
from autotune.environments.load_session import LoadSession, capacity_limits
from autotune.environments.stack import rendered
from autotune.estimate import PartCapacity
from autotune.loads.of_target import request
from autotune.monitor.watch import Observations
from autotune.services.base import Role, Settings
from autotune.services.registry import placed
from autotune.services.sysctl.service import PARAMETERS as KERNEL
from autotune.simulate.chain import diagnosed
from autotune.simulate.noise import NoiseModel
from autotune.simulate.stack import SimulatedFleet, SimulatedStack
from autotune.simulate.topology import GIB, Topology, has_effect, topology
from autotune.space import space as spaces
from autotune.space.dimension import NAMED, PRESETS
from autotune.space.facts import HostFacts
from autotune.space.space import Space
from autotune.target.messages import plural
from autotune.target.model import Simulated, Target
from autotune.target.read import TargetFile

DRAIN_SECONDS = 0.5
# Facts of a model's host unless the target sets them.
AVAILABLE = {"net.ipv4.tcp_available_congestion_control": "reno cubic"}
UNSAID = HostFacts(
    cpus=4.0,
    memory=16 * GIB,
    nofile=65_536,
    kernel={**{p.name: str(p.stock) for p in KERNEL}, **AVAILABLE},
    refused={"net.ipv4.tcp_tw_recycle": "removed in Linux 4.12"},
)
FIRST_PORT = 8000


@dataclass(frozen=True)
class SimulatedEnvironment:
    """A target whose hosts are a model: see `environments.base.Environment`."""

    file: TargetFile
    space: Space
    facts: Mapping[str, HostFacts]
    topology: Topology
    stack: Stack
    noise: NoiseModel
    dropped: tuple[str, ...] = ()

    def announce(self, *, study: bool = True) -> str:
        target = self.file.target
        lasting = f", {plural(target.budget.time / 60, 'minute')}," if study else ""
        return (
            f"{target.name} is a model of a stack: autotune changes no host and sends no load. Its "
            f"readings are simulated, and its time{lasting} is virtual."
        )

    def software(self) -> dict[str, dict[str, str]]:
        return {}

    def check(self) -> Checked:
        """Render each preset. A model has no software to validate the files."""
        space = self.space
        for settings in (space.baseline, *self._presets()):
            self._files(space.candidate(settings).settings)
        return Checked(
            held=(
                size(self.file, space),
                f"{', '.join(NAMED)}: rendered for every deployment",
                "the stack is a model: no host is changed, and time is virtual",
            ),
            left_out=self.dropped,
            not_checked=("validation of files by the software: a model runs no software",),
        )

    def headroom(self) -> str:
        return "a model needs no generator and accepts any load"

    def preview(self) -> Preview:
        return Preview(
            entry=f"{request(self.file, self.stack).url} (of a model)",
            servers=tuple(
                part.name
                for part in self.stack.parts
                if part.service.socket(part.site) and part.site.role is not Role.HOST
            ),
            files=self._files,
        )

    @contextmanager
    def session(
        self, directory: Path, note: Callable[[str], None], history: History
    ) -> Iterator[LoadSession]:
        """Continue the model's clock and noise from the study's records."""
        target = self.file.target
        stack = SimulatedStack(
            self.topology,
            target.slo.slo,
            self.noise,
            timeout=target.load.timeout,
            now=history.elapsed,
            readings=history.readings,
        )
        yield LoadSession(
            SimulatedFleet(stack, self.stack, self._rendered),
            ModelMeter(stack),
            target.slo.slo,
            capacity_limits(target.load.max_rate),
            history,
            Clock(lambda: stack.now, stack.skip),
        )

    def _files(self, settings: Settings) -> dict[str, bytes]:
        return desired_state(
            settings, self.stack, partial(self._rendered, settings), installed_layout()
        ).files

    def _rendered(self, settings: Settings, part: Part) -> dict[str, bytes]:
        """Render a part's files with the same templates as on real hosts."""
        return rendered(self.file, part, settings)

    def _presets(self) -> Iterator[Settings]:
        for kind in PRESETS:
            for deployment in self.space.deployments:
                yield self.space.preset(kind, deployment)


@dataclass(frozen=True)
class ModelMeter:
    """Loads and observes a model: see `load_session.Meter`."""

    stack: SimulatedStack

    def take(self, rate: float, seconds: float, *, ramp: float) -> WatchedReading:
        reading, hosts = self.stack.take(rate, seconds, ramp)
        return WatchedReading(reading, Observations(), hosts)

    def diagnose(self, settings: Settings, watched: Sequence[WatchedReading]) -> Bottleneck | None:
        readings = [reading.reading for reading in watched]
        return diagnosed(self.stack.topology, settings, readings, self.stack.slo)

    def capacities(
        self, settings: Settings, watched: Sequence[WatchedReading]
    ) -> dict[str, PartCapacity]:
        """Return capacities of CPUs by the utilisation law, as on real hosts."""
        tiers: dict[str, tuple[str, ...]] = {}
        topology = self.stack.topology
        for tier in (topology.lb, topology.web, topology.cache, topology.store):
            tiers |= {host: (*tiers.get(host, ()), tier.tier) for host in tier.hosts}
        return capacities(
            use
            for w in watched
            if self.stack.slo.met(w.reading)
            for use in of_hosts(w.reading.rate, {h: u.cpu for h, u in w.hosts.items()}, tiers)
        )

    def begin_trial(self, *, deployed: bool) -> tuple[()]:
        """Return no references, because a model sends no responses."""
        return ()

    def end_warm_up(self, windows: int) -> None:
        """Do nothing, because a model sends no responses."""

    def lookups(self) -> tuple[int, int]:
        return self.stack.hits, self.stack.misses

    def drain(self) -> None:
        self.stack.skip(DRAIN_SECONDS)


def prepare(file: TargetFile) -> SimulatedEnvironment:
    """Build the search space and the model. Raises TargetError if the model does not support the
    target.
    """
    target = file.target
    facts = {
        name: replace(UNSAID, cpus=host.cpus or UNSAID.cpus, memory=host.memory or UNSAID.memory)
        for name, host in target.hosts.items()
    }
    model = topology(file, facts)
    space, without = _answered(spaces.build(file, facts), model)
    simulated = target.simulated or Simulated()
    noise = NoiseModel(
        simulated.seed, simulated.noise, simulated.drift, simulated.outliers, simulated.capacity
    )
    laid = _lay_out(target, facts)
    left_out = (
        f"kept at the baseline because the model ignores them: {plural(without, 'parameter')}"
    )
    dropped = (*space.dropped, *((left_out,) if without else ()))
    return SimulatedEnvironment(file, space, facts, model, laid, noise, dropped)


def _answered(space: Space, model: Topology) -> tuple[Space, int]:
    """Return the space of parameters with an effect in the model, and the number of the others."""
    without = {d.name for d in space.tunable if not has_effect(model, d.name)}
    dimensions = tuple(
        d if d.name not in without
        else replace(d, choices=(d.baseline,)) if d.choices
        else replace(d, low=d.number(d.baseline), high=d.number(d.baseline))
        for d in space.dimensions
    )  # fmt: skip
    return replace(space, dimensions=dimensions), len(without)


def _lay_out(target: Target, facts: Mapping[str, HostFacts]) -> Stack:
    """Return the stack on the target's addresses, with the usual program names."""
    services = [p.service for name, tier in target.tiers.items() for p in placed(name, tier)]
    paths = {name: paths[0] for s in services for name, paths in s.programs.items()}
    programs = dict.fromkeys(target.hosts, paths)
    if all(tier.installed for tier in target.tiers.values()):
        # Render the files that the distribution's units read on real hosts.
        account = ("www-data", "www-data")
        context = stacks.StackContext("run", {}, programs, facts, *account, installed=True)
        return stacks.build(target, context)
    ports = {
        (name, host): tier.port or FIRST_PORT + index
        for index, (name, tier) in enumerate(target.tiers.items())
        for host in tier.hosts
    }
    return stacks.build(target, stacks.StackContext("run", ports, programs, facts))
