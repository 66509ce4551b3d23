"""What PostgreSQL counts, says and runs out of."""

from __future__ import annotations

import re

from autotune.services.base import Argv, Site
from autotune.services.diagnosis import (
    INFERRED,
    MEASURED,
    TOLD,
    Diagnosis,
    Finding,
    PartReading,
    Resource,
    by_command,
)
from autotune.services.postgresql.service import Cluster, asking

HITS = 0.90  # of the pages that are needed are in shared_buffers, where they are large enough
PAGES = 1000  # read beside them: fewer are no load
SUMS = ("blks_hit", "blks_read", "temp_files", "temp_bytes", "deadlocks")
LEVELS = {"active": "state = 'active'", "lock_waits": "wait_event_type = 'Lock'"}
# Those of all databases together, a name and its number a line.
_COUNT = f"""
SELECT key || ' ' || value FROM
  (SELECT {", ".join(f"sum({name}) AS {name}" for name in SUMS)} FROM pg_stat_database) AS sums,
  (SELECT {", ".join(f"count(*) FILTER (WHERE {test}) AS {name}" for name, test in LEVELS.items())}
   FROM pg_stat_activity WHERE pid <> pg_backend_pid()) AS levels,
  (SELECT @) AS wal,
  json_each_text((to_jsonb(sums) || to_jsonb(levels) || to_jsonb(wal))::json)
"""  # noqa: S608  # of names that are here
_CHECKPOINTS = ("to_jsonb(own) -> 'checkpoints_req' AS checkpoints_req FROM pg_stat_bgwriter AS own",
                "num_requested AS checkpoints_req FROM pg_stat_checkpointer")  # fmt: skip


def _asking(site: Site) -> Argv:
    return asking(site, _COUNT.replace("@", _CHECKPOINTS[Cluster.of(site).major >= 17]))


def _log(site: Site) -> str:
    cluster = Cluster.of(site)
    own = f"/var/log/postgresql/postgresql-{cluster.version}-{cluster.name}.log"
    return own if cluster.name else cluster.unit


def _turned_away(part: PartReading) -> Finding | None:
    """It says so in its log alone."""
    refused = part.activity.complaints.get("too_many_clients", 0)
    why = (
        f"it turned {refused} connections away (“too many clients”), {part.setting('max_connections')}"
        " are its limit: raise max_connections, or have workers share connections (a pool)"
    )
    return Finding(Resource.CONNECTIONS, why, TOLD) if refused else None


def _locks(part: PartReading) -> Finding | None:
    """Half of the sessions that work wait for each other."""
    counted = part.activity.counters
    waiting, active = counted.get("lock_waits", 0.0), counted.get("active", 0.0)
    why = (
        f"{waiting:.0f} of {active:.0f} sessions at work waited for locks of others, with"
        f" {counted.get('deadlocks', 0):.0f} deadlocks: shorten transactions that change the same rows"
    )
    return Finding(Resource.LOCKS, why, MEASURED) if waiting >= max(2, 0.5 * active) else None


def _pages(part: PartReading) -> Finding | None:
    """Tables that do not fit into memory, sorts that go to files, WAL that fills up early."""
    counted = part.activity.counters
    hits, reads = counted.get("blks_hit", 0.0), counted.get("blks_read", 0.0)
    files, early = counted.get("temp_files", 0.0), counted.get("checkpoints_req", 0.0)
    if files and (size := counted["temp_bytes"] / 2**20) >= 1:
        why = f"its queries wrote {files:.0f} temporary files, {size:.0f} MB: raise work_mem"
        return Finding(Resource.DISK, why, INFERRED)
    if reads >= PAGES and hits < HITS * (hits + reads):
        why = (
            f"{hits / (hits + reads):.0%} of the pages it needed were in its buffers, {reads:.0f} were"
            " read: raise shared_buffers"
        )
        return Finding(Resource.CACHE, why, INFERRED)
    why = (
        f"its WAL was full {early:.0f} times, with a checkpoint before its time: raise max_wal_size"
    )
    return Finding(Resource.DISK, why, INFERRED) if early else None


DIAGNOSIS = Diagnosis(
    # Its port takes no questions without an account.
    counters=by_command(
        command=_asking,
        names=frozenset((*SUMS, *LEVELS, "checkpoints_req")),
        levels=frozenset(LEVELS),
        every=2.0,
    ),
    log=_log,
    complaints={
        "too_many_clients": re.compile(r"too many clients already|connection slots are reserved"),
    },
    moves={
        Resource.CONNECTIONS: ("max_connections+",),
        Resource.CACHE: ("shared_buffers+",),
        Resource.DISK: ("work_mem+", "max_wal_size+", "checkpoint_timeout+"),
        Resource.STORE: ("shared_buffers+", "work_mem+"),
        Resource.MEMORY: ("max_connections-", "work_mem-", "shared_buffers-"),
    },
    refusal_rules=(_turned_away,),
    worker_rules=(_locks, _pages),
)
