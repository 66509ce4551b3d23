"""Find causes in another tier: the shortage that makes workers wait, and the gain from removing it.

If workers wait for a store, all of them are busy, and more workers help. If requests call the store
only because a small cache evicted the data, more memory for the cache helps several times as much. The
diagnosis rules alone do not reveal the cache as the cause, because they ignore the size of a shortage.

The gain follows from Little's law: a pool serves ``workers / time`` requests/s. Without the wait, a
request occupies its worker only for its CPU time. CPUs limit the gain, because all requests share the
CPUs.
"""

from __future__ import annotations

from dataclasses import replace

from autotune.diagnose.bottleneck import Bottleneck, RelatedShortage
from autotune.diagnose.connection_reuse import add_unreused_connections
from autotune.diagnose.context import ReadingContext, compute_php_seconds
from autotune.services.base import Role
from autotune.services.diagnosis import INFERRED, InstanceActivity, LookupCounters, Resource

DEPENDENCY_ROLES = (Role.STORE, Role.DATABASE)
# Resources of a tier that seem exhausted while its requests wait for another tier.
WAITING_RESOURCES = (Resource.WORKERS, Resource.STORE, Resource.CPU)
# Resources that new connections between tiers use up.
CONNECTION_RESOURCES = (Resource.CPU, Resource.CONNECTIONS)
DATABASE_WAITS = (Resource.DISK, Resource.CACHE, Resource.LOCKS, Resource.STORE)
# Waits that a database counts under any load, even if no request notices them.
COUNTED_WAITS = (Resource.DISK, Resource.CACHE, Resource.LOCKS)
MIN_GAIN = 1.25  # minimum gain with which a cause replaces the observed shortage
MIN_MISS_SHARE = 0.25  # a cache counts as too small if at least this share of lookups miss
# a cache also counts as too small at this number of misses per request
MIN_MISSES_PER_REQUEST = 0.1
MIN_WORK_SHARE = 0.1  # minimum share of a request's time that is not spent waiting
MAX_GAIN = 10.0  # maximum gain that a single reading can show


def find_cause(context: ReadingContext, shortage: Bottleneck) -> Bottleneck:
    """Return the cause of ``shortage`` with its gain. If no cause is large enough, return ``shortage``
    with related shortages.
    """
    if shortage.resource in CONNECTION_RESOURCES:
        shortage = add_unreused_connections(context, shortage)
    if shortage.resource not in WAITING_RESOURCES:
        return _estimate_database_gain(context, shortage)
    if shortage.resource is Resource.CPU:
        shortage = replace(
            shortage, related=(*shortage.related, *_list_database_shortages(context))
        )
    for cache in _sum_caches(context):
        if cache.service == shortage.service and cache.tier == shortage.tier:
            continue
        if eviction := _find_evicting_cache(context, cache):
            lookup_counters, misses_per_request = eviction
            gain = _estimate_gain(context, min(1.0, misses_per_request))
            cause = RelatedShortage(cache.tier, cache.service, Resource.CACHE)
            if gain < MIN_GAIN:
                return replace(shortage, related=(*shortage.related, cause))
            return _build_cache_cause(shortage, cache, lookup_counters, gain)
    return _estimate_database_gain(context, shortage)


def _list_database_shortages(context: ReadingContext) -> tuple[RelatedShortage, ...]:
    """Return the shortages of databases that may explain a lack of CPU.

    For example, reading pages from the kernel's page cache takes CPU time.
    """
    shortages = dict.fromkeys(
        RelatedShortage(database.tier, database.service, shortage.resource)
        for database in context.instances_with_role(Role.DATABASE)
        for rule in context.find_diagnosis(database).worker_rules
        if (shortage := rule(context.build_instance_reading(database)))
    )
    return tuple(shortages)


def _sum_caches(context: ReadingContext) -> list[InstanceActivity]:
    """Return the caches with the counters of all hosts of their tier, because requests miss on any of
    the hosts.
    """
    caches: dict[tuple[str, str], InstanceActivity] = {}
    for cache in context.instances_with_role(Role.CACHE):
        first_cache = caches.setdefault((cache.tier, cache.service), cache)
        if first_cache is not cache:
            counters = {
                name: first_cache.counters.get(name, 0.0) + cache.counters.get(name, 0.0)
                for name in (*first_cache.counters, *cache.counters)
            }
            caches[cache.tier, cache.service] = replace(first_cache, counters=counters)
    return list(caches.values())


def _find_evicting_cache(
    context: ReadingContext, cache: InstanceActivity
) -> tuple[LookupCounters, float] | None:
    """Return a cache's counters and its misses per request if the cache evicts keys that are requested
    again.
    """
    lookups = context.find_diagnosis(cache).lookup_counters
    if lookups is None or not cache.counters.get(lookups.evictions, 0.0):
        return None
    get_count, misses = (cache.counters.get(name, 0.0) for name in (lookups.gets, lookups.misses))
    # The load of a truncated reading is shorter than the reading's seconds.
    requests = max(context.reading.intended - context.reading.error_count, 1)
    if (
        not get_count
        or max(misses / get_count / MIN_MISS_SHARE, misses / requests / MIN_MISSES_PER_REQUEST) < 1
    ):
        return None
    return lookups, misses / requests


def _estimate_gain(context: ReadingContext, waiting_share: float) -> float:
    """Return the factor by which requests/s would rise if ``waiting_share`` of the requests no longer
    waited for a store.
    """
    factor = _compute_pool_gain(context, waiting_share)
    return 1.0 if factor is None else min(factor, _compute_cpu_headroom(context), MAX_GAIN)


def _compute_pool_gain(context: ReadingContext, waiting_share: float) -> float | None:
    """Return the gain of the application's workers alone, as if the CPUs were unlimited; ``None`` if
    unknown.
    """
    php_seconds = compute_php_seconds(context)
    if not php_seconds or context.answered_rate <= 0:
        return None
    pools = context.application_pools
    work_seconds = sum(pool.cpu + (pool.cpu_delay or 0.0) for pool in pools) / context.answered_rate
    wait_seconds = max(0.0, php_seconds - max(work_seconds, MIN_WORK_SHARE * php_seconds))
    return php_seconds / (php_seconds - waiting_share * wait_seconds)


def _compute_cpu_headroom(context: ReadingContext) -> float:
    """Return the factor by which requests/s could rise until a host's CPUs are busy, if no request
    called a store.
    """
    headroom_factors = [MAX_GAIN]
    for host in context.hosts.values():
        saved_cpu = sum(
            instance.cpu
            for instance in context.instances_on(host.name)
            if instance.role in DEPENDENCY_ROLES
        )
        other_busy_share = host.busy_share - saved_cpu / host.cpus
        headroom_factors.append(1.0 / max(other_busy_share, 1.0 / MAX_GAIN))
    return max(1.0, min(headroom_factors))


def _build_cache_cause(
    shortage: Bottleneck,
    cache: InstanceActivity,
    lookup_counters: LookupCounters,
    gain: float,
) -> Bottleneck:
    gets, misses, eviction_count = (
        cache.counters.get(name, 0.0)
        for name in (lookup_counters.gets, lookup_counters.misses, lookup_counters.evictions)
    )
    symptom = f"{shortage.tier}.{shortage.service} waits for the misses"
    advice = (
        f"raise {lookup_counters.size_parameter}"
        if lookup_counters.size_parameter
        else "enlarge the cache"
    )
    return Bottleneck(
        cache.tier,
        cache.service,
        cache.host,
        Resource.CACHE,
        f"{misses / gets:.0%} of {gets:.0f} lookups missed, and {eviction_count:.0f} items were evicted."
        f" {symptom}: without them, the stack would serve about {gain:.1f} × as many requests: {advice}",
        min(INFERRED, shortage.confidence),
        gain=round(gain, 2),
        related=(
            RelatedShortage(shortage.tier, shortage.service, shortage.resource),
            *shortage.related,
        ),
    )


def is_negligible(context: ReadingContext, cause: Bottleneck) -> bool:
    """True if ``cause`` is a wait in a database, but the application is known to spend little time
    waiting.
    """
    if not _is_database(context, cause) or cause.resource not in COUNTED_WAITS:
        return False
    gain = _compute_pool_gain(context, 1.0)
    return gain is not None and gain < MIN_GAIN


def _is_database(context: ReadingContext, shortage: Bottleneck) -> bool:
    roles = {(i.tier, i.service): i.role for i in context.instances}
    return roles.get((shortage.tier, shortage.service)) is Role.DATABASE


def _estimate_database_gain(context: ReadingContext, shortage: Bottleneck) -> Bottleneck:
    """If ``shortage`` is a slow database, add the gain and the pools that wait for the database.

    Any other shortage is returned unchanged.
    """
    if not _is_database(context, shortage) or shortage.resource not in DATABASE_WAITS:
        return shortage
    gain = _estimate_gain(context, 1.0)
    pools = {(pool.tier, pool.service) for pool in context.application_pools}
    related_shortages = tuple(RelatedShortage(*pool, Resource.WORKERS) for pool in sorted(pools))
    if gain < MIN_GAIN:
        return replace(shortage, related=related_shortages)
    gain_text = f"; without this wait, the stack would serve up to {gain:.1f} × as many requests"
    return replace(
        shortage,
        evidence=shortage.evidence + gain_text,
        gain=round(gain, 2),
        related=related_shortages,
    )
