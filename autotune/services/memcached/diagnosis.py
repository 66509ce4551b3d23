"""What memcached counts, says and runs out of."""

from __future__ import annotations

from autotune.services.base import Argv, Site
from autotune.services.diagnosis import (
    INFERRED,
    ClientLimit,
    CounterQuery,
    Diagnosis,
    Finding,
    Lookups,
    PartReading,
    Resource,
)

LEVELS = frozenset(
    ("curr_connections", "max_connections", "accepting_conns", "bytes", "limit_maxbytes", "threads")
)
COUNTS = frozenset(
    (
        "listen_disabled_num", "rejected_connections", "get_hits", "get_misses", "cmd_get",
        "cmd_set", "evictions", "conn_yields", "rusage_user", "rusage_system",
    )
)  # fmt: skip


def _command(site: Site) -> Argv:
    return (site.programs["memcached-tool"], str(site.listen), "stats")


def _log(site: Site) -> str | None:
    return site.place(None, "memcached.service")


def _evictions(part: PartReading) -> Finding | None:
    counters = part.activity.counters
    gets, misses = counters.get("cmd_get", 0), counters.get("get_misses", 0)
    evicted = counters.get("evictions", 0)
    if not gets or not evicted or misses / gets <= 0.25:
        return None
    return Finding(
        Resource.CACHE,
        f"{misses / gets:.0%} of {gets:.0f} gets missed and {evicted:.0f} items were"
        f" evicted from {part.setting('memory')} MB: raise memory",
        INFERRED,
    )


DIAGNOSIS = Diagnosis(
    counters=CounterQuery(
        question=b"stats\r\n",
        complete=lambda data: data.endswith(b"END\r\n") or data.startswith(b"ERROR"),
        command=_command,
        names=LEVELS | COUNTS,
        levels=LEVELS,
    ),
    log=_log,
    moves={
        Resource.WORKERS: ("threads+",),
        Resource.CONNECTIONS: ("connections+", "backlog+"),
        Resource.CACHE: ("memory+",),
    },
    threads="threads",
    clients=ClientLimit("connections", "rejected_connections", "listen_disabled_num", queues=True),
    lookups=Lookups("cmd_get", "get_hits", "get_misses"),
    cache_rules=(_evictions,),
)
