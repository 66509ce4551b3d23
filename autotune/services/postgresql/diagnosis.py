"""What PostgreSQL counts, says and runs out of."""

from __future__ import annotations

import re

from autotune.services.base import Argv, Site
from autotune.services.diagnosis import (
    INFERRED,
    MEASURED,
    ClientLimit,
    Counts,
    Diagnosis,
    Resource,
    by_command,
    evident,
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


def _hits(counts: Counts) -> float:
    return counts["blks_hit"] / (counts["blks_hit"] + counts["blks_read"])


def _log(site: Site) -> str:
    cluster = Cluster.of(site)
    own = f"/var/log/postgresql/postgresql-{cluster.version}-{cluster.name}.log"
    return own if cluster.name else cluster.unit


# What it runs out of, the first of these.
RULES = (
    # Half of the sessions that work wait for each other.
    evident(Resource.LOCKS, MEASURED, lambda c: c["lock_waits"] >= max(2, 0.5 * c["active"]), lambda c: (
        f"{c['lock_waits']:.0f} of {c['active']:.0f} sessions at work waited for locks of others, with"
        f" {c['deadlocks']:.0f} deadlocks: shorten transactions that change the same rows")),
    # Sorts go to files.
    evident(Resource.DISK, INFERRED, lambda c: c["temp_files"] and c["temp_bytes"] >= 2**20, lambda c: (
        f"its queries wrote {c['temp_files']:.0f} temporary files, {c['temp_bytes'] / 2**20:.0f} MB:"
        " raise work_mem")),
    # Tables do not fit into memory.
    evident(Resource.CACHE, INFERRED, lambda c: c["blks_read"] >= PAGES and _hits(c) < HITS, lambda c: (
        f"{_hits(c):.0%} of the pages it needed were in its buffers, {c['blks_read']:.0f} were read:"
        " raise shared_buffers")),
    evident(Resource.DISK, INFERRED, lambda c: c["checkpoints_req"] > 0, lambda c: (
        f"its WAL was full {c['checkpoints_req']:.0f} times, with a checkpoint before its time:"
        " raise max_wal_size")),
)  # fmt: skip


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
    # It says so in its log alone.
    clients=ClientLimit(
        "max_connections", "too_many_clients", instead=", or let workers share some (a pool)"
    ),
    worker_rules=RULES,
)
