"""Watch every host during a reading, without causing the reading to fail or putting load on a host."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from autotune.deploy.host_commands import Command, run_commands
from autotune.deploy.host_state import ServiceManager
from autotune.deploy.private_servers import read_session_leader
from autotune.deploy.stack import ServiceInstance, Stack
from autotune.errors import AutotuneError
from autotune.monitor.counters import CounterReader, ServerCounters, find_counter_query
from autotune.monitor.process_table import ProcessOwners
from autotune.monitor.procfs import HostSample
from autotune.monitor.stream import SampleStream
from autotune.services.base import Endpoint
from autotune.services.registry import find_own_diagnosis
from autotune.strict_parsing import split_lines
from autotune.transports.base import Transport
from autotune.transports.local import LocalTransport

# time between samples of this machine; other hosts are sampled once per second
LOCAL_SAMPLE_SECONDS = 0.5
COUNTER_POLL_SECONDS = 1.0
LAST_SAMPLE_SECONDS = 3.0  # longest wait for a host's last sample
GROUP_SECONDS = 5.0  # longest wait for the control groups of a host's units
# longest wait for the control groups after the last sample; shorter than the wait for samples
LATE_GROUP_SECONDS = 2.0
_MAX_PROGRAM_NAME = 15  # maximum length of a program's name in the kernel
# Messages that programs log if the kernel denies a resource
KERNEL_COMPLAINTS = {
    "open_files": re.compile(r"Too many open files"),
    "no_ports": re.compile(r"Cannot assign requested address"),
}


@dataclass(frozen=True)
class WatchedHost:
    """A host, the CPUs that it may use, its service instances, and its transport.

    ``transport`` is ``None`` for this machine. ``service_manager`` manages the units of the instances,
    if they are units.
    """

    name: str
    cpus: float
    instances: tuple[ServiceInstance, ...]
    transport: Transport | None = None
    service_manager: ServiceManager | None = None

    @property
    def is_isolated(self) -> bool:
        """True if the services run in containers, with their own files."""
        return self.service_manager is not None and self.service_manager.wrap_command is not None


@dataclass(frozen=True)
class Observations:
    """Everything that was observed during one reading.

    ``samples`` and ``sampling_cpu_seconds`` (the CPU time of sampling) are by host. ``counters`` and
    ``log_complaints`` are by service instance. ``faults`` describes instances that respond wrongly even
    without load. ``unsampled`` maps hosts without samples to the reason. ``load_start`` and ``load_end``
    are the start and the planned end of the load, in seconds since the first samples were requested.
    """

    samples: Mapping[str, tuple[HostSample, ...]] = field(default_factory=dict)
    sampling_cpu_seconds: Mapping[str, float] = field(default_factory=dict)
    counters: Mapping[str, tuple[ServerCounters | None, ...]] = field(default_factory=dict)
    log_complaints: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    failures: tuple[str, ...] = ()
    faults: Mapping[str, str] = field(default_factory=dict)
    unsampled: Mapping[str, str] = field(default_factory=dict)
    load_start: float = 0.0
    load_end: float = 0.0

    @property
    def uncounted_instances(self) -> list[str]:
        """Return the service instances whose counters no query returned, not even without load."""
        return [
            name
            for name, answers in self.counters.items()
            if answers and not any(answer and (answer.values or answer.error) for answer in answers)
        ]


def build_watched_hosts(
    stack: Stack,
    cpus: Mapping[str, float],
    transports: Mapping[str, Transport | None],
    service_manager: ServiceManager | None = None,
) -> tuple[WatchedHost, ...]:
    """Return the hosts of a stack. Hosts without a remote transport are this machine."""
    host_names = dict.fromkeys(instance.placement.host for instance in stack.instances)
    return tuple(
        WatchedHost(
            name,
            cpus[name],
            tuple(each for each in stack.instances if each.placement.host == name),
            None if isinstance(transports.get(name), LocalTransport) else transports.get(name),
            service_manager,
        )
        for name in host_names
    )


class HostWatch:
    """Watches hosts within a ``with`` block, for at most ``seconds``. ``observations`` then contains the
    result.

    On exit, the streams of all hosts take one last sample and stop. The result omits the samples of
    streams that do not stop within ``LAST_SAMPLE_SECONDS``. ``observations.failures`` lists all errors.
    """

    def __init__(self, hosts: Sequence[WatchedHost], seconds: float) -> None:
        self._hosts, self._seconds = hosts, max(1, round(seconds))
        self._stop_event = threading.Event()
        self._threads: list[threading.Thread] = []
        self._streams: dict[str, SampleStream] = {}
        self._samples: dict[str, tuple[HostSample, ...]] = {}
        self._sampling_cpu_seconds: dict[str, float] = {}
        self._counters: dict[str, list[ServerCounters | None]] = {}
        self._complaints: dict[str, Mapping[str, int]] = {}
        self._failures: list[str] = []
        self._unsampled: dict[str, str] = {}
        self._start_time = 0.0
        self._load_start = self._load_end = 0.0

    def __enter__(self) -> Self:
        self._start_time = time.monotonic()
        for index, host in enumerate(self._hosts):
            # Register the stream before its thread starts, so that an early exit also stops the stream.
            self._record_failure(self._take_first_sample, host, index / len(self._hosts))
            if host.name in self._streams:
                self._start_thread(self._sample_host, host)
        for host in self._hosts:
            for instance in host.instances:
                if find_counter_query(instance):
                    self._start_thread(self._read_counters, instance, host)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop_event.set()
        for stream in list(self._streams.values()):
            self._start_thread(SampleStream.stop, stream)
        deadline = time.monotonic() + LAST_SAMPLE_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        # Threads that end late still remove their streams.
        for host in list(self._streams):
            self._failures.append(f"{host} did not send its samples in time")
            self._unsampled[host] = f"none arrived within {LAST_SAMPLE_SECONDS:g} s after the load"

    def mark_load(self, seconds: float) -> None:
        """Record that load of ``seconds`` starts now. The load after a ramp-up is recorded again."""
        self._load_start = time.monotonic() - self._start_time
        self._load_end = self._load_start + seconds

    @property
    def observations(self) -> Observations:
        counters = {instance: tuple(answers) for instance, answers in self._counters.items()}
        return Observations(
            dict(self._samples),
            dict(self._sampling_cpu_seconds),
            counters,
            dict(self._complaints),
            tuple(self._failures),
            unsampled={**self._unsampled},
            load_start=self._load_start,
            load_end=self._load_end,
        )

    def _start_thread(self, action: Callable[..., None], *args: object) -> None:
        self._threads.append(self._run_in_thread(action, *args))

    def _run_in_thread(self, action: Callable[..., None], *args: object) -> threading.Thread:
        thread = threading.Thread(target=self._record_failure, args=(action, *args), daemon=True)
        thread.start()
        return thread

    def _record_failure(self, action: Callable[..., None], *args: object) -> None:
        try:
            action(*args)
        except Exception as error:  # noqa: BLE001 - an error here must not fail the reading
            self._failures.append(f"{action.__name__.strip('_')}: {type(error).__name__}: {error}")

    def _take_first_sample(self, host: WatchedHost, delay_share: float) -> None:
        # A file or unit of the host with the same name would be the log of another server.
        instances = () if host.is_isolated else host.instances
        logs = tuple(dict.fromkeys(log for instance in instances if (log := find_log(instance))))
        interval = 1.0 if host.transport else LOCAL_SAMPLE_SECONDS
        self._streams[host.name] = SampleStream(
            host.transport or LocalTransport(),
            find_process_owners(host),
            self._seconds,
            logs,
            interval=interval,
            later=delay_share * interval,
            request_ports=list_request_ports(host),
            as_root=any(instance.placement.installed for instance in host.instances),
            reads_groups=needs_groups(host),
        )

    def _assign_groups(self, host: WatchedHost, stream: SampleStream) -> None:
        stream.set_groups(read_groups(host))

    def _sample_host(self, host: WatchedHost) -> None:
        stream = self._streams[host.name]
        # The commands of a container engine take seconds on a busy host, so samples do not wait for them.
        group_thread = self._run_in_thread(self._assign_groups, host, stream)
        try:
            stream_result = stream.run(partial(group_thread.join, LATE_GROUP_SECONDS))
        except AutotuneError as error:
            self._unsampled[host.name] = error.message
            raise
        finally:
            del self._streams[host.name]
        if not stream_result.samples:
            self._unsampled[host.name] = stream_result.error_text or "its output contained none"
        self._samples[host.name], self._sampling_cpu_seconds[host.name] = (
            stream_result.samples,
            stream_result.cpu_seconds,
        )
        for instance in host.instances:
            if log := find_log(instance):
                self._complaints[instance.name] = count_complaints(
                    stream_result.logs.get(log, ""), instance
                )

    def _read_counters(self, instance: ServiceInstance, host: WatchedHost) -> None:
        transport = host.transport
        if transport is None and instance.placement.installed:
            transport = LocalTransport(host.name)
        reader = CounterReader(
            instance,
            transport,
            is_here=host.transport is None,
            service_manager=host.service_manager,
        )
        counter_answers = self._counters.setdefault(instance.name, [])
        try:
            counter_answers.append(reader.read(by_command=True))
            while not self._stop_event.wait(
                COUNTER_POLL_SECONDS if reader.is_cheap else reader.command_interval
            ):
                counter_answers.append(reader.read(by_command=not reader.is_cheap))
            counter_answers.append(reader.read(by_command=True))
        finally:
            reader.close()


def find_log(instance: ServiceInstance) -> str | None:
    """Return the path of a service's log, or ``None``. If the service logs to the journal, return its
    systemd unit.
    """
    log_finder = find_own_diagnosis(instance.service).find_log
    return log_finder(instance.placement) if log_finder else None


def list_request_ports(host: WatchedHost) -> list[int]:
    """Return the TCP ports of the services that accept connections before a worker is free."""
    locations = (
        instance.service.get_socket(instance.placement)
        for instance in host.instances
        if find_own_diagnosis(instance.service).accepts_early
    )
    return sorted({location.port for location in locations if isinstance(location, Endpoint)})


def count_complaints(log_text: str, instance: ServiceInstance) -> Mapping[str, int]:
    """Return the number of lines for each kind of complaint in an instance's log."""
    patterns = {**KERNEL_COMPLAINTS, **find_own_diagnosis(instance.service).complaint_patterns}
    complaint_counts: dict[str, int] = {}
    for line in split_lines(log_text):
        for complaint_kind, pattern in patterns.items():
            if pattern.search(line):
                complaint_counts[complaint_kind] = complaint_counts.get(complaint_kind, 0) + 1
    return complaint_counts


def find_process_owners(host: WatchedHost) -> ProcessOwners:
    """Return the rules that assign processes to service instances.

    Private processes belong to the session of a recorded leader. Processes of a distribution's unit are
    recognised by the names of their programs, and by the names that serving processes give
    themselves.
    """
    instance_by_session: dict[int, str] = {}
    programs: dict[str, str] = {}
    for instance in host.instances:
        leader = read_session_leader(Path(instance.placement.directory), instance.service.name)
        if host.transport is None and leader is not None:
            instance_by_session[leader.pid] = instance.name
        programs |= _map_programs(instance)
    return ProcessOwners(instance_by_session, programs)


def _map_programs(instance: ServiceInstance) -> dict[str, str]:
    """Return the name of the instance for each name that one of its processes may have."""
    service = instance.service
    return {
        Path(program).name[:_MAX_PROGRAM_NAME]: instance.name
        for alternatives in (*service.programs.values(), service.serving_processes)
        for program in alternatives
    }


def needs_groups(host: WatchedHost) -> bool:
    """True if the names of programs are not enough to recognise all processes.

    In containers, other containers may run the same program. Two units of a host may also run the same
    program.
    """
    return host.is_isolated or (host.service_manager is not None and _shares_programs(host))


def read_groups(host: WatchedHost) -> dict[str, dict[str, str]]:
    """Return the service instances in each control group of a host's units, by program. The result is
    empty if the host needs no groups.
    """
    manager = host.service_manager
    if manager is None or not needs_groups(host):
        return {}
    # A unit may run several services: for example, one container with nginx and PHP-FPM.
    programs_by_unit: dict[str, dict[str, str]] = {}
    for instance in host.instances:
        if unit := _find_unit(instance):
            programs_by_unit.setdefault(unit, {}).update(_map_programs(instance))
    results = run_commands(
        host.transport or LocalTransport(host.name),
        [Command(("group", unit)) for unit in programs_by_unit],
        timeout=GROUP_SECONDS,
        functions=manager.shell_functions,
    )
    return {
        group: programs
        for programs, result in zip(programs_by_unit.values(), results, strict=True)
        # A unit that does not run has no group.
        if result.ok and len(group := result.stdout.strip()) > 1
    }


def _find_unit(instance: ServiceInstance) -> str | None:
    """Return the unit that runs the programs of an instance, or ``None``."""
    placement = instance.placement
    return (
        placement.unit or instance.service.get_unit(placement)
        if instance.service.programs
        else None
    )


def _shares_programs(host: WatchedHost) -> bool:
    """True if several units of a host run the same program."""
    unit_by_program: dict[str, str] = {}
    return any(
        unit_by_program.setdefault(program, unit) != unit
        for instance in host.instances
        if (unit := _find_unit(instance))
        for alternatives in instance.service.programs.values()
        for program in alternatives
    )
