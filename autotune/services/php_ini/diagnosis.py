"""Counters of OPcache, and rules that detect a cache that is too small."""

from __future__ import annotations

from autotune.services.diagnosis import (
    POSSIBLE,
    REPORTED,
    Diagnosis,
    InstanceReading,
    Resource,
    ResourceShortage,
    build_command_query,
    build_evidence_rule,
)
from autotune.services.php_ini.service import build_status_command

MIN_MISSES = 100  # per reading; fewer misses come from scripts that are loaded for the first time
MIN_MISS_SHARE = 0.05  # share of requested scripts that are not in the cache
MIN_FREE_SHARE = 0.05  # share of OPcache's memory; if less is free, the next script may not fit
TOTAL_COUNTERS = ("hits", "misses", "oom_restarts", "hash_restarts")
LEVEL_COUNTERS = ("cache_full", "free_memory", "used_memory", "wasted_memory", "num_cached_keys",
          "max_cached_keys", "strings_free_memory", "strings_buffer_size")  # fmt: skip


def _detect_full_cache(reading: InstanceReading) -> ResourceShortage | None:
    """Return a shortage if OPcache recompiles scripts for which it has no space."""
    counters = {
        name: reading.activity.counters.get(name, 0.0)
        for name in (*TOTAL_COUNTERS, *LEVEL_COUNTERS)
    }
    lookup_count, max_keys = counters["hits"] + counters["misses"], counters["max_cached_keys"]
    if counters["misses"] < max(MIN_MISSES, MIN_MISS_SHARE * lookup_count):
        return None
    recompiled_text = f"{counters['misses'] / lookup_count:.0%} of the scripts were recompiled"
    if counters["hash_restarts"] or (max_keys and counters["num_cached_keys"] >= max_keys):
        cause_text = (
            f"the table of {max_keys:.0f} scripts is full: raise opcache_max_accelerated_files"
        )
        return ResourceShortage(Resource.CACHE, f"{recompiled_text}: {cause_text}", REPORTED)
    free, wasted, used = (counters[f"{kind}_memory"] / 2**20 for kind in ("free", "wasted", "used"))
    # OPcache reports that it is full only if not even the smallest script fits.
    has_free_memory = free > MIN_FREE_SHARE * (free + wasted + used) or not used
    if has_free_memory and not counters["oom_restarts"] and not counters["cache_full"]:
        return None
    cause_text = (
        f"{free:.1f} MB are free, {wasted:.1f} MB wasted, and it restarted"
        f" {counters['oom_restarts']:.0f} times for lack of memory: raise opcache_memory_consumption"
    )
    return ResourceShortage(Resource.CACHE, f"{recompiled_text}: {cause_text}", REPORTED)


# Strings that do not fit into the buffer are copied into each process. Large applications fill the
# default buffer under any load, so a full buffer alone hardly explains late responses.
STRING_BUFFER_RULE = build_evidence_rule(
    Resource.CACHE,
    POSSIBLE,
    lambda c: c["strings_free_memory"] < 0.01 * c["strings_buffer_size"],
    lambda c: (
        f"its {c['strings_buffer_size'] / 2**20:.0f} MB for interned strings are full:"
        " raise opcache_interned_strings_buffer"
    ),
)

DIAGNOSIS = Diagnosis(
    counter_query=build_command_query(
        build_command=build_status_command,
        counter_names=frozenset((*TOTAL_COUNTERS, *LEVEL_COUNTERS)),
        level_names=frozenset(LEVEL_COUNTERS),
    ),
    find_log=None,
    recommended_changes={
        Resource.CPU: (
            "opcache_enable=True",
            "opcache_memory_consumption+",
            "opcache_max_accelerated_files+",
            "realpath_cache_size+",
            "realpath_cache_ttl+",
        ),
        Resource.CACHE: (
            "opcache_memory_consumption+",
            "opcache_max_accelerated_files+",
            "opcache_interned_strings_buffer+",
        ),
        Resource.MEMORY: ("opcache_memory_consumption-", "opcache_jit_buffer_size-"),
    },
    # A full OPcache rejects scripts. This rule precedes the rule about busy CPUs, because compiling
    # rejected scripts keeps the CPUs busy.
    refusal_rules=(_detect_full_cache,),
    minor_rules=(STRING_BUFFER_RULE,),
)
