"""PostgreSQL as distributions have it: where its files are, how it is validated and queried, and which
counters show what it runs out of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from posixpath import dirname
from typing import ClassVar

from autotune.services.adoption import Layout, Layouts
from autotune.services.base import Argv, Programs, Readback, Role, Service, Settings, Site, Value
from autotune.services.diagnosis import (
    INFERRED,
    MEASURED,
    ClientLimit,
    Diagnosis,
    Resource,
    by_command,
    evident,
)
from autotune.services.postgresql.parameters import NEEDS, PARAMETERS, PGTUNE, UNITS, meaning
from autotune.strict import split_lines

VERSIONS = ("18", "17", "16", "15", "14")
SOCKETS = "/var/run/postgresql"
# Debian names its clusters. Elsewhere there is one, or with packages of postgresql.org one per version.
LAYOUTS = Layouts((
    Layout("Debian, Ubuntu", "postgresql@{version}-{name}.service",
           "/etc/postgresql/{version}/{name}/postgresql.conf", "/usr/lib/postgresql/{version}/bin"),
    Layout("postgresql.org", "postgresql-{version}.service",
           "/var/lib/pgsql/{version}/data/postgresql.conf", "/usr/pgsql-{version}/bin"),
    Layout("Fedora, RHEL, SUSE", "postgresql.service", "/var/lib/pgsql/data/postgresql.conf", "/usr/bin"),
))  # fmt: skip
_BIN = re.compile(r"/postgresql/([0-9.]+)/bin/")
# Root switches to the account that owns the data; other accounts stay, and need a role of their name.
_AS_OWNER = """
[ "$(id -u)" != 0 ] || set -- setpriv --reuid=postgres --regid=postgres --init-groups "$@"
cd / && exec "$@"
"""
# `-C` reads every file, refuses what is wrong in them, and starts nothing. It checks all of a host's
# own files together, or else the one file that autotune writes.
_CHECK = 'exec "$1" -C max_connections -D "$2" ${3+-c config_file="$3"}'
_BY_NAME = {parameter.name: parameter for parameter in PARAMETERS}
# Values in effect and in files: they differ where a change waits for a restart (`pending_restart`).
_SETTINGS = f"""
SELECT s.name, s.setting, coalesce(s.unit, ''), coalesce(f.setting, '') FROM pg_settings s
LEFT JOIN pg_file_settings f ON f.name = s.name AND f.applied WHERE s.name IN {tuple(_BY_NAME)}
"""  # noqa: S608  # of names that are here
SUMS = ("blks_hit", "blks_read", "temp_files", "temp_bytes", "deadlocks")
LEVELS = {"active": "state = 'active'", "lock_waits": "wait_event_type = 'Lock'"}
# The counters of all databases together, a name and its number a line.
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


def cluster(site: Site) -> Layout:
    """The cluster of the host's own files, or else Debian's first one, of the newest version there."""
    paths = [file.path for file in site.own.files] if site.own else []
    program = _BIN.search(site.programs.get("postgres", ""))
    newest = LAYOUTS[0].of(program[1] if program else VERSIONS[0], "main")
    return next(filter(None, map(LAYOUTS.having, paths)), newest)


def _asking(site: Site, sql: str) -> Argv:
    """A command that prints the rows of ``sql``, to be run on the host: columns are split by `|`."""
    psql = (f"{cluster(site).programs}/psql", "-XAtqw", "-h", site.own_place or SOCKETS,
            "-p", str(site.listen.port), "-d", "postgres", "-c", sql)  # fmt: skip
    return ("sh", "-c", _AS_OWNER, "sh", *psql)


def in_effect(text: str) -> Settings:
    """What `pg_settings` shows, in the units of parameters."""
    values: dict[str, Value] = {}
    for row in split_lines(text):
        match row.split("|"):
            case [name, setting, unit, in_file] if name in _BY_NAME and unit in UNITS:
                # `pg_settings` shows the size that -1 comes to.
                worked_out = name == "wal_buffers" and in_file in ("", "-1")
                value = meaning(_BY_NAME[name], "-1" if worked_out else setting, unit)
                values |= {} if value is None else {name: value}
    return values


class Postgresql(Service):
    """A cluster, reconfigured by a file of its own in `conf.d` or in the files that are there; its
    data directory, with what `ALTER SYSTEM` wrote there, is never touched."""

    name = "postgresql"
    title = "PostgreSQL"
    deployment = "postgresql"
    role = Role.DATABASE
    port = 5432
    keeps_data = True
    template = "postgresql/autotune.conf.j2"
    packages = ("postgresql",)
    programs: ClassVar[Programs] = {"postgres": (
        *(f"{layout.of(version).programs}/postgres" for layout in LAYOUTS[:2] for version in VERSIONS),
        f"{LAYOUTS[2].programs}/postgres",
    )}  # fmt: skip
    parameters = PARAMETERS
    needs = NEEDS
    reload_signal = "HUP"
    reload_keeps_processes = True
    at_most = (
        ("min_wal_size", "max_wal_size"),
        ("max_parallel_workers_per_gather", "max_parallel_workers"),
        ("max_parallel_workers", "max_worker_processes"),
    )

    def config_path(self, site: Site) -> str:
        own = site.own.main if site.own else ""
        return own or f"{dirname(cluster(site).main)}/conf.d/zz-autotune.conf"

    def unit(self, site: Site) -> str:
        return cluster(site).unit

    def validate(self, site: Site, files: Mapping[str, bytes]) -> Argv:
        place, new = cluster(site), () if site.own else (self.config_path(site),)
        return ("sh", "-c", _CHECK, "sh", f"{place.programs}/postgres", dirname(place.main), *new)

    def advice(self, facts: Mapping[str, float], running: Settings) -> Settings:
        """PGTune's rules for a web application on SSDs and Linux, as published in its source
        (src/features/configuration/configurationSlice.js), for version 15 and later. A
        ``max_connections`` that the user has set is PGTune's input. What PGTune advises for every host
        alike is the parameters' ``recommended``."""
        total, cpus = int(facts["memory"]) // 1024, int(facts["cpus"])  # it counts in kB
        shared, connections = total // 4, int(running.get("max_connections", 100))
        if connections == 100:  # the stock value is nobody's choice
            connections = 200
        workers = cpus if cpus >= 4 else 8  # max_worker_processes where PGTune advises none
        values: dict[str, Value] = {p.name: p.recommended for p in PARAMETERS
            if p.source == PGTUNE and isinstance(p.recommended, int | float)}  # fmt: skip
        values |= {
            "max_connections": connections,
            "shared_buffers": shared // 1024,
            "effective_cache_size": total * 3 // 4 // 1024,
            "maintenance_work_mem": min(total // 16 // 1024, 8192),
            "work_mem": max((total - shared) // ((connections + workers) * 3), 4096),
            # PGTune takes 3 % of shared_buffers, but 16 MB above 14 MB; -1 comes to about 3 %, 1/32.
            "wal_buffers": 16 if 3 * shared // 100 > 14 * 1024 else -1,
            "wal_compression": "lz4",
            "jit": False,
        }
        if cpus >= 4:
            values |= {"max_worker_processes": cpus, "max_parallel_workers": cpus,
                       "max_parallel_workers_per_gather": min(4, -(-cpus // 2))}  # fmt: skip
        if cpus >= 16:
            values["autovacuum_max_workers"] = 5 if cpus >= 32 else 4
        return values

    def effective(self, site: Site) -> tuple[Readback, ...]:
        return (Readback(_asking(site, _SETTINGS), in_effect),)


SERVICES = (Postgresql(),)


def _log(site: Site) -> str:
    place = cluster(site)
    own = f"/var/log/postgresql/postgresql-{place.version}-{place.name}.log"
    return own if place.name else place.unit


def _counting(site: Site) -> Argv:
    newer = int(cluster(site).version.partition(".")[0] or 0) >= 17
    return _asking(site, _COUNT.replace("@", _CHECKPOINTS[newer]))


# What PostgreSQL runs out of: the first rule that holds counts.
RULES = (
    # Half of the sessions that work wait for each other.
    evident(Resource.LOCKS, MEASURED, lambda c: c["lock_waits"] >= max(2, 0.5 * c["active"]), lambda c: (
        f"{c['lock_waits']:.0f} of {c['active']:.0f} sessions at work waited for locks of others, with"
        f" {c['deadlocks']:.0f} deadlocks: shorten transactions that change the same rows")),
    # Sorts go to files.
    evident(Resource.DISK, INFERRED, lambda c: c["temp_files"] and c["temp_bytes"] >= 2**20, lambda c: (
        f"its queries wrote {c['temp_files']:.0f} temporary files, {c['temp_bytes'] / 2**20:.0f} MB:"
        " raise work_mem")),
    # Tables do not fit into memory: a tenth of the pages is read anew, and so many that there is load.
    evident(Resource.CACHE, INFERRED, lambda c: c["blks_read"] > max(999, c["blks_hit"] / 9), lambda c: (
        f"{c['blks_hit'] / (c['blks_hit'] + c['blks_read']):.0%} of the pages it needed were in its"
        f" buffers, {c['blks_read']:.0f} were read: raise shared_buffers")),
    evident(Resource.DISK, INFERRED, lambda c: c["checkpoints_req"] > 0, lambda c: (
        f"its WAL was full {c['checkpoints_req']:.0f} times, with a checkpoint before its time:"
        " raise max_wal_size")),
)  # fmt: skip
DIAGNOSIS = Diagnosis(
    # Its port answers nobody without an account.
    counters=by_command(command=_counting, names=frozenset((*SUMS, *LEVELS, "checkpoints_req")),
                        levels=frozenset(LEVELS), every=2.0),
    log=_log,
    complaints={"too_many_clients": re.compile(
        r"too many clients already|connection slots are reserved")},
    moves={
        Resource.CPU: ("work_mem+", "shared_buffers+"),
        Resource.CONNECTIONS: ("max_connections+",),
        Resource.CACHE: ("shared_buffers+",),
        Resource.DISK: ("work_mem+", "max_wal_size+", "checkpoint_timeout+"),
        Resource.STORE: ("shared_buffers+", "work_mem+"),
        Resource.MEMORY: ("max_connections-", "work_mem-", "shared_buffers-"),
    },
    # Refused clients show only in its log.
    clients=ClientLimit("max_connections", "too_many_clients",
                        instead=", or let workers share some (a pool)"),
    worker_rules=RULES,
)  # fmt: skip
