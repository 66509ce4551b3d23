"""Rules that find the bottleneck, in order.

Everything queues once a stack is overloaded, so the order decides. Refusals come before slowness, a
dependency before the service that waits for it, and a full machine before the queues in front of it.
Each rule checks one reading and returns a bottleneck or ``None``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from autotune.diagnose.context import Bottleneck, ReadingContext, floor, time_inside
from autotune.monitor.activity import HostActivity
from autotune.services.base import Role
from autotune.services.diagnosis import (
    FULL,
    INFERRED,
    MEASURED,
    TOLD,
    Diagnosis,
    PartActivity,
    Resource,
)
from autotune.services.diagnosis import Rule as ServiceRule
from autotune.services.registry import diagnosis

Rule = Callable[[ReadingContext], Bottleneck | None]

IDLE = 0.10  # share of the CPUs: with more idle time, CPU is not the bottleneck
SHARE = 0.5  # share of a request's time in a service
MINE = 0.25  # share of the CPUs: if the stack uses less, other programs fill them
# Seconds throttled per second, and share of the quota used. Together they mean a lack of CPU.
HELD_BACK, MOST = 0.25, 0.7
STORES = (Role.STORE, Role.DATABASE)  # dependencies of an application other than a cache
CROWDED = 1.25  # runnable processes per CPU


def generator(context: ReadingContext) -> Bottleneck | None:
    if not context.reading.limited:
        return None
    return Bottleneck("load", "generator", "", Resource.GENERATOR, context.reading.limited, TOLD)


def wrong_answers(context: ReadingContext) -> Bottleneck | None:
    """Report hosts that answer every direct request wrongly, even without load."""
    broken = [part for part in context.parts if part.fault]
    if not broken:
        return None
    first = broken[0]
    fine = [part.host for part in context.of_role(first.role) if not part.fault]
    others = f" ({', '.join(fine)} answers correctly)" if fine else ""
    answers = "; ".join(f"{part.host} answers {part.fault}" for part in broken)
    return _at(
        first,
        Resource.ANSWERS,
        f"even without load, {answers}{others}. {context.reading.failed} of"
        f" {context.reading.intended} requests failed: fix the wrong answers first",
        TOLD,
    )


def clients_refused(context: ReadingContext) -> Bottleneck | None:
    """Report a server that refuses or delays clients at its limit of clients."""
    for part in context.parts:
        limit = diagnosis(part.service).clients
        if limit is None:
            continue
        counts = {**part.complaints, **part.counters}
        refused, closed = counts.get(limit.refused, 0), counts.get(limit.closed, 0)
        if not (refused or closed or part.refused):
            continue
        clients = sum(pool.workers for pool in context.pools)
        wanting = f", {clients} processes need a connection each" if clients else ""
        queued = f", {part.waiting_max} waited at its socket" if limit.queues else ""
        stopped = f" and stopped accepting {closed:g} times" if limit.closed else ""
        refusal = part.refused or f"it refused {refused:g}{stopped}"
        return _at(
            part,
            Resource.CONNECTIONS,
            f"its limit is {context.setting(part, limit.parameter)} clients{wanting}{queued}"
            f" ({refusal}): raise {limit.parameter}{limit.instead}",
            TOLD,
        )
    return None


def descriptors(context: ReadingContext) -> Bottleneck | None:
    """Report a server that reached its limit of open files, so that requests failed.

    In a deep overload, servers that hold thousands of requests for a slow dependency log the same
    message. Most violations are then late, not failed.
    """
    for part in _complaining(context, "open_files"):
        limit = part.descriptor_limit
        allowed = "unknown" if limit is None else str(limit)
        return _at(
            part,
            Resource.DESCRIPTORS,
            f"it logged “Too many open files” {part.complaints['open_files']} times"
            f" (per-process limit {allowed}), and {context.reading.failed} requests failed:"
            " raise the limit (LimitNOFILE, worker_rlimit_nofile)",
            TOLD,
        )
    return None


def ports(context: ReadingContext) -> Bottleneck | None:
    """Report a proxy without a free local port; it answers 502."""
    for part in _complaining(context, "no_ports"):
        return _at(
            part,
            Resource.CONNECTIONS,
            f"it found no free local port {part.complaints['no_ports']} times: keep connections"
            " to its upstreams open, or widen net.ipv4.ip_local_port_range",
            TOLD,
        )
    return None


def memory(context: ReadingContext) -> Bottleneck | None:
    for host in context.hosts.values():
        if host.memory >= 0.97 or host.swapped > 1 << 20:
            part = max(context.on(host.name), key=lambda p: p.rss * max(1, p.workers), default=None)
            if part:
                return _at(
                    part,
                    Resource.MEMORY,
                    f"{host.memory:.0%} of {host.name}'s memory is in use, and"
                    f" {host.swapped / 2**20:.0f} MB were swapped out."
                    f" {part.workers} processes use up to {part.rss / 2**20:.0f} MB each:"
                    " run fewer",
                    MEASURED,
                )
    return None


def cpu(context: ReadingContext) -> Bottleneck | None:
    """Report a lack of CPU: the services used their host's CPUs, or requests mostly ran or were
    ready to run."""
    return _without_cpu(context, MEASURED, _quota_used) or _without_cpu(
        context, MEASURED, lambda host, _: _ready_but_not_running(context, host, SHARE)
    )


def crowded(context: ReadingContext) -> Bottleneck | None:
    """Report full CPUs with processes that wait for them.

    PHP may wait for a cache or a proxy that itself waits for a CPU. PHP then does not show as short of
    CPU, and more PHP processes would only wait, too.
    """
    return _without_cpu(
        context, INFERRED, lambda host, _: _ready_but_not_running(context, host, 0.0)
    )


def _without_cpu(
    context: ReadingContext, confidence: float, reason: Callable[[HostActivity, float], str]
) -> Bottleneck | None:
    for host in context.hosts.values():
        parts = context.on(host.name)
        part = max(parts, key=lambda p: p.cpu, default=None)
        used = sum(part.cpu for part in parts)
        why = reason(host, used)
        if part and why:
            return _at(
                part,
                Resource.CPU,
                f"{why}. It used {part.cpu:.2f} of the stack's {used:.2f} CPUs there: add or upgrade"
                " CPUs, or reduce the work per request",
                confidence,
            )
    return None


def _quota_used(host: HostActivity, used: float) -> str:
    # Usage above the quota means that the quota is not enforced.
    if FULL * host.cpus <= used <= 1.25 * host.cpus:
        return f"the stack used {used:.2f} of {host.name}'s {host.cpus:g} CPUs"
    if host.throttled >= HELD_BACK and max(used, host.used or 0.0) >= MOST * host.cpus:
        return f"the CPU quota throttled {host.name} for {host.throttled:.1f} s per second"
    return ""


def _ready_but_not_running(context: ReadingContext, host: HostActivity, share: float) -> str:
    """Return the evidence that the stack's processes wait for CPUs; empty if there is none.

    A generator on the same host never idles, so a lack of idle time alone proves nothing. The stack lacks
    CPUs only if its own processes could fill them. Two processes that are often preempted can still use
    no more than two CPUs.
    """
    parts, idle = context.on(host.name), 1.0 - host.busy
    demanded = sum(part.cpu + (part.delay or 0.0) for part in parts)
    waiting = [part for part in parts if part.delay and _ready_share(part) >= share]
    mine = sum(part.cpu for part in parts) >= MINE * host.cpus
    if idle > IDLE or demanded < CROWDED * host.cpus or not waiting or not mine:
        return ""
    worst = max(waiting, key=lambda p: p.delay or 0.0)
    times = (worst.delay or 0.0) / max(worst.cpu, 1e-3)
    return (
        f"{host.name}'s {host.cpus:g} CPUs were {idle:.0%} idle with {demanded:.1f} of the stack's"
        f" processes runnable. {worst.label} waited {times:.1f} × as long as it ran"
    )


def _ready_share(part: PartActivity) -> float:
    """Return the fraction of a part's time with requests in which its processes are runnable."""
    in_hand = part.accepted if part.runs_application else float(part.workers)
    return (part.cpu + (part.delay or 0.0)) / max(in_hand, 1.0)


def one_thread(context: ReadingContext) -> Bottleneck | None:
    """Report a service whose threads are all busy although its host's CPUs are not."""
    for part in context.parts:
        threads = context.threads(part)
        if threads is None or part.cpu < FULL * threads:
            continue
        name = diagnosis(part.service).threads
        resource = Resource.STORE if part.role in STORES else Resource.WORKERS
        return _at(
            part,
            resource,
            f"its {threads} threads used {part.cpu:.2f} CPUs, their maximum: raise {name}",
            MEASURED,
        )
    return None


def network(context: ReadingContext) -> Bottleneck | None:
    for host in context.hosts.values():
        busiest = max(context.on(host.name), key=lambda p: p.cpu, default=None)
        if busiest is None:
            continue
        if host.link is not None and host.link >= FULL:
            why = f"{host.name}'s link is {host.link:.0%} full at {host.network * 8e-9:.1f} Gb/s"
            return _at(busiest, Resource.NETWORK, why, MEASURED)
        if host.retransmits >= 0.02:
            why = f"{host.name} retransmitted {host.retransmits:.1%} of its segments"
            return _at(busiest, Resource.NETWORK, why, INFERRED)
    return None


def store(context: ReadingContext) -> Bottleneck | None:
    """Report a dependency for which every request waits in PHP, even at the lowest rate.

    The wait takes much of the SLO's limit, and PHP is short of nothing. More processes would serve more
    requests, but none of them in time.
    """
    inside = time_inside(context)
    fastest = context.fastest if context.fastest is not None else floor(context)
    if inside is None or fastest is None or inside < 0.5 * fastest:
        return None
    work = sum(part.cpu for part in context.pools) / context.answered
    if fastest - work < 0.5 * context.slo.limit:
        return None
    behind, why = _slow_one(context)
    if behind is None:
        return None
    return _at(
        behind,
        Resource.CACHE if behind.role is Role.CACHE else Resource.STORE,
        f"at the lowest rate, the fastest requests take {1e3 * fastest:.0f} of the allowed"
        f" {1e3 * context.slo.limit:.0f} ms, but only {1e3 * work:.1f} ms of CPU time in"
        f" {context.pools[0].label}; {why}",
        INFERRED,
    )


def _slow_one(context: ReadingContext) -> tuple[PartActivity | None, str]:
    """Return the cache if it did not answer in time, else the store if gets miss the cache."""
    caches, stores = context.of_role(Role.CACHE), context.of_role(*STORES)
    for cache in caches:
        if cache.unanswered > cache.answers:
            return cache, "the cache left most queries of its counters unanswered"
    counted = [(c.counters, lookups) for c in caches if (lookups := diagnosis(c.service).lookups)]
    misses = sum(counters.get(lookups.misses, 0) for counters, lookups in counted)
    gets = sum(counters.get(lookups.gets, 0) for counters, lookups in counted)
    if not stores or (caches and not misses):
        return None, ""
    share = f"{misses / gets:.0%} of the gets miss the cache" if gets else "the stack uses no cache"
    return stores[0], f"{share}, so requests wait for the store"


def own(rules: Callable[[Diagnosis], Iterable[ServiceRule]], *roles: Role) -> Rule:
    """Return a rule with the first finding of the services' own rules, furthest parts first."""

    def finding(context: ReadingContext) -> Bottleneck | None:
        for part in context.of_role(*roles) if roles else context.parts:
            for rule in rules(diagnosis(part.service)):
                if own_finding := rule(context.of_part(part)):
                    return _at(
                        part, own_finding.resource, own_finding.evidence, own_finding.confidence
                    )
        return None

    return finding


def backlog(context: ReadingContext) -> Bottleneck | None:
    """Report a full queue of new connections that no earlier rule explains."""
    for part in context.parts:
        if part.backlog and part.waiting_max >= FULL * part.backlog:
            dropped = context.hosts[part.host].listen_drops if part.host in context.hosts else 0
            return _at(
                part,
                Resource.CONNECTIONS,
                f"{part.waiting_max} connections waited at its socket, with a backlog of"
                f" {part.backlog}, and the kernel dropped {dropped}: raise backlog and"
                " net.core.somaxconn",
                INFERRED,
            )
    return None


RULES: tuple[Rule, ...] = (
    generator,
    wrong_answers,
    clients_refused,
    descriptors,
    own(lambda service: service.refusal_rules),  # refused requests
    ports,
    memory,
    network,
    cpu,
    one_thread,
    own(lambda service: service.worker_rules, Role.DATABASE),  # a database reports its own waits
    store,
    crowded,
    own(lambda service: service.worker_rules),  # all workers are busy and requests wait
    own(lambda service: service.cache_rules),  # a cache evicts keys that are requested again
    backlog,
)


def _complaining(context: ReadingContext, about: str) -> Iterable[PartActivity]:
    if context.mostly_errors:
        yield from (part for part in context.parts if part.complaints.get(about))


def _at(part: PartActivity, resource: Resource, evidence: str, confidence: float) -> Bottleneck:
    return Bottleneck(part.tier, part.service, part.host, resource, evidence, confidence)
