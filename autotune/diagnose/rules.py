"""Rules that find the bottleneck, in the order of their evaluation.

In an overloaded stack, there are queues in front of every service, so the order of the rules matters.
Refusals come before slowness. A dependency comes before the service that waits for it, and a full machine
before the queues in front of the machine. Each rule checks one reading and returns a bottleneck or
``None``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from autotune.diagnose.bottleneck import Bottleneck
from autotune.diagnose.context import ReadingContext, compute_latency_floor, compute_php_seconds
from autotune.monitor.activity import HostActivity
from autotune.services.base import Role
from autotune.services.diagnosis import (
    FULL_FRACTION,
    INFERRED,
    MEASURED,
    POSSIBLE,
    REPORTED,
    Diagnosis,
    InstanceActivity,
    Resource,
)
from autotune.services.diagnosis import DiagnosisRule as ServiceRule

BottleneckRule = Callable[[ReadingContext], Bottleneck | None]

IDLE_CPU_SHARE = 0.10  # maximum idle share of the CPUs if CPU is the bottleneck
# If CPU is the bottleneck, a service's processes are running or runnable for at least this share of the
# time with requests in flight.
REQUEST_TIME_SHARE = 0.5
# If the stack uses a smaller share of the CPUs, other programs keep the CPUs busy.
STACK_CPU_SHARE = 0.25
MAX_CPU_SHARE = 1.25  # usage above this share of the quota means that the quota is not enforced
# mean number of CPUs that are idle while a process waits for a disk, if the disk is the bottleneck
MIN_DISK_WAIT = 0.5
# CPU is the bottleneck if the quota throttles a host for at least the first share of the time. At least
# the second share of the quota must also be used.
THROTTLED_SHARE, QUOTA_USED_SHARE = 0.25, 0.7
# bursts of requests wait for CPUs that are busy for at least this share of the time
HEAVY_CPU_SHARE = 0.75
STORE_ROLES = (Role.STORE, Role.DATABASE)  # dependencies of an application, apart from caches
OTHER_ROLES = tuple(role for role in Role if role is not Role.DATABASE)
MIN_RUNNABLE_PER_CPU = 1.25  # minimum number of runnable processes per CPU if CPU is the bottleneck
# Memory is the bottleneck if at least the first fraction is in use. The second fraction suffices if pages
# were swapped out. With more free memory, the kernel swaps out only unused pages.
FULL_MEMORY, SWAPPING_MEMORY = 0.97, 0.85
MIN_SWAPPED_BYTES = 1 << 20
# The network is the bottleneck if at least these segments are retransmitted: a share of all segments, a
# number, and a number per request. On an idle host, most segments belong to autotune's own connection.
MIN_RETRANSMITTED_SHARE, MIN_RETRANSMITTED_SEGMENTS, MIN_RETRANSMITTED_PER_REQUEST = 0.02, 20, 0.01


def check_generator(context: ReadingContext) -> Bottleneck | None:
    if not context.reading.limited:
        return None
    return Bottleneck(
        "load", "generator", "", Resource.GENERATOR, context.reading.limited, REPORTED
    )


def check_wrong_answers(context: ReadingContext) -> Bottleneck | None:
    """Report hosts that return wrong responses even without load."""
    faulty_instances = [instance for instance in context.instances if instance.fault]
    if not faulty_instances:
        return None
    faulty_instance = faulty_instances[0]
    healthy_hosts = [
        part.host for part in context.instances_with_role(faulty_instance.role) if not part.fault
    ]
    healthy_text = f" ({', '.join(healthy_hosts)} responds correctly)" if healthy_hosts else ""
    answer_texts = "; ".join(f"{part.host} answers {part.fault}" for part in faulty_instances)
    return _build_bottleneck(
        faulty_instance,
        Resource.WRONG_ANSWERS,
        f"even without load, {answer_texts}{healthy_text}. {context.reading.error_count} of"
        f" {context.reading.intended} requests failed: fix the incorrect responses first",
        REPORTED,
    )


def check_refused_clients(context: ReadingContext) -> Bottleneck | None:
    """Report a server that refuses or delays clients because of its maximum number of clients."""
    for instance in context.instances:
        client_limit = context.find_diagnosis(instance).client_limit
        if client_limit is None:
            continue
        complaint_counts = {**instance.log_complaints, **instance.counters}
        refused_count, closed_count = (
            complaint_counts.get(client_limit.refused_counter, 0),
            complaint_counts.get(client_limit.closed_counter, 0),
        )
        if not (refused_count or closed_count or instance.refusal):
            continue
        client_count = sum(pool.workers for pool in context.application_pools)
        demand_text = f", {client_count} processes need a connection each" if client_count else ""
        queue_text = (
            f", {instance.max_waiting} waited at its socket" if client_limit.queues_excess else ""
        )
        stop_text = (
            f" and stopped accepting {closed_count:g} times" if client_limit.closed_counter else ""
        )
        refusal = instance.refusal or f"it refused {refused_count:g}{stop_text}"
        return _build_bottleneck(
            instance,
            Resource.CONNECTIONS,
            f"its limit is {context.find_setting(instance, client_limit.parameter)} clients"
            f"{demand_text}{queue_text} ({refusal}): raise {client_limit.parameter}"
            f"{client_limit.alternative_advice}",
            REPORTED,
        )
    return None


def check_open_files(context: ReadingContext) -> Bottleneck | None:
    """Report a server on which requests failed because it reached its limit of open files.

    In a deep overload, servers that hold thousands of requests for a slow dependency log the same
    message, but most violations are then late. The rule ignores such an overload.
    """
    for instance in _list_complaining_instances(context, "open_files"):
        descriptor_limit = instance.descriptor_limit
        limit_text = "unknown" if descriptor_limit is None else str(descriptor_limit)
        return _build_bottleneck(
            instance,
            Resource.DESCRIPTORS,
            f"it logged “Too many open files” {instance.log_complaints['open_files']} times"
            f" (per-process limit {limit_text}), and {context.reading.error_count} requests failed:"
            " raise the limit (LimitNOFILE, worker_rlimit_nofile)",
            REPORTED,
        )
    return None


def check_local_ports(context: ReadingContext) -> Bottleneck | None:
    """Report a proxy that found no free local port, and therefore responded with status 502."""
    for instance in _list_complaining_instances(context, "no_ports"):
        return _build_bottleneck(
            instance,
            Resource.CONNECTIONS,
            f"it found no free local port {instance.log_complaints['no_ports']} times: keep connections"
            " to its upstreams open, or widen net.ipv4.ip_local_port_range",
            REPORTED,
        )
    return None


def check_memory(context: ReadingContext) -> Bottleneck | None:
    for host in context.hosts.values():
        is_swapping = host.swapped_bytes > MIN_SWAPPED_BYTES and host.memory >= SWAPPING_MEMORY
        if host.memory >= FULL_MEMORY or is_swapping:
            instance = max(
                context.instances_on(host.name),
                key=lambda p: p.rss * max(1, p.workers),
                default=None,
            )
            if instance:
                return _build_bottleneck(
                    instance,
                    Resource.MEMORY,
                    f"{host.memory:.0%} of {host.name}'s memory is in use, and"
                    f" {host.swapped_bytes / 2**20:.0f} MB were swapped out."
                    f" {instance.workers} processes use up to {instance.rss / 2**20:.0f} MB each: "
                    f"run fewer processes",
                    MEASURED,
                )
    return None


def check_cpu(context: ReadingContext) -> Bottleneck | None:
    """Report a lack of CPU: the services used all CPUs of a host, or their processes were mostly running
    or runnable.
    """
    return _find_cpu_shortage(context, MEASURED, _describe_quota_use) or _find_cpu_shortage(
        context,
        MEASURED,
        lambda host, _: _describe_waiting_processes(context, host, REQUEST_TIME_SHARE),
    )


def check_crowded_cpus(context: ReadingContext) -> Bottleneck | None:
    """Report fully used CPUs for which processes of the stack wait.

    If PHP waits for a cache or a proxy that waits for a CPU, PHP does not seem to lack CPU. Additional
    PHP processes would only wait, too.
    """
    return _find_cpu_shortage(
        context, INFERRED, lambda host, _: _describe_waiting_processes(context, host, 0.0)
    )


def check_heavily_used_cpus(context: ReadingContext) -> Bottleneck | None:
    """Report the host with the busiest CPUs, if no earlier rule explains the reading. Bursts of requests
    wait for CPUs that are idle at other moments.
    """
    used_shares = {
        host.name: sum(instance.cpu for instance in context.instances_on(host.name)) / host.cpus
        for host in context.hosts.values()
    }
    busiest_name = max(used_shares, key=lambda name: used_shares[name], default=None)
    if busiest_name is None or not HEAVY_CPU_SHARE <= used_shares[busiest_name] <= MAX_CPU_SHARE:
        return None
    instances = context.instances_on(busiest_name)
    instance = max(instances, key=lambda candidate: candidate.cpu)
    return _build_bottleneck(
        instance,
        Resource.CPU,
        f"the stack used {used_shares[busiest_name]:.0%} of {busiest_name}'s CPUs, and bursts wait for"
        f" them. {instance.label} used {instance.cpu:.2f} CPUs: add or upgrade CPUs, or reduce the work"
        " per request",
        POSSIBLE,
    )


def _find_cpu_shortage(
    context: ReadingContext,
    confidence: float,
    describe_shortage: Callable[[HostActivity, float], str],
) -> Bottleneck | None:
    def compute_used_cpus(host: HostActivity) -> float:
        return sum(instance.cpu for instance in context.instances_on(host.name))

    # If the CPUs of several hosts are busy, the fullest host limits the stack.
    for host in sorted(context.hosts.values(), key=lambda h: -compute_used_cpus(h) / h.cpus):
        instances = context.instances_on(host.name)
        instance = max(instances, key=lambda p: p.cpu, default=None)
        used_cpus = compute_used_cpus(host)
        shortage_text = describe_shortage(host, used_cpus)
        if instance and shortage_text:
            return _build_bottleneck(
                instance,
                Resource.CPU,
                f"{shortage_text}. It used {instance.cpu:.2f} of the stack's {used_cpus:.2f} CPUs"
                " there: add or upgrade CPUs, or reduce the work per request",
                confidence,
            )
    return None


def _describe_quota_use(host: HostActivity, used_cpus: float) -> str:
    if FULL_FRACTION * host.cpus <= used_cpus <= MAX_CPU_SHARE * host.cpus:
        return f"the stack used {used_cpus:.2f} of {host.name}'s {host.cpus:g} CPUs"
    if (
        host.throttled >= THROTTLED_SHARE
        and max(used_cpus, host.quota_used_share or 0.0) >= QUOTA_USED_SHARE * host.cpus
    ):
        return f"the CPU quota throttled {host.name} for {host.throttled:.1f} s per second"
    return ""


def _describe_waiting_processes(context: ReadingContext, host: HostActivity, share: float) -> str:
    """Return the evidence that the stack's processes wait for CPUs; empty without evidence.

    A generator on the same host uses all idle CPU time, so a lack of idle time alone proves nothing. The
    stack lacks CPUs only if its own processes could use all CPUs.
    """
    instances, idle_share = context.instances_on(host.name), 1.0 - host.busy_share
    demanded_cpus = sum(instance.cpu + (instance.cpu_delay or 0.0) for instance in instances)
    waiting_instances = [
        instance
        for instance in instances
        if instance.cpu_delay and _compute_ready_share(instance) >= share
    ]
    is_own_load = sum(instance.cpu for instance in instances) >= STACK_CPU_SHARE * host.cpus
    if (
        idle_share > IDLE_CPU_SHARE
        or demanded_cpus < MIN_RUNNABLE_PER_CPU * host.cpus
        or not waiting_instances
        or not is_own_load
    ):
        return ""
    worst_instance = max(waiting_instances, key=lambda p: p.cpu_delay or 0.0)
    wait_factor = (worst_instance.cpu_delay or 0.0) / max(worst_instance.cpu, 1e-3)
    return (
        f"{host.name}'s {host.cpus:g} CPUs were {idle_share:.0%} idle with {demanded_cpus:.1f} of the"
        f" stack's processes runnable. {worst_instance.label} waited {wait_factor:.1f} × as long as"
        " it ran"
    )


def _compute_ready_share(instance: InstanceActivity) -> float:
    """Return the fraction of the time in which an instance's processes with a request in flight are
    running or runnable.
    """
    in_flight_connections = (
        instance.accepted_connections if instance.runs_application else float(instance.workers)
    )
    return (instance.cpu + (instance.cpu_delay or 0.0)) / max(in_flight_connections, 1.0)


def check_busy_threads(context: ReadingContext) -> Bottleneck | None:
    """Report a service whose threads are all busy."""
    for instance in context.instances:
        threads = context.count_threads(instance)
        used_cpus = context.compute_threads_cpu(instance)
        if threads is None or used_cpus < FULL_FRACTION * threads:
            continue
        parameter_name = context.find_diagnosis(instance).threads_parameter
        resource = Resource.STORE if instance.role in STORE_ROLES else Resource.WORKERS
        return _build_bottleneck(
            instance,
            resource,
            f"its {threads} threads used {used_cpus:.2f} CPUs, their maximum: raise {parameter_name}",
            MEASURED,
        )
    return None


def check_network(context: ReadingContext) -> Bottleneck | None:
    for host in context.hosts.values():
        busiest_instance = max(context.instances_on(host.name), key=lambda p: p.cpu, default=None)
        if busiest_instance is None:
            continue
        if host.link_share is not None and host.link_share >= FULL_FRACTION:
            reason = (
                f"{host.name}'s link is {host.link_share:.0%} full in one direction, at"
                f" {host.network * 8e-9:.1f} Gb/s in both directions together"
            )
            return _build_bottleneck(busiest_instance, Resource.NETWORK, reason, MEASURED)
        min_segments = max(
            MIN_RETRANSMITTED_SEGMENTS,
            MIN_RETRANSMITTED_PER_REQUEST * context.answered_rate * host.seconds,
        )
        if (
            host.retransmits >= MIN_RETRANSMITTED_SHARE
            and host.retransmitted_segments >= min_segments
        ):
            reason = (
                f"{host.name} retransmitted {host.retransmits:.1%} of its segments, without SYNs"
            )
            return _build_bottleneck(busiest_instance, Resource.NETWORK, reason, INFERRED)
    return None


def check_awaited_disk(context: ReadingContext) -> Bottleneck | None:
    """Report the disk of a database's host if the application may wait for the disk.

    For example, a commit waits until the disk has written the log, which no counter shows. The time that
    the application spends waiting must be known, because background writes delay no request.
    """
    return check_disk(context) if compute_php_seconds(context) else None


def check_disk(context: ReadingContext) -> Bottleneck | None:
    """Report the disk of a database's host if processes wait for the disk while CPUs are idle."""
    for instance in context.instances_with_role(Role.DATABASE):
        host = context.hosts.get(instance.host)
        # Under a quota, the kernel shows the disk waits of the whole machine.
        if host is None or host.quota_used_share is not None:
            continue
        waiting_cpus = host.cpu.get("iowait", 0.0) * host.cpus
        if waiting_cpus >= MIN_DISK_WAIT and host.busy_share < HEAVY_CPU_SHARE:
            return _build_bottleneck(
                instance,
                Resource.DISK,
                f"{waiting_cpus:.1f} of {host.name}'s {host.cpus:g} CPUs waited for a disk while"
                f" {host.cpu.get('idle', 0.0):.0%} were idle: use a faster disk, or write less",
                POSSIBLE,
            )
    return None


def check_store(context: ReadingContext) -> Bottleneck | None:
    """Report a cache or store for which every request waits in PHP, even at the lowest rate.

    The wait takes much of the SLO's latency limit, and PHP lacks no resource. More processes would serve
    more requests, but all responses would be late.
    """
    php_seconds = compute_php_seconds(context)
    fastest_latency = (
        context.fastest_latency
        if context.fastest_latency is not None
        else compute_latency_floor(context)
    )
    if php_seconds is None or fastest_latency is None or php_seconds < 0.5 * fastest_latency:
        return None
    cpu_seconds = (
        sum(instance.cpu for instance in context.application_pools) / context.answered_rate
    )
    if fastest_latency - cpu_seconds < 0.5 * context.slo.limit:
        return None
    slow_instance, reason = _find_slow_instance(context)
    if slow_instance is None:
        return None
    return _build_bottleneck(
        slow_instance,
        Resource.CACHE if slow_instance.role is Role.CACHE else Resource.STORE,
        f"at the lowest rate, the fastest requests take {1e3 * fastest_latency:.0f} of the allowed"
        f" {1e3 * context.slo.limit:.0f} ms, but only {1e3 * cpu_seconds:.1f} ms of CPU time in"
        f" {context.application_pools[0].label}; {reason}",
        INFERRED,
    )


def _find_slow_instance(context: ReadingContext) -> tuple[InstanceActivity | None, str]:
    """Return the slow instance and the evidence: a cache that did not respond in time, or the store if
    gets miss the cache.
    """
    caches, stores = (
        context.instances_with_role(Role.CACHE),
        context.instances_with_role(*STORE_ROLES),
    )
    for cache in caches:
        if cache.unanswered_queries > cache.answered_queries:
            return cache, "the cache did not respond to most queries for its counters"
    counted_caches = [
        (c.counters, lookups)
        for c in caches
        if (lookups := context.find_diagnosis(c).lookup_counters)
    ]
    misses = sum(counters.get(lookups.misses, 0) for counters, lookups in counted_caches)
    gets = sum(counters.get(lookups.gets, 0) for counters, lookups in counted_caches)
    if not stores or (caches and not misses):
        return None, ""
    share = f"{misses / gets:.0%} of the gets miss the cache" if gets else "the stack uses no cache"
    return stores[0], f"{share}, so requests wait for the store"


def apply_service_rules(
    rules: Callable[[Diagnosis], Iterable[ServiceRule]], *roles: Role
) -> BottleneckRule:
    """Return a rule that applies the services' own rules, and returns the first finding. Instances at
    the back of the stack come first.
    """

    def find_service_bottleneck(context: ReadingContext) -> Bottleneck | None:
        for instance in context.instances_with_role(*roles) if roles else context.instances:
            for rule in rules(context.find_diagnosis(instance)):
                if own_finding := rule(context.build_instance_reading(instance)):
                    return _build_bottleneck(
                        instance, own_finding.resource, own_finding.evidence, own_finding.confidence
                    )
        return None

    return find_service_bottleneck


def check_backlog(context: ReadingContext) -> Bottleneck | None:
    """Report a full queue of new connections that no earlier rule explains."""
    for instance in context.instances:
        if instance.backlog and instance.max_waiting >= FULL_FRACTION * instance.backlog:
            dropped_connections = (
                context.hosts[instance.host].listen_drops if instance.host in context.hosts else 0
            )
            return _build_bottleneck(
                instance,
                Resource.CONNECTIONS,
                f"{instance.max_waiting} connections waited at its socket, with a backlog of"
                f" {instance.backlog}, and the kernel dropped {dropped_connections}: raise backlog and"
                " net.core.somaxconn",
                INFERRED,
            )
    return None


BOTTLENECK_RULES: tuple[BottleneckRule, ...] = (
    check_generator,
    check_wrong_answers,
    check_refused_clients,
    check_open_files,
    apply_service_rules(lambda service: service.refusal_rules),  # refused requests
    check_local_ports,
    check_memory,
    check_network,
    check_cpu,
    check_busy_threads,
    apply_service_rules(
        lambda service: service.worker_rules, Role.DATABASE
    ),  # a database reports its own wait events
    check_awaited_disk,
    check_store,
    check_crowded_cpus,
    apply_service_rules(
        lambda service: service.worker_rules, *OTHER_ROLES
    ),  # all workers are busy and requests wait
    apply_service_rules(
        lambda service: service.cache_rules
    ),  # a cache evicts keys that are requested again
    check_backlog,
    check_heavily_used_cpus,
    check_disk,
    apply_service_rules(lambda service: service.minor_rules),
)


def _list_complaining_instances(
    context: ReadingContext, subject: str
) -> Iterable[InstanceActivity]:
    if context.is_mostly_errors:
        yield from (
            instance for instance in context.instances if instance.log_complaints.get(subject)
        )


def _build_bottleneck(
    instance: InstanceActivity, resource: Resource, evidence: str, confidence: float
) -> Bottleneck:
    return Bottleneck(
        instance.tier, instance.service, instance.host, resource, evidence, confidence
    )
