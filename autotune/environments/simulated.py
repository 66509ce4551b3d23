"""A model of the stack in virtual time: no host is touched and no load is sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from autotune.deploy import stack as stacks
from autotune.deploy.desired_state import want
from autotune.deploy.stack import Part, Stack
from autotune.diagnose.bottleneck import Bottleneck
from autotune.diagnose.diagnosis import WatchedReading
from autotune.environments.base import Checked, Equipment, Preview, search_limits, size
from autotune.environments.clock import Clock
from autotune.environments.templates import rendered
from autotune.monitor.watch import Seen
from autotune.services.base import Settings
from autotune.services.placement import placed
from autotune.services.sysctl.parameters import PARAMETERS as KERNEL
from autotune.simulate.blame import diagnosed
from autotune.simulate.fleet import SimulatedFleet
from autotune.simulate.stack import SimulatedStack
from autotune.simulate.topologies import topology
from autotune.simulate.topology import GIB, Topology
from autotune.simulate.vocabulary import has_effect
from autotune.simulate.weather import Weather
from autotune.space import space as spaces
from autotune.space.dimension import PRESETS
from autotune.space.facts import HostFacts
from autotune.space.space import Space
from autotune.study.progress import Narrator
from autotune.study.store import readings_of, state_of
from autotune.target.model import Simulated, Target
from autotune.target.read import TargetFile

DRAIN_SECONDS = 0.5
# What a host of the model has where the target does not say.
AVAILABLE = {"net.ipv4.tcp_available_congestion_control": "reno cubic"}
UNSAID = HostFacts(
    cpus=4.0,
    memory=16 * GIB,
    nofile=65_536,
    kernel={**{p.name: str(p.stock) for p in KERNEL}, **AVAILABLE},
    refused={"net.ipv4.tcp_tw_recycle": "gone since Linux 4.12"},
)
FIRST_PORT = 8000


@dataclass(frozen=True)
class SimulatedBed:
    """A target whose hosts are a model: see `environments.base.Bed`."""

    file: TargetFile
    space: Space
    facts: Mapping[str, HostFacts]
    topology: Topology
    stack: Stack
    weather: Weather
    dropped: tuple[str, ...] = ()

    def announce(self) -> str:
        target = self.file.target
        return (
            f"No host is touched and no load is sent: {target.name} is a model of a stack, its "
            f"readings are the model's, and its {target.budget.time / 60:g} minutes are virtual."
        )

    def check(self) -> Checked:
        """Render each preset; there is no software that could judge it."""
        space = self.space
        for settings in (space.baseline, *self._presets()):
            self._files(space.candidate(settings).settings)
        return Checked(
            held=(
                size(self.file, space),
                "baseline, recommended and published: rendered for every deployment",
                "the stack is a model: no host is touched, and time is virtual",
            ),
            left_out=self.dropped,
            not_checked=("the files by the software itself: a model runs none",),
        )

    def headroom(self) -> str:
        return "a model needs no generator: any load can be offered to it"

    def preview(self) -> Preview:
        return Preview(
            entry=f"http://{self.stack.entry}{self.file.target.load.path} (of a model)",
            servers=tuple(part.name for part in self.stack.parts if part.service.socket(part.site)),
            files=self._files,
        )

    @contextmanager
    def opened(self, directory: Path, narrator: Narrator) -> Iterator[Equipment]:
        """The model as a study in ``directory`` left it: its clock and its weather go on."""
        narrator.note(f"{self.file.target.name} is a model: every figure is the model's")
        begun = (directory / "events.jsonl").exists()
        modelled = SimulatedStack(
            self.topology,
            self.file.target.slo.slo,
            self.weather,
            timeout=self.file.target.load.timeout,
            now=state_of(directory).elapsed if begun else 0.0,
            readings=len(readings_of(directory)) if begun else 0,
        )
        yield self._equipment(modelled)

    def _files(self, settings: Settings) -> dict[str, bytes]:
        return want(settings, self.stack, partial(self._rendered, settings)).files

    def _rendered(self, settings: Settings, part: Part) -> dict[str, bytes]:
        """The files as they would be on the hosts, from the same templates."""
        return rendered(self.file, part, settings)

    def _presets(self) -> Iterator[Settings]:
        for kind in PRESETS:
            for deployment in self.space.deployments:
                yield self.space.preset(kind, deployment)

    def _equipment(self, modelled: SimulatedStack) -> Equipment:
        def take(rate: float, seconds: float) -> WatchedReading:
            reading, hosts = modelled.take(rate, seconds)
            return WatchedReading(reading, Seen(), hosts)

        def drain() -> None:
            modelled.now += DRAIN_SECONDS

        return Equipment(
            fleet=SimulatedFleet(modelled, self.stack, self._rendered),
            limits=search_limits(self.file.target.load.max_rate),
            take=take,
            diagnose=self._diagnose,
            lookups=lambda: (modelled.hits, modelled.misses),
            drain=drain,
            clock=Clock(lambda: modelled.now),
        )

    def _diagnose(self, settings: Settings, watched: Sequence[WatchedReading]) -> Bottleneck | None:
        readings = [one.reading for one in watched]
        return diagnosed(self.topology, settings, readings, self.file.target.slo.slo)


def prepare(file: TargetFile) -> SimulatedBed:
    """Work out the space and the model. Raises TargetError for a target it has no place for."""
    target = file.target
    facts = {
        name: replace(UNSAID, cpus=host.cpus or UNSAID.cpus, memory=host.memory or UNSAID.memory)
        for name, host in target.hosts.items()
    }
    model = topology(file, facts)
    space, without = _answered(spaces.build(file, facts), model)
    simulated = target.simulated or Simulated()
    weather = Weather(simulated.seed, simulated.noise, simulated.drift, simulated.outliers)
    laid = _lay_out(target, facts)
    left_out = f"{without} parameters have no effect in the model: they keep their baseline"
    dropped = (*space.dropped, *((left_out,) if without else ()))
    return SimulatedBed(file, space, facts, model, laid, weather, dropped)


def _answered(space: Space, model: Topology) -> tuple[Space, int]:
    """The space with only those parameters left to search that the model answers to, and how many
    were left out."""
    without = {d.name for d in space.tunable if not has_effect(model, d.name)}
    dimensions = tuple(
        d if d.name not in without
        else replace(d, choices=(d.baseline,)) if d.choices
        else replace(d, low=d.number(d.baseline), high=d.number(d.baseline))
        for d in space.dimensions
    )  # fmt: skip
    return replace(space, dimensions=dimensions), len(without)


def _lay_out(target: Target, facts: Mapping[str, HostFacts]) -> Stack:
    """The stack on the target's own addresses, with programs by their usual names."""
    services = [p.service for name, tier in target.tiers.items() for p in placed(name, tier)]
    programs = {name: found[0] for s in services for name, found in s.programs.items()}
    if {tier.runtime for tier in target.tiers.values()} == {"systemd"}:
        # The files are what real hosts would have: those of the distribution's units.
        account = ("www-data", "www-data")
        return stacks.build(target, stacks.Grounds("run", {}, programs, facts, *account, "systemd"))
    ports = {
        (name, host): tier.port or FIRST_PORT + index
        for index, (name, tier) in enumerate(target.tiers.items())
        for host in tier.hosts
    }
    return stacks.build(target, stacks.Grounds("run", ports, programs, facts))
