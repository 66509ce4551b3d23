"""OPcache counters, and rules for a cache that is too small."""

from __future__ import annotations

from autotune.services.diagnosis import (
    INFERRED,
    TOLD,
    Diagnosis,
    Finding,
    PartReading,
    Resource,
    by_command,
    evident,
)
from autotune.services.php_ini.service import asking

MISSES = 100  # per reading; fewer are first loads of scripts
SHARE = 0.05  # of the requested scripts
ROOM = 0.05  # of its memory; with less, the next script may not fit
SUMS = ("hits", "misses", "oom_restarts", "hash_restarts")
LEVELS = ("cache_full", "free_memory", "used_memory", "wasted_memory", "num_cached_keys",
          "max_cached_keys", "strings_free_memory", "strings_buffer_size")  # fmt: skip


def _full(part: PartReading) -> Finding | None:
    """Return a finding if OPcache recompiles scripts because it has no space for them."""
    counted = {name: part.activity.counters.get(name, 0.0) for name in (*SUMS, *LEVELS)}
    asked, most = counted["hits"] + counted["misses"], counted["max_cached_keys"]
    if counted["misses"] < max(MISSES, SHARE * asked):
        return None
    share = f"{counted['misses'] / asked:.0%} of the scripts were recompiled"
    if counted["hash_restarts"] or (most and counted["num_cached_keys"] >= most):
        why = f"the table of {most:.0f} scripts is full: raise opcache_max_accelerated_files"
        return Finding(Resource.CACHE, f"{share}: {why}", TOLD)
    free, wasted, used = (counted[f"{kind}_memory"] / 2**20 for kind in ("free", "wasted", "used"))
    # OPcache reports itself full only if not even the smallest script fits.
    has_room = free > ROOM * (free + wasted + used) or not used
    if has_room and not counted["oom_restarts"] and not counted["cache_full"]:
        return None
    why = (
        f"{free:.1f} MB are free, {wasted:.1f} MB wasted, and it restarted"
        f" {counted['oom_restarts']:.0f} times for lack of memory: raise opcache_memory_consumption"
    )
    return Finding(Resource.CACHE, f"{share}: {why}", TOLD)


# Each process keeps strings that do not fit.
STRINGS = evident(Resource.CACHE, INFERRED,
    lambda c: c["strings_free_memory"] < 0.01 * c["strings_buffer_size"],
    lambda c: f"its {c['strings_buffer_size'] / 2**20:.0f} MB for interned strings are full:"
              " raise opcache_interned_strings_buffer")  # fmt: skip

DIAGNOSIS = Diagnosis(
    counters=by_command(
        command=asking, names=frozenset((*SUMS, *LEVELS)), levels=frozenset(LEVELS)
    ),
    log=None,
    moves={
        Resource.CPU: ("opcache_enable=True", "opcache_memory_consumption+",
                       "opcache_max_accelerated_files+", "realpath_cache_size+", "realpath_cache_ttl+"),
        Resource.CACHE: ("opcache_memory_consumption+", "opcache_max_accelerated_files+",
                         "opcache_interned_strings_buffer+"),
        Resource.MEMORY: ("opcache_memory_consumption-", "opcache_jit_buffer_size-"),
    },
    # A full OPcache rejects scripts. This rule precedes the one for full CPUs, which are busy
    # compiling these scripts.
    refusal_rules=(_full,),
    cache_rules=(STRINGS,),
)  # fmt: skip
