"""Environment that models the stack in virtual time, without contacting hosts or sending load."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from autotune.deploy import stack as stacks
from autotune.deploy.desired_state import build_desired_state
from autotune.deploy.stack import ServiceInstance, Stack
from autotune.diagnose.bottleneck import Bottleneck
from autotune.diagnose.capacities import build_cpu_usages, pool_capacities
from autotune.diagnose.diagnosis import WatchedReading
from autotune.environments.base import CheckResult, Preview, describe_size
from autotune.environments.clock import StudyClock
from autotune.environments.evaluation import MeasurementHistory
from autotune.environments.load_session import LoadSession, build_search_limits
from autotune.environments.stack_files import render_instance
from autotune.estimate import InstanceCapacity
from autotune.loads.target_request import build_request
from autotune.monitor.host_watch import Observations
from autotune.runtimes import load_runtime
from autotune.services.base import Role, Settings
from autotune.services.registry import list_target_services
from autotune.services.sysctl.service import PARAMETERS as KERNEL
from autotune.simulate.chain import diagnose_search
from autotune.simulate.noise import NoiseModel
from autotune.simulate.stack import SimulatedFleet, SimulatedStack
from autotune.simulate.topology import GIB, ChainTopology, build_topology, is_modelled
from autotune.space.dimension import NAMED_SETTINGS
from autotune.space.facts import HostFacts
from autotune.space.space import SearchSpace
from autotune.space.target_space import build_space
from autotune.target.messages import format_count
from autotune.target.model import Simulated, Target
from autotune.target.read_target import TargetFile
from autotune.target.runtimes import DEFAULT_RUNTIME

DRAIN_SECONDS = 0.5
# default facts of simulated hosts
CONGESTION_CONTROLS = {"net.ipv4.tcp_available_congestion_control": "reno cubic"}
DEFAULT_FACTS = HostFacts(
    cpus=4.0,
    memory=16 * GIB,
    nofile=65_536,
    kernel_values={**{p.name: str(p.stock) for p in KERNEL}, **CONGESTION_CONTROLS},
    unsettable={"net.ipv4.tcp_tw_recycle": "removed in Linux 4.12"},
)
FIRST_PORT = 8000


@dataclass(frozen=True)
class SimulatedEnvironment:
    """Environment of a target whose hosts are simulated: see `environments.base.Environment`."""

    file: TargetFile
    space: SearchSpace
    facts: Mapping[str, HostFacts]
    topology: ChainTopology
    stack: Stack
    noise: NoiseModel
    excluded: tuple[str, ...] = ()

    def describe_load(self, *, study: bool = True) -> str:
        target = self.file.target
        duration_text = f", {format_count(target.budget.time / 60, 'minute')}," if study else ""
        return (
            f"{target.name} is a model of a stack: autotune changes no host and sends no load. Its "
            f"readings are simulated, and its time{duration_text} is virtual."
        )

    def read_software(self) -> dict[str, dict[str, str]]:
        return {}

    def check(self) -> CheckResult:
        """Render the files of each preset, and return the result. A model has no software that
        could validate the files.
        """
        space = self.space
        for _, settings in space.iterate_presets(NAMED_SETTINGS):
            self._render_instances(space.build_candidate(settings).settings)
        return CheckResult(
            held=(
                describe_size(self.file, space),
                f"{', '.join(NAMED_SETTINGS)}: rendered for every choice of software",
                "the stack is a model: no host is changed, and time is virtual",
            ),
            left_out=self.excluded,
            not_checked=("validation of files by the software: a model runs no software",),
        )

    def measure_headroom(self) -> str:
        return "a model needs no generator and accepts any load"

    def build_preview(self) -> Preview:
        return Preview(
            entry=f"{build_request(self.file, self.stack).url} (of a model)",
            servers=tuple(
                instance.name
                for instance in self.stack.instances
                if instance.service.get_socket(instance.placement)
                and instance.placement.role is not Role.HOST
            ),
            render_files=self._render_instances,
        )

    @contextmanager
    def open_session(
        self, directory: Path, note: Callable[[str], None], history: MeasurementHistory
    ) -> Iterator[LoadSession]:
        """Yield a session that continues the model's clock and noise at the end of the records."""
        target = self.file.target
        stack = SimulatedStack(
            self.topology,
            target.slo.objective,
            self.noise,
            timeout=target.request_timeout,
            virtual_seconds=history.elapsed_seconds,
            reading_count=history.reading_count,
        )
        yield LoadSession(
            SimulatedFleet(stack, self.stack, self._render_instance),
            ModelMeter(stack),
            target.slo.objective,
            build_search_limits(target.load.max_rate),
            history,
            StudyClock(lambda: stack.virtual_seconds, stack.advance_clock),
        )

    def _render_instances(self, settings: Settings) -> dict[str, bytes]:
        return build_desired_state(
            settings,
            self.stack,
            partial(self._render_instance, settings),
            load_runtime(DEFAULT_RUNTIME).layout,
        ).files

    def _render_instance(self, settings: Settings, instance: ServiceInstance) -> dict[str, bytes]:
        """Return an instance's files, rendered from the same templates as on real hosts."""
        return render_instance(self.file, instance, settings)


@dataclass(frozen=True)
class ModelMeter:
    """Simulates load on a model of the stack: see `load_session.StackMeter`."""

    stack: SimulatedStack

    def take_reading(self, rate: float, seconds: float, *, ramp_seconds: float) -> WatchedReading:
        reading, hosts = self.stack.take_reading(rate, seconds, ramp_seconds)
        return WatchedReading(reading, Observations(), hosts)

    def find_bottleneck(
        self, settings: Settings, watched_readings: Sequence[WatchedReading]
    ) -> Bottleneck | None:
        readings = [reading.reading for reading in watched_readings]
        return diagnose_search(self.stack.topology, settings, readings, self.stack.slo)

    def estimate_capacities(
        self, settings: Settings, watched_readings: Sequence[WatchedReading]
    ) -> dict[str, InstanceCapacity]:
        """Return the CPU capacity of each service instance according to the utilization law, as on
        real hosts.
        """
        tiers: dict[str, tuple[str, ...]] = {}
        topology = self.stack.topology
        for tier in (topology.lb, topology.web, topology.cache, topology.store):
            tiers |= {host: (*tiers.get(host, ()), tier.tier) for host in tier.host_names}
        return pool_capacities(
            cpu_usage
            for w in watched_readings
            if self.stack.slo.is_met(w.reading)
            for cpu_usage in build_cpu_usages(
                w.reading.rate, {h: u.cpu for h, u in w.hosts.items()}, tiers
            )
        )

    def begin_measurement(self, *, is_deployed: bool) -> tuple[()]:
        """Return no references, because a model sends no responses."""
        return ()

    def end_warm_up(self, windows: int) -> None:
        """Discard no response checks, because a model sends no responses."""

    def count_cache_lookups(self) -> tuple[int, int]:
        return self.stack.cache_hits, self.stack.cache_misses

    def probe_latency(self) -> None:
        """Return ``None``, because a model does not send single requests."""

    def wait_until_drained(self) -> None:
        self.stack.advance_clock(DRAIN_SECONDS)


def prepare(file: TargetFile) -> SimulatedEnvironment:
    """Build the search space and the model. Raises TargetError if the model does not support the
    target.
    """
    target = file.target
    facts = {
        name: replace(
            DEFAULT_FACTS,
            cpus=host.cpus or DEFAULT_FACTS.cpus,
            memory=host.memory or DEFAULT_FACTS.memory,
        )
        for name, host in target.hosts.items()
    }
    model = build_topology(file, facts)
    space, ignored_count = _restrict_to_model(build_space(file, facts), model)
    simulation = target.simulated or Simulated()
    noise_model = NoiseModel(
        simulation.seed,
        simulation.noise,
        simulation.drift,
        simulation.outliers,
        simulation.capacity,
    )
    stack = _build_stack(target, facts)
    ignored_text = format_count(ignored_count, "parameter")
    excluded_text = f"kept at the baseline because the model ignores them: {ignored_text}"
    excluded_lines = (*space.excluded, *((excluded_text,) if ignored_count else ()))
    return SimulatedEnvironment(file, space, facts, model, stack, noise_model, excluded_lines)


def _restrict_to_model(space: SearchSpace, model: ChainTopology) -> tuple[SearchSpace, int]:
    """Fix the parameters that the model ignores. Return the new space and the number of fixed
    parameters.
    """
    unmodelled_names = {d.name for d in space.tunable_dimensions if not is_modelled(model, d.name)}
    dimensions = tuple(
        d
        if d.name not in unmodelled_names
        else replace(d, choices=(d.baseline,))
        if d.choices
        else replace(d, low=d.to_number(d.baseline), high=d.to_number(d.baseline))
        for d in space.dimensions
    )
    return replace(space, dimensions=dimensions), len(unmodelled_names)


def _build_stack(target: Target, facts: Mapping[str, HostFacts]) -> Stack:
    """Return the simulated stack, with the target's addresses and the usual program names."""
    services = [tier_service.service for tier_service in list_target_services(target)]
    paths = {name: paths[0] for s in services for name, paths in s.programs.items()}
    programs_by_host = dict.fromkeys(target.hosts, paths)
    if all(tier.installed for tier in target.tiers.values()):
        # Render the same files that the distribution's units read on real hosts.
        account = ("www-data", "www-data")
        context = stacks.StackContext("run", {}, programs_by_host, facts, *account, installed=True)
        return stacks.build_stack(target, context)
    ports = {
        (name, host): tier.port or FIRST_PORT + tier_index
        for tier_index, (name, tier) in enumerate(target.tiers.items())
        for host in tier.hosts
    }
    return stacks.build_stack(target, stacks.StackContext("run", ports, programs_by_host, facts))
