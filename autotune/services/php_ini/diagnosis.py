"""What OPcache counts, and when it is too small."""

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

MISSES = 100  # in a reading: fewer are scripts that OPcache has not met before
SHARE = 0.05  # of the scripts that were asked for
ROOM = 0.05  # of its memory: with no more left, the next script may not fit
SUMS = ("hits", "misses", "oom_restarts", "hash_restarts")
LEVELS = ("cache_full", "free_memory", "used_memory", "wasted_memory", "num_cached_keys",
          "max_cached_keys", "strings_free_memory", "strings_buffer_size")  # fmt: skip


def _full(part: PartReading) -> Finding | None:
    """It compiles the same scripts again and again: there is no room to keep them."""
    counted = {name: part.activity.counters.get(name, 0.0) for name in (*SUMS, *LEVELS)}
    asked, most = counted["hits"] + counted["misses"], counted["max_cached_keys"]
    if counted["misses"] < max(MISSES, SHARE * asked):
        return None
    share = f"{counted['misses'] / asked:.0%} of the scripts were compiled anew"
    if counted["hash_restarts"] or (most and counted["num_cached_keys"] >= most):
        why = f"its list of {most:.0f} scripts is full: raise opcache_max_accelerated_files"
        return Finding(Resource.CACHE, f"{share}: {why}", TOLD)
    free, wasted, used = (counted[f"{kind}_memory"] / 2**20 for kind in ("free", "wasted", "used"))
    # OPcache calls itself full only when not even the smallest script fits in.
    has_room = free > ROOM * (free + wasted + used) or not used
    if has_room and not counted["oom_restarts"] and not counted["cache_full"]:
        return None
    why = (
        f"{free:.1f} MB of its memory are free, {wasted:.1f} MB wasted, and it began anew"
        f" {counted['oom_restarts']:.0f} times for lack of it: raise opcache_memory_consumption"
    )
    return Finding(Resource.CACHE, f"{share}: {why}", TOLD)


# Strings that do not fit in are kept by each process itself.
STRINGS = evident(Resource.CACHE, INFERRED,
    lambda c: c["strings_free_memory"] < 0.01 * c["strings_buffer_size"],
    lambda c: f"its {c['strings_buffer_size'] / 2**20:.0f} MB for strings of scripts are full:"
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
    # A full OPcache turns scripts away. This rule comes before the one that calls the CPUs full, which
    # are busy compiling these scripts.
    refusal_rules=(_full,),
    cache_rules=(STRINGS,),
)  # fmt: skip
