"""Activity of hosts and services during one reading: rates and levels from samples. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from autotune.deploy.stack import Part
from autotune.monitor.counters import Counters, query_of
from autotune.monitor.process_table import Processes
from autotune.monitor.procfs import Queue, Sample
from autotune.monitor.watch import Observations, WatchedHost
from autotune.services.base import Endpoint, Role
from autotune.services.diagnosis import WORKING, PartActivity

STARTING = 0.5  # seconds until a generator's load has started
LATE = 1.5  # seconds until a busy host's last sample arrives


@dataclass(frozen=True)
class HostActivity:
    """A host over a reading.

    - ``cpu``: fractions of all CPUs that the kernel shows, 0 … 1, by kind.
    - ``cpus``: number of CPUs that the host may use. ``used``: number of CPUs used, only with a quota,
      as in a container, where the kernel shows the whole machine.
    - ``running``: mean number of runnable threads. ``memory``: highest fraction in use.
    - ``descriptors``: fraction of fs.file-max. ``retransmits``: fraction of segments sent again.
    - ``network``: bytes/s. ``link``: utilisation of the busiest link, if known.
    """

    name: str
    cpus: float
    seconds: float = 0.0
    cpu: Mapping[str, float] = field(default_factory=dict)
    used: float | None = None
    throttled: float = 0.0
    running: float = 0.0
    load: float = 0.0
    switches: float = 0.0
    memory: float = 0.0
    swapped: int = 0
    descriptors: float = 0.0
    sockets: int = 0
    time_wait: int = 0
    listen_drops: int = 0
    retransmits: float = 0.0
    network: float = 0.0
    link: float | None = None

    @property
    def busy(self) -> float:
        """The fraction of CPU time that was not idle; with a quota, the fraction of the quota."""
        if self.used is not None:
            return min(1.0, self.used / self.cpus)
        return 1.0 - self.cpu.get("idle", 1.0) - self.cpu.get("iowait", 0.0)


def host_activity(
    host: WatchedHost, observations: Observations, seconds: float
) -> HostActivity | None:
    """Return a host's activity; ``None`` with fewer than two samples within ``seconds``."""
    samples = within(observations.samples.get(host.name, ()), seconds)
    if len(samples) < 2:
        return None
    first, last = samples[0], samples[-1]
    passed = max(last.at - first.at, 1e-6)
    spent = {kind: last.cpu[kind] - first.cpu.get(kind, 0.0) for kind in last.cpu}
    whole = sum(spent.values()) or 1.0
    sent = _grown(first.tcp, last.tcp, "OutSegs")
    rates = {i: _grown(first.network, last.network, i) / passed for i in last.network}
    links = {name: speed for sample in samples for name, speed in sample.link.items()}
    return HostActivity(
        name=host.name,
        cpus=host.cpus,
        seconds=passed,
        cpu={kind: value / whole for kind, value in spent.items()},
        used=_used(first, last, host.cpus),
        throttled=((last.throttled or 0.0) - (first.throttled or 0.0)) / passed,
        running=fmean(s.running for s in samples),
        load=last.load,
        switches=(last.switches - first.switches) / passed,
        memory=max(map(_memory_in_use, samples)),
        swapped=max(0, first.memory.get("SwapFree", 0) - last.memory.get("SwapFree", 0)),
        descriptors=max(s.files[0] / s.files[1] if s.files else 0.0 for s in samples),
        sockets=max(s.sockets.get("inuse", 0) for s in samples),
        time_wait=max(s.sockets.get("tw", 0) for s in samples),
        listen_drops=_grown(first.tcp, last.tcp, "ListenDrops"),
        retransmits=_grown(first.tcp, last.tcp, "RetransSegs") / sent if sent else 0.0,
        network=sum(rates.values()),
        link=max((rates[i] / links[i] for i in rates if i in links), default=None),
    )


def part_activity(part: Part, observations: Observations, seconds: float) -> PartActivity:
    """Return a service's activity; values that were not observed are zero or ``None``."""
    every = observations.samples.get(part.site.host, ())
    samples = within(every, seconds)
    at = {s.at: s.processes[part.name] for s in samples if part.name in s.processes}
    if len(at) < 2:  # samples of a busy host arrive late
        at = {s.at: s.processes[part.name] for s in every if part.name in s.processes}
    answers = observations.counters.get(part.name, ())
    query = query_of(part)
    activity = PartActivity(
        name=part.name,
        tier=part.site.tier,
        host=part.site.host,
        service=part.service.name,
        role=part.site.role,
        runs_application=part.service.runs_application,
        counters=counted(
            [answer for answer in answers if answer and answer.values],
            query.levels if query else frozenset(),
        ),
        answers=sum(answer is not None for answer in answers),
        unanswered=sum(answer is None for answer in answers),
        refused=next((a.refused for a in answers if a and a.refused), None),
        complaints=observations.complaints.get(part.name, {}),
        fault=observations.faults.get(part.name),
    )
    queues = [queue for s in samples if (queue := queue_of(part, s.queues))]
    working = [a.values[WORKING] for a in answers if a and WORKING in a.values]
    # The first sample precedes the load, and the last one follows it.
    return _at_socket(_of_processes(activity, at), queues[1:-1] or queues, working[1:-1] or working)


def _of_processes(activity: PartActivity, at: Mapping[float, Processes]) -> PartActivity:
    groups = tuple(at.values())
    limits = [g.descriptor_limit for g in groups if g.descriptor_limit]
    return replace(
        activity,
        workers=max((g.workers for g in groups), default=0),
        threads=max((g.threads for g in groups), default=0),
        cpu=_rate(at, lambda g: g.cpu) or 0.0,
        delay=_rate(at, lambda g: g.delay),
        rss=max((g.rss for g in groups), default=0),
        descriptors=max((g.descriptors for g in groups if g.descriptors), default=None),
        descriptor_limit=min(limits, default=None),
    )


def _at_socket(
    activity: PartActivity, queues: Sequence[Queue], working: Sequence[float]
) -> PartActivity:
    """Return the activity with its socket; ``working`` are the service's counts of requests in flight."""
    crowded = [queue for queue in queues if queue.waiting]
    return replace(
        activity,
        waiting=fmean(q.waiting for q in queues) if queues else 0.0,
        waiting_max=max((q.waiting for q in queues), default=0),
        backlog=queues[-1].backlog if queues else None,
        accepted=fmean(working or [float(q.accepted) for q in queues] or [0.0]),
        queued=len(crowded) / len(queues) if queues else 0.0,
        occupied=max(working) if working else fmean([q.accepted for q in crowded] or [0]),
    )


def within(samples: Sequence[Sample], seconds: float) -> Sequence[Sample]:
    """Return the samples up to ``seconds`` after the first one.

    The load is over while a generator waits for its last answers. Later samples are included only if
    there would be fewer than two.
    """
    for slack in (STARTING, LATE):
        samples_within = [s for s in samples if s.at <= samples[0].at + seconds + slack]
        if len(samples_within) > 1:
            break
    return samples_within


def queue_of(part: Part, queues: Sequence[Queue]) -> Queue | None:
    """Return the listening sockets of a service as one queue; ``reuseport`` gives several per port.

    A part that consists of host settings has no socket.
    """
    place = part.service.socket(part.site)
    if place is None or part.site.role is Role.HOST:
        return None
    ending = f":{place.port}" if isinstance(place, Endpoint) else place
    mine = [q for q in queues if q.place.endswith(ending)]
    if not mine:
        return None
    backlogs = [q.backlog for q in mine if q.backlog is not None]
    return Queue(
        ending,
        sum(q.waiting for q in mine),
        sum(backlogs) if backlogs else None,
        sum(q.accepted for q in mine),
    )


def counted(answers: Sequence[Counters], levels: frozenset[str]) -> dict[str, float]:
    """Return the growth of counters, and the maximum of ``levels``, which rise and fall."""
    if not answers:
        return {}
    first, last = answers[0].values, answers[-1].values
    return {
        name: max(a.values.get(name, 0.0) for a in answers)
        if name in levels
        else value - first.get(name, 0.0)
        for name, value in last.items()
    }


def _rate(at: Mapping[float, Processes], of: Callable[[Processes], float | None]) -> float | None:
    values = [(when, value) for when, group in at.items() if (value := of(group)) is not None]
    if len(values) < 2:
        return None
    (begun, first), (ended, last) = values[0], values[-1]
    return max(0.0, last - first) / max(ended - begun, 1e-6)


def _grown(first: Mapping[str, int], last: Mapping[str, int], name: str) -> int:
    return last.get(name, 0) - first.get(name, 0)


def _used(first: Sample, last: Sample, cpus: float) -> float | None:
    if first.used is None or last.used is None:
        return None
    used = (last.used - first.used) / max(last.at - first.at, 1e-6)
    # With cgroup v1, the account may cover the whole machine instead of the limited group.
    return used if used <= 1.25 * cpus else None


def _memory_in_use(sample: Sample) -> float:
    if limit := sample.memory.get("GroupLimit"):
        return sample.memory["GroupUsed"] / limit
    total = sample.memory.get("MemTotal", 0)
    return 1.0 - sample.memory.get("MemAvailable", total) / total if total else 0.0


@dataclass(frozen=True)
class HostUsage:
    """A host over one reading.

    ``cpu`` is the fraction of its CPU time in use, ``steal`` the fraction of CPU steal. ``load`` is the
    load average at the end, ``running`` the mean number of runnable threads. ``memory`` (a fraction),
    ``sockets`` and ``time_wait`` are maxima. ``network`` is in bytes/s. ``rss`` is the largest process of
    each service in bytes, ``workers`` the number of its processes, by the part's name.
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


def host_usages(
    hosts: Sequence[WatchedHost], observations: Observations, seconds: float
) -> dict[str, HostUsage]:
    """Return host → usage, for every host with samples."""
    usages = {}
    for host in hosts:
        whole = host_activity(host, observations, seconds)
        if whole is None:
            continue
        parts = [part_activity(part, observations, seconds) for part in host.parts]
        usages[host.name] = HostUsage(
            cpu=round(whole.busy, 4),
            steal=round(whole.cpu.get("steal", 0.0), 4),
            load=round(whole.load, 2),
            running=round(whole.running, 2),
            memory=round(whole.memory, 4),
            sockets=whole.sockets,
            time_wait=whole.time_wait,
            network=round(whole.network),
            rss={part.name: part.rss for part in parts if part.rss},
            workers={part.name: part.workers for part in parts if part.workers},
        )
    return usages
