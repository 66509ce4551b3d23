"""Compute the activity of hosts and services during one reading from samples, with pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from autotune.deploy.stack import ServiceInstance
from autotune.monitor.counters import ServerCounters, find_counter_query
from autotune.monitor.host_watch import Observations, WatchedHost
from autotune.monitor.process_table import ServiceProcesses
from autotune.monitor.procfs import HostSample, ListenQueue
from autotune.services.base import Endpoint, Role
from autotune.services.diagnosis import BUSY_WORKERS, InstanceActivity

LOAD_START_SECONDS = 0.5  # time until a generator's load has started
MIN_RATE_SECONDS = 0.5  # minimum time over which the use of CPUs and links is computed
LATE_SAMPLE_SECONDS = 1.5  # time until the last sample of a busy host arrives
# If the traffic of a link exceeds this multiple of its speed, the link is virtual and has no such limit.
MAX_LINK_SHARE = 1.1


@dataclass(frozen=True)
class HostActivity:
    """The activity of a host during a reading. CPU shares and rates exclude the time before the load.

    - ``cpu``: CPU time by kind, as fractions (0 … 1) of all CPUs that the kernel shows.
    - ``cpus``: number of CPUs that the host may use. ``quota_used_share``: number of CPUs in use, set
      only under a quota, for example in a container, where the kernel shows the whole machine.
    - ``running_processes``: mean number of runnable threads. ``memory``: highest fraction of the memory
      in use.
    - ``descriptors``: fraction of fs.file-max. ``retransmits``: fraction of segments that were
      retransmitted, without SYNs. ``retransmitted_segments``: their number.
    - ``opened_rate``, ``accepted_rate``: new TCP connections per second, by direction.
    - ``network``: received and sent bytes/s. ``link_share``: utilisation of the busiest link in its
      busier direction, if known.
    """

    name: str
    cpus: float
    seconds: float = 0.0
    cpu: Mapping[str, float] = field(default_factory=dict)
    quota_used_share: float | None = None
    throttled: float = 0.0
    running_processes: float = 0.0
    load: float = 0.0
    context_switches: float = 0.0
    memory: float = 0.0
    swapped_bytes: int = 0
    descriptors: float = 0.0
    sockets: int = 0
    time_wait: int = 0
    listen_drops: int = 0
    retransmits: float = 0.0
    retransmitted_segments: int = 0
    opened_rate: float = 0.0
    accepted_rate: float = 0.0
    network: float = 0.0
    link_share: float | None = None

    @property
    def busy_share(self) -> float:
        """Return the fraction of CPU time that was not idle or, with a quota, the fraction of the quota
        that was used.
        """
        if self.quota_used_share is not None:
            return min(1.0, self.quota_used_share / self.cpus)
        return 1.0 - self.cpu.get("idle", 1.0) - self.cpu.get("iowait", 0.0)


def compute_host_activity(
    host: WatchedHost, observations: Observations, seconds: float
) -> HostActivity | None:
    """Return a host's activity; ``None`` with fewer than two samples within ``seconds``."""
    samples = _select_watched_samples(observations, host.name, seconds)
    if len(samples) < 2:
        return None
    loaded_samples = select_loaded_samples(samples, observations.load_start)
    before, first, last = samples[0], loaded_samples[0], samples[-1]
    elapsed_seconds = max(last.uptime - first.uptime, 1e-6)
    cpu_seconds = {kind: last.cpu[kind] - first.cpu.get(kind, 0.0) for kind in last.cpu}
    total_seconds = sum(cpu_seconds.values()) or 1.0
    rates = _compute_interface_rates(first, last)
    links = {name: speed for sample in samples for name, speed in sample.link_speeds.items()}
    return HostActivity(
        name=host.name,
        cpus=host.cpus,
        seconds=elapsed_seconds,
        cpu={kind: kind_seconds / total_seconds for kind, kind_seconds in cpu_seconds.items()},
        quota_used_share=_compute_quota_used_share(first, last, host.cpus),
        throttled=((last.throttled_seconds or 0.0) - (first.throttled_seconds or 0.0))
        / elapsed_seconds,
        running_processes=fmean(s.running for s in loaded_samples),
        load=last.load,
        context_switches=(last.context_switches - first.context_switches) / elapsed_seconds,
        memory=max(map(_compute_memory_share, samples)),
        swapped_bytes=max(0, -_compute_growth(before.memory, last.memory, "SwapFree")),
        descriptors=max(
            s.open_files[0] / s.open_files[1] if s.open_files else 0.0 for s in samples
        ),
        sockets=max(s.sockets.get("inuse", 0) for s in samples),
        time_wait=max(s.sockets.get("tw", 0) for s in samples),
        listen_drops=_compute_growth(before.tcp, last.tcp, "ListenDrops"),
        retransmits=_count_retransmitted(first, last)
        / max(1, _compute_growth(first.tcp, last.tcp, "OutSegs")),
        retransmitted_segments=_count_retransmitted(first, last),
        opened_rate=_compute_growth(first.tcp, last.tcp, "ActiveOpens") / elapsed_seconds,
        accepted_rate=_compute_growth(first.tcp, last.tcp, "PassiveOpens") / elapsed_seconds,
        network=sum(map(sum, rates.values())),
        link_share=_compute_link_share(rates, links),
    )


def compute_instance_activity(
    instance: ServiceInstance, observations: Observations, seconds: float
) -> InstanceActivity:
    """Return a service's activity. Figures that were not observed are zero or ``None``."""
    samples = _select_watched_samples(observations, instance.placement.host, seconds)
    process_samples = [s for s in samples if instance.name in s.processes]
    if len(process_samples) < 2:  # samples from a busy host arrive late
        all_samples = observations.samples.get(instance.placement.host, ())
        process_samples = [s for s in all_samples if instance.name in s.processes]
    answers = observations.counters.get(instance.name, ())
    query = find_counter_query(instance)
    activity = InstanceActivity(
        name=instance.name,
        tier=instance.placement.tier,
        host=instance.placement.host,
        service=instance.service.name,
        role=instance.placement.role,
        runs_application=instance.service.runs_application,
        counters=compute_counter_growth(
            [answer for answer in answers if answer and answer.values],
            query.level_names if query else frozenset(),
        ),
        answered_queries=sum(answer is not None for answer in answers),
        unanswered_queries=sum(answer is None for answer in answers),
        refusal=next((a.error for a in answers if a and a.error), None),
        log_complaints=observations.log_complaints.get(instance.name, {}),
        fault=observations.faults.get(instance.name),
    )
    busy_workers = [a.values[BUSY_WORKERS] for a in answers if a and BUSY_WORKERS in a.values]
    # The first sample precedes the load, and the last sample follows the load.
    loaded_samples = select_loaded_samples(samples, observations.load_start)
    first_index = max(1, len(samples) - len(loaded_samples))
    loaded_queues, queues = (
        [queue for s in some_samples if (queue := find_queue(instance, s.queues))]
        for some_samples in (samples[first_index:-1], samples)
    )
    return _add_socket_activity(
        _add_process_activity(activity, process_samples, observations.load_start),
        loaded_queues or queues,
        busy_workers[1:-1] or busy_workers,
    )


def _add_process_activity(
    activity: InstanceActivity, samples: Sequence[HostSample], load_start: float
) -> InstanceActivity:
    """Return the activity with the figures of the service's processes, which all samples contain."""
    groups = [s.processes[activity.name] for s in samples]
    loaded_samples = select_loaded_samples(samples, load_start)
    processes_by_time = {s.uptime: s.processes[activity.name] for s in loaded_samples}
    limits = [g.descriptor_limit for g in groups if g.descriptor_limit]
    return replace(
        activity,
        workers=max((g.workers for g in groups), default=0),
        threads=max((g.threads for g in groups), default=0),
        cpu=_compute_rate(processes_by_time, lambda g: g.cpu) or 0.0,
        main_cpu=_compute_rate(processes_by_time, lambda g: g.main_cpu),
        cpu_delay=_compute_rate(processes_by_time, lambda g: g.scheduling_delay),
        # The PSS, which divides shared memory among processes, is read only before and after the load.
        rss=max((g.max_pss for g in groups if g.max_pss), default=0)
        or max((g.max_rss for g in groups), default=0),
        descriptors=max((g.descriptors for g in groups if g.descriptors), default=None),
        descriptor_limit=min(limits, default=None),
    )


def _add_socket_activity(
    activity: InstanceActivity, queues: Sequence[ListenQueue], in_flight: Sequence[float]
) -> InstanceActivity:
    """Return the activity with the figures of the service's listening sockets.

    ``in_flight`` contains the numbers of requests in flight that the service reported.
    """
    crowded_queues = [queue for queue in queues if queue.waiting]
    return replace(
        activity,
        waiting_connections=fmean(q.waiting for q in queues) if queues else 0.0,
        max_waiting=max((q.waiting for q in queues), default=0),
        backlog=queues[-1].backlog if queues else None,
        accepted_connections=fmean(in_flight or [float(q.accepted_count) for q in queues] or [0.0]),
        unread_connections=fmean(max(0, q.unread_count - q.waiting) for q in queues)
        if queues
        else 0.0,
        queued_fraction=len(crowded_queues) / len(queues) if queues else 0.0,
        accepted_when_queued=max(in_flight)
        if in_flight
        else fmean([q.accepted_count for q in crowded_queues] or [0]),
    )


def select_samples(samples: Sequence[HostSample], seconds: float) -> Sequence[HostSample]:
    """Return the samples up to ``seconds`` after the first sample.

    While a generator waits for its last responses, no load is sent. Later samples are therefore included
    only if there would otherwise be fewer than two samples.
    """
    for slack_seconds in (LOAD_START_SECONDS, LATE_SAMPLE_SECONDS):
        samples_within = [
            s for s in samples if s.uptime <= samples[0].uptime + seconds + slack_seconds
        ]
        if len(samples_within) > 1:
            break
    return samples_within


def select_loaded_samples(samples: Sequence[HostSample], load_start: float) -> Sequence[HostSample]:
    """Return the samples since the load started, ``load_start`` seconds after the first sample.

    Earlier samples would dilute the use of CPUs and links. They are included only if the others cover
    less than ``MIN_RATE_SECONDS``.
    """
    if not samples:
        return samples
    latest_start = samples[-1].uptime - MIN_RATE_SECONDS
    possible_starts = [s for s in samples if s.uptime <= latest_start] or [samples[0]]
    load_uptime = samples[0].uptime + load_start + LOAD_START_SECONDS
    first_sample = next(
        (s for s in possible_starts if s.uptime >= load_uptime), possible_starts[-1]
    )
    return samples[samples.index(first_sample) :]


def find_queue(instance: ServiceInstance, queues: Sequence[ListenQueue]) -> ListenQueue | None:
    """Return the sum of a service's listening sockets, because ``reuseport`` opens several sockets per
    port.

    The result is ``None`` for a service that consists only of host settings.
    """
    location = instance.service.get_socket(instance.placement)
    if location is None or instance.placement.role is Role.HOST:
        return None
    address_ending = f":{location.port}" if isinstance(location, Endpoint) else location
    own_queues = [q for q in queues if q.address.endswith(address_ending)]
    if not own_queues:
        return None
    backlogs = [q.backlog for q in own_queues if q.backlog is not None]
    return ListenQueue(
        address_ending,
        sum(q.waiting for q in own_queues),
        sum(backlogs) if backlogs else None,
        sum(q.accepted_count for q in own_queues),
        sum(q.unread_count for q in own_queues),
    )


def compute_counter_growth(
    server_counters: Sequence[ServerCounters], levels: frozenset[str]
) -> dict[str, float]:
    """Return the growth of each counter. For counters in ``levels``, which can also fall, return the
    maximum.

    A server that restarts sets its counters to 0. The growth of a counter that fell is its last value.
    """
    if not server_counters:
        return {}
    first_values, last_values = server_counters[0].values, server_counters[-1].values
    return {
        name: max(a.values.get(name, 0.0) for a in server_counters)
        if name in levels
        else value - (first if (first := first_values.get(name, 0.0)) <= value else 0.0)
        for name, value in last_values.items()
    }


def _select_watched_samples(
    observations: Observations, host: str, seconds: float
) -> Sequence[HostSample]:
    """Return the samples of a host until the planned end of the load, or for at least ``seconds``."""
    return select_samples(observations.samples.get(host, ()), max(seconds, observations.load_end))


def _compute_rate(
    processes_by_time: Mapping[float, ServiceProcesses],
    read_total: Callable[[ServiceProcesses], float | None],
) -> float | None:
    timed_totals = [
        (uptime, value)
        for uptime, service_processes in processes_by_time.items()
        if (value := read_total(service_processes)) is not None
    ]
    if len(timed_totals) < 2:
        return None
    (first_uptime, first_total), (last_uptime, last_total) = timed_totals[0], timed_totals[-1]
    return max(0.0, last_total - first_total) / max(last_uptime - first_uptime, 1e-6)


def _compute_growth(
    first_counters: Mapping[str, int], last_counters: Mapping[str, int], counter_name: str
) -> int:
    return last_counters.get(counter_name, 0) - first_counters.get(counter_name, 0)


def _count_retransmitted(first_sample: HostSample, last_sample: HostSample) -> int:
    """Return the number of segments that were retransmitted.

    SYNs are not counted, because they are also repeated if the accept queue of the peer is full.
    """
    repeated, repeated_syns = (
        _compute_growth(first_sample.tcp, last_sample.tcp, name)
        for name in ("RetransSegs", "TCPSynRetrans")
    )
    return max(0, repeated - repeated_syns)


def _compute_interface_rates(
    first_sample: HostSample, last_sample: HostSample
) -> dict[str, tuple[float, float]]:
    """Return the received and the sent bytes/s of each interface."""
    elapsed_seconds = max(last_sample.uptime - first_sample.uptime, 1e-6)
    return {
        name: (
            (last.received - first.received) / elapsed_seconds,
            (last.sent - first.sent) / elapsed_seconds,
        )
        for name, last in last_sample.network.items()
        if (first := first_sample.network.get(name))
    }


def _compute_link_share(
    rates: Mapping[str, tuple[float, float]], speeds: Mapping[str, float]
) -> float | None:
    """Return the utilisation of the busiest link in its busier direction; ``None`` if unknown."""
    link_shares = [max(rates[name]) / speeds[name] for name in rates if name in speeds]
    return max((share for share in link_shares if share <= MAX_LINK_SHARE), default=None)


def _compute_quota_used_share(
    first_sample: HostSample, last_sample: HostSample, cpus: float
) -> float | None:
    if first_sample.quota_cpu_seconds is None or last_sample.quota_cpu_seconds is None:
        return None
    used_cpus = (last_sample.quota_cpu_seconds - first_sample.quota_cpu_seconds) / max(
        last_sample.uptime - first_sample.uptime, 1e-6
    )
    # With cgroup v1, the counter may cover the whole machine instead of the limited group.
    return used_cpus if used_cpus <= 1.25 * cpus else None


def _compute_memory_share(sample: HostSample) -> float:
    if limit := sample.memory.get("GroupLimit"):
        return sample.memory["GroupUsed"] / limit
    total_memory = sample.memory.get("MemTotal", 0)
    return (
        1.0 - sample.memory.get("MemAvailable", total_memory) / total_memory
        if total_memory
        else 0.0
    )


@dataclass(frozen=True)
class HostUsage:
    """The resource usage of a host during one reading.

    ``cpu`` is the fraction of the host's CPU time in use, and ``steal`` the fraction of CPU steal.
    ``load`` is the load average at the end, and ``running`` the mean number of runnable threads.
    ``memory`` (a fraction), ``sockets`` and ``time_wait`` are maxima. ``network`` is in bytes/s.
    ``rss`` is the size of the largest process in bytes, and ``workers`` the number of worker
    processes, both by service instance.
    """

    cpu: float
    steal: float
    load: float
    running: float
    memory: float
    sockets: int
    time_wait: int
    network: float
    rss: Mapping[str, int] = field(default_factory=dict)
    workers: Mapping[str, int] = field(default_factory=dict)


def compute_host_usages(
    hosts: Sequence[WatchedHost], observations: Observations, seconds: float
) -> dict[str, HostUsage]:
    """Return the usage of every host with samples, by host."""
    usages = {}
    for host in hosts:
        host_activity = compute_host_activity(host, observations, seconds)
        if host_activity is None:
            continue
        instances = [
            compute_instance_activity(instance, observations, seconds)
            for instance in host.instances
        ]
        usages[host.name] = HostUsage(
            cpu=round(host_activity.busy_share, 4),
            steal=round(host_activity.cpu.get("steal", 0.0), 4),
            load=round(host_activity.load, 2),
            running=round(host_activity.running_processes, 2),
            memory=round(host_activity.memory, 4),
            sockets=host_activity.sockets,
            time_wait=host_activity.time_wait,
            network=round(host_activity.network),
            rss={activity.name: activity.rss for activity in instances if activity.rss},
            workers={activity.name: activity.workers for activity in instances if activity.workers},
        )
    return usages
