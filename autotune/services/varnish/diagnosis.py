"""Counters and rules of Varnish."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.services.diagnosis import (
    INFERRED,
    MEASURED,
    REPORTED,
    Diagnosis,
    InstanceReading,
    LookupCounters,
    Resource,
    ResourceShortage,
    build_command_query,
    build_counter_rule,
)
from autotune.services.varnish.service import UNIT_NAME, build_counters_command, parse_counters

LEVEL_COUNTERS = frozenset(("MAIN.threads", "MAIN.thread_queue_len", "MAIN.n_object"))
TOTAL_COUNTERS = frozenset(
    f"MAIN.{name}"
    for name in (
        "sess_dropped",
        "sess_queued",
        "threads_limited",
        "threads_failed",
        "fetch_no_thread",
        "n_lru_nuked",
        "cache_hit",
        "cache_miss",
        "cache_hitpass",
        "cache_hitmiss",
        "backend_busy",
        "backend_fail",
        "backend_unhealthy",
        "client_req",
    )
)


def _select_counters(output: str) -> Mapping[str, float]:
    return {
        name: value
        for name, value in parse_counters(output).items()
        if name in LEVEL_COUNTERS | TOTAL_COUNTERS
    }


def _detect_exhausted_threads(reading: InstanceReading) -> ResourceShortage | None:
    """Return a shortage if Varnish lacked threads, so that requests waited or were dropped."""

    def get_count(counter_name: str) -> int:
        return round(reading.activity.counters.get(f"MAIN.{counter_name}", 0))

    lost_requests = get_count("sess_dropped") + get_count("fetch_no_thread")
    if get_count("threads_failed"):
        failure_text = (
            f"{get_count('threads_failed')} threads could not be created: the host lacks memory"
        )
        return ResourceShortage(Resource.MEMORY, failure_text, REPORTED)
    if not (get_count("threads_limited") and (lost_requests or get_count("sess_queued"))):
        return None
    evidence = (
        f"{reading.get_setting('thread_pools')} pools of "
        f"{reading.get_setting('thread_pool_max')} threads were"
        f" exhausted {get_count('threads_limited')} times, {get_count('sess_queued')}"
        f" requests queued, {lost_requests} dropped: raise thread_pool_max or thread_pools"
    )
    return ResourceShortage(Resource.WORKERS, evidence, REPORTED if lost_requests else MEASURED)


def _detect_small_cache(reading: InstanceReading) -> ResourceShortage | None:
    """Return a shortage if Varnish evicts objects and too many requests miss the cache."""
    counters = reading.activity.counters
    eviction_count = counters.get("MAIN.n_lru_nuked", 0)
    miss_count = counters.get("MAIN.cache_miss", 0)
    lookup_count = miss_count + counters.get("MAIN.cache_hit", 0)
    if not eviction_count or miss_count <= 0.1 * lookup_count:
        return None
    evidence = (
        f"{eviction_count:.0f} objects were evicted from {reading.get_setting('storage')} MB of"
        f" storage, and {miss_count / lookup_count:.0%} of {lookup_count:.0f} requests missed: increase"
        " the storage size"
    )
    return ResourceShortage(Resource.CACHE, evidence, INFERRED)


DIAGNOSIS = Diagnosis(
    counter_query=build_command_query(build_command=build_counters_command, level_names=LEVEL_COUNTERS,
                                counter_names=LEVEL_COUNTERS | TOTAL_COUNTERS,
                                parse_counters=_select_counters),
    find_log=lambda _: UNIT_NAME,
    lookup_counters=LookupCounters("MAIN.client_req", "MAIN.cache_hit", "MAIN.cache_miss",
                                   "MAIN.n_lru_nuked", "storage"),
    recommended_changes={
        Resource.WORKERS: ("thread_pool_max+", "thread_pools+", "thread_pool_min+"),
        Resource.CONNECTIONS: ("listen_depth+", "thread_pool_max+", "backend_idle_timeout+"),
        Resource.CACHE: ("storage+",),
        Resource.MEMORY: ("storage-", "thread_pool_max-", "workspace_client-", "workspace_backend-"),
        Resource.HANDSHAKES: ("timeout_idle+",),
        Resource.UPSTREAM_HANDSHAKES: ("backend_idle_timeout+",),
    },
    # The VCL limits the connections to a backend; fetches beyond the limit fail.
    refusal_rules=(_detect_exhausted_threads, build_counter_rule("MAIN.backend_busy",
        "fetches reached a backend's limit: raise `.max_connections` in its VCL", Resource.CONNECTIONS)),
    worker_rules=(_detect_exhausted_threads,),
    cache_rules=(_detect_small_cache,),
)  # fmt: skip
