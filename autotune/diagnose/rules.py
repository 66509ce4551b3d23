"""How the bottleneck is found, rule by rule.

Everything queues once a stack is overloaded, so order decides: what was *refused* comes before what
was slow, what a service waits *for* before the service that waits, a machine that is full before
the queues that form in front of it. Each rule looks at one reading and names a part, or passes.
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

IDLE = 0.10  # of the CPUs: with more than this left, CPU is not the bottleneck
SHARE = 0.5  # of a request's time in a service
MINE = 0.25  # of the CPUs: with less than this used by the stack, others fill them
# Seconds a second that it was throttled, and share of its quota that it used: both mean a lack of CPU.
HELD_BACK, MOST = 0.25, 0.7
STORES = (Role.STORE, Role.DATABASE)  # what an application waits for other than a cache
CROWDED = 1.25  # processes ready to run for each CPU


def generator(context: ReadingContext) -> Bottleneck | None:
    if not context.reading.limited:
        return None
    return Bottleneck("load", "generator", "", Resource.GENERATOR, context.reading.limited, TOLD)


def wrong_answers(context: ReadingContext) -> Bottleneck | None:
    """A host that answers wrong every time it is asked directly, without load."""
    broken = [part for part in context.parts if part.fault]
    if not broken:
        return None
    first = broken[0]
    fine = [part.host for part in context.of_role(first.role) if not part.fault]
    others = f" ({', '.join(fine)} answers right)" if fine else ""
    answers = "; ".join(f"{part.host} answers {part.fault}" for part in broken)
    return _at(
        first,
        Resource.ANSWERS,
        f"asked by itself, without load, {answers}{others}: mend it, {context.reading.failed} of"
        f" {context.reading.intended} requests failed",
        TOLD,
    )


def clients_refused(context: ReadingContext) -> Bottleneck | None:
    """A server at its limit of clients turns the next one away, or lets it wait."""
    for part in context.parts:
        limit = diagnosis(part.service).clients
        if limit is None:
            continue
        counts = {**part.complaints, **part.counters}
        refused, closed = counts.get(limit.refused, 0), counts.get(limit.closed, 0)
        if not (refused or closed or part.refused):
            continue
        clients = sum(pool.workers for pool in context.pools)
        wanting = f", {clients} processes want a connection each" if clients else ""
        queued = f", {part.waiting_max} stood at its socket" if limit.queues else ""
        stopped = f" and stopped accepting {closed:g} times" if limit.closed else ""
        refusal = part.refused or f"it turned away {refused:g}{stopped}"
        return _at(
            part,
            Resource.CONNECTIONS,
            f"{context.setting(part, limit.parameter)} clients are its limit{wanting}{queued}"
            f" ({refusal}): raise {limit.parameter}{limit.instead}",
            TOLD,
        )
    return None


def descriptors(context: ReadingContext) -> Bottleneck | None:
    """A server logs that it may open no more files, and requests fail for it. In a deep overload,
    servers that hold thousands of requests for something slow log it, too: then most violations are
    late, not failed.
    """
    for part in _complaining(context, "open_files"):
        limit = part.descriptor_limit
        allowed = "an unknown number" if limit is None else str(limit)
        return _at(
            part,
            Resource.DESCRIPTORS,
            f"it logged “Too many open files” {part.complaints['open_files']} times,"
            f" {allowed} are allowed a process, {context.reading.failed} requests failed:"
            " raise the limit (LimitNOFILE, worker_rlimit_nofile)",
            TOLD,
        )
    return None


def ports(context: ReadingContext) -> Bottleneck | None:
    """Without a free local port a proxy answers 502."""
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
                    f"{host.memory:.0%} of {host.name}'s memory is in use,"
                    f" {host.swapped / 2**20:.0f} MB were swapped out;"
                    f" {part.workers} processes of up to {part.rss / 2**20:.0f} MB each:"
                    " run fewer of them",
                    MEASURED,
                )
    return None


def cpu(context: ReadingContext) -> Bottleneck | None:
    """No CPU left: by what the services used of what their host may use, or because requests spent
    most of their time running or ready to run."""
    return _without_cpu(context, MEASURED, _quota_used) or _without_cpu(
        context, MEASURED, lambda host, _: _ready_but_not_running(context, host, SHARE)
    )


def crowded(context: ReadingContext) -> Bottleneck | None:
    """The CPUs are full and processes wait for them. PHP may wait for a cache or a proxy that itself
    waits for a CPU: PHP does not show as short of CPU then, and more processes would only wait, too."""
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
                f"{why}; it used {part.cpu:.2f} of the stack's {used:.2f} CPUs there: give it"
                " more or faster CPUs, or less work a request",
                confidence,
            )
    return None


def _quota_used(host: HostActivity, used: float) -> str:
    # Where more was used than the quota allows, the quota is only written down, not enforced.
    if FULL * host.cpus <= used <= 1.25 * host.cpus:
        return f"{used:.2f} of {host.name}'s {host.cpus:g} CPUs went to the stack"
    if host.throttled >= HELD_BACK and max(used, host.used or 0.0) >= MOST * host.cpus:
        return f"{host.name} was held back by its CPU quota for {host.throttled:.1f} s a second"
    return ""


def _ready_but_not_running(context: ReadingContext, host: HostActivity, share: float) -> str:
    """A generator on the same host never idles, so that a lack of idle time alone proves nothing: the
    stack lacks CPUs only if its own processes could fill them. Two processes that are often preempted
    can still use no more than two CPUs."""
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
        f" processes ready to run; {worst.label}'s waited {times:.1f} × as long as they ran"
    )


def _ready_share(part: PartActivity) -> float:
    """The fraction of the time a part holds requests in which its processes run or are ready to."""
    in_hand = part.accepted if part.runs_application else float(part.workers)
    return (part.cpu + (part.delay or 0.0)) / max(in_hand, 1.0)


def one_thread(context: ReadingContext) -> Bottleneck | None:
    """A service whose threads are all busy while its host has CPUs to spare."""
    for part in context.parts:
        threads = context.threads(part)
        if threads is None or part.cpu < FULL * threads:
            continue
        name = diagnosis(part.service).threads
        resource = Resource.STORE if part.role in STORES else Resource.WORKERS
        return _at(
            part,
            resource,
            f"its {threads} threads used {part.cpu:.2f} CPUs, all they can: raise {name}",
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
            why = f"{host.retransmits:.1%} of the segments {host.name} sent had to be sent again"
            return _at(busiest, Resource.NETWORK, why, INFERRED)
    return None


def store(context: ReadingContext) -> Bottleneck | None:
    """Every request waits in PHP for much of the SLO's limit, even at the lowest rate and although PHP
    is short of nothing. More processes would carry more requests, but none of them in time."""
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
        f"even the fastest requests take {1e3 * fastest:.0f} ms where the load is lowest, of"
        f" {1e3 * context.slo.limit:.0f} ms they may take, and work for {1e3 * work:.1f} ms of it in"
        f" {context.pools[0].label}; {why}",
        INFERRED,
    )


def _slow_one(context: ReadingContext) -> tuple[PartActivity | None, str]:
    """The cache where it did not answer in time, else the store where gets miss the cache."""
    caches, stores = context.of_role(Role.CACHE), context.of_role(*STORES)
    for cache in caches:
        if cache.unanswered > cache.answers:
            return cache, "the cache left most questions about its own state unanswered"
    counted = [(c.counters, lookups) for c in caches if (lookups := diagnosis(c.service).lookups)]
    misses = sum(counters.get(lookups.misses, 0) for counters, lookups in counted)
    gets = sum(counters.get(lookups.gets, 0) for counters, lookups in counted)
    if not stores or (caches and not misses):
        return None, ""
    share = f"{misses / gets:.0%} of the gets miss the cache" if gets else "there is no cache"
    return stores[0], f"{share}, which answers at once: what misses waits for the store"


def own(rules: Callable[[Diagnosis], Iterable[ServiceRule]], *roles: Role) -> Rule:
    """The first finding of services' own rules, parts furthest behind first; of ``roles`` if named."""

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
    """A full queue of new connections, where no rule before this one found a shortage behind it."""
    for part in context.parts:
        if part.backlog and part.waiting_max >= FULL * part.backlog:
            dropped = context.hosts[part.host].listen_drops if part.host in context.hosts else 0
            return _at(
                part,
                Resource.CONNECTIONS,
                f"{part.waiting_max} connections waited at its socket, whose backlog is"
                f" {part.backlog}; the kernel dropped {dropped}: raise backlog and"
                " net.core.somaxconn",
                INFERRED,
            )
    return None


RULES: tuple[Rule, ...] = (
    generator,
    wrong_answers,
    clients_refused,
    descriptors,
    own(lambda service: service.refusal_rules),  # requests that they turned away
    ports,
    memory,
    network,
    cpu,
    one_thread,
    own(lambda service: service.worker_rules, Role.DATABASE),  # it says itself what it waits for
    store,
    crowded,
    own(lambda service: service.worker_rules),  # all workers have a request in hand and more wait
    own(lambda service: service.cache_rules),  # a cache forgets what it is asked for again
    backlog,
)


def _complaining(context: ReadingContext, about: str) -> Iterable[PartActivity]:
    if context.mostly_errors:
        yield from (part for part in context.parts if part.complaints.get(about))


def _at(part: PartActivity, resource: Resource, evidence: str, confidence: float) -> Bottleneck:
    return Bottleneck(part.tier, part.service, part.host, resource, evidence, confidence)
