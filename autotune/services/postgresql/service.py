"""The distributions' PostgreSQL: its files, validation, queries and diagnosis."""

from __future__ import annotations

import re
from collections.abc import Mapping
from posixpath import dirname
from typing import ClassVar

from autotune.services.adoption import DistributionLayout, DistributionLayouts
from autotune.services.base import (
    Argv,
    Placement,
    Programs,
    Readback,
    Role,
    Service,
    Settings,
    Value,
)
from autotune.services.diagnosis import (
    ANSWERED_REQUESTS,
    INFERRED,
    MEASURED,
    ClientLimit,
    Diagnosis,
    Resource,
    build_command_query,
    build_evidence_rule,
)
from autotune.services.postgresql.parameters import (
    PARAMETERS,
    PGTUNE,
    RESOURCE_NEEDS,
    UNIT_FACTORS,
    get_bare_unit,
    parse_value,
)
from autotune.strict_parsing import split_lines

VERSIONS = ("18", "17", "16", "15", "14", "13")
SOCKET_DIRECTORY = "/var/run/postgresql"
# On Debian, each cluster has a name. Other distributions have a single cluster, or one per version
# (postgresql.org).
LAYOUTS = DistributionLayouts(
    (
        DistributionLayout(
            "Debian, Ubuntu",
            "postgresql@{version}-{name}.service",
            "/etc/postgresql/{version}/{name}/postgresql.conf",
            "/usr/lib/postgresql/{version}/bin",
        ),
        DistributionLayout(
            "postgresql.org",
            "postgresql-{version}.service",
            "/var/lib/pgsql/{version}/data/postgresql.conf",
            "/usr/pgsql-{version}/bin",
        ),
        DistributionLayout(
            "Fedora, RHEL, SUSE",
            "postgresql.service",
            "/var/lib/pgsql/data/postgresql.conf",
            "/usr/bin",
        ),
    )
)
_PROGRAM_PATH_PATTERN = re.compile(r"/postgresql/([0-9.]+)/bin/")
# As root, the script switches to the account that owns the data. Any other account needs a database
# role with the account's name.
_AS_OWNER_SCRIPT = """
[ "$(id -u)" != 0 ] || set -- setpriv --reuid=postgres --regid=postgres --init-groups "$@"
cd / && exec "$@"
"""
# With `-C`, PostgreSQL reads all of a host's own files, or autotune's single file, but does not
# start.
_VALIDATION_SCRIPT = 'exec "$1" -C max_connections -D "$2" ${3+-c config_file="$3"}'
_DUMP_SCRIPT = """
program=$1 directory=$2 && shift 2
for name; do
    value=$("$program" -C "$name" -D "$directory" 2>/dev/null) && echo "$name|$value"
done
:
"""
_PARAMETERS_BY_NAME = {parameter.name: parameter for parameter in PARAMETERS}
# Selects effective values and the values in files, which differ while a change waits for a restart
# (`pending_restart`). Sessions use the values of ALTER ROLE and ALTER DATABASE instead of those in files.
# The values of the role that runs this query, in its database, concern no other session.
_SETTINGS_QUERY = f"""
WITH clients AS (
  SELECT usesysid, datid FROM pg_stat_activity
  WHERE backend_type = 'client backend' AND (usename, datname) <> (current_user, current_database())
), overrides AS (
  SELECT lower(split_part(entry, '=', 1)) AS name, substr(entry, strpos(entry, '=') + 1) AS setting,
    (setrole <> 0, setdatabase <> 0) AS precedence
  FROM pg_db_role_setting, unnest(setconfig) AS entry
  WHERE {{unless}}
  EXISTS (SELECT FROM clients WHERE setrole IN (0, usesysid) AND setdatabase IN (0, datid))
)
SELECT s.name, coalesce(o.setting, CASE WHEN s.source IN ('global', 'database', 'user', 'database user')
  THEN coalesce(f.setting, s.boot_val) ELSE s.setting END), coalesce(s.unit, ''), coalesce(f.setting, '')
FROM pg_settings s LEFT JOIN overrides o ON o.name = s.name
LEFT JOIN pg_file_settings f ON lower(f.name) = s.name AND f.applied
WHERE s.name IN {tuple(_PARAMETERS_BY_NAME)} ORDER BY s.name, o.precedence
"""  # noqa: S608  # all names are constants
TOTAL_COUNTERS = ("blks_hit", "blks_read", "temp_files", "temp_bytes", "deadlocks")
LEVEL_CONDITIONS = {"active": "state = 'active'", "lock_waits": "wait_event_type = 'Lock'"}
_LEVEL_COLUMNS = ", ".join(
    f"count(*) FILTER (WHERE {condition}) AS {name}" for name, condition in LEVEL_CONDITIONS.items()
)
# The counters of all databases, with one name and number per line.
_COUNTERS_QUERY = f"""
SELECT key || ' ' || value FROM
  (SELECT {", ".join(f"sum({name}) AS {name}" for name in TOTAL_COUNTERS)} FROM pg_stat_database) AS sums,
  (SELECT {_LEVEL_COLUMNS}
   FROM pg_stat_activity WHERE pid <> pg_backend_pid()) AS levels,
  (SELECT @) AS wal,
  json_each_text((to_jsonb(sums) || to_jsonb(levels) || to_jsonb(wal))::json)
"""  # noqa: S608  # all names are constants
_CHECKPOINT_QUERIES = (
    "to_jsonb(own) -> 'checkpoints_req' AS checkpoints_req FROM pg_stat_bgwriter AS own",
    "num_requested AS checkpoints_req FROM pg_stat_checkpointer",
)


def find_cluster(placement: Placement) -> DistributionLayout:
    """Return the cluster to which the host's own files belong, or else Debian's first cluster of
    the newest version.
    """
    adopted_paths = [file.path for file in placement.adopted.files] if placement.adopted else []
    program_match = _PROGRAM_PATH_PATTERN.search(placement.programs.get("postgres", ""))
    newest_cluster = LAYOUTS[0].for_instance(
        program_match[1] if program_match else VERSIONS[0], "main"
    )
    return next(filter(None, map(LAYOUTS.match_instance, adopted_paths)), newest_cluster)


def _build_query_command(placement: Placement, sql: str) -> Argv:
    """Return a command that runs on the host and prints the rows of ``sql``, with columns separated
    by `|`.
    """
    psql_command = (
        f"{find_cluster(placement).program_directory}/psql",
        "-XAtqw",
        "-h",
        placement.adopted_address or SOCKET_DIRECTORY,
        "-p",
        str(placement.listen.port),
        "-d",
        "postgres",
        "-c",
        sql,
    )
    return ("sh", "-c", _AS_OWNER_SCRIPT, "sh", *psql_command)


def parse_effective(output: str) -> Settings:
    """Return the values in `pg_settings`, in the units of the parameters."""
    parameter_values: dict[str, Value] = {}
    for row in split_lines(output):
        match row.split("|"):
            case [name, setting, unit, in_file] if (
                name in _PARAMETERS_BY_NAME and unit in UNIT_FACTORS
            ):
                # If wal_buffers is -1, `pg_settings` shows the computed size.
                is_computed = name == "wal_buffers" and in_file in ("", "-1")
                value = parse_value(
                    _PARAMETERS_BY_NAME[name], "-1" if is_computed else setting, unit
                )
                parameter_values |= {} if value is None else {name: value}
    return parameter_values


def parse_dump(output: str) -> Settings:
    """Return the values that ``postgres -C`` prints. Like bare numbers in files, these values have
    no unit.
    """
    name_value_rows = (line.partition("|") for line in split_lines(output))
    parameter_values = {
        name: parse_value(
            _PARAMETERS_BY_NAME[name], value, get_bare_unit(_PARAMETERS_BY_NAME[name])
        )
        for name, _, value in name_value_rows
        if name in _PARAMETERS_BY_NAME
    }
    return {name: value for name, value in parameter_values.items() if value is not None}


class Postgresql(Service):
    """A PostgreSQL cluster with autotune's file in `conf.d`, or with the host's own files. The
    cluster's data directory is never changed.
    """

    name = "postgresql"
    other_names = ("postgres", "pgsql", "psql")
    title = "PostgreSQL"
    deployment = "postgresql"
    role = Role.DATABASE
    port = 5432
    keeps_data = True
    template = "postgresql/autotune.conf.j2"
    packages = ("postgresql",)
    programs: ClassVar[Programs] = {
        "postgres": (
            *(
                f"{layout.for_instance(version).program_directory}/postgres"
                for layout in LAYOUTS[:2]
                for version in VERSIONS
            ),
            f"{LAYOUTS[2].program_directory}/postgres",
        )
    }
    parameters = PARAMETERS
    needs = RESOURCE_NEEDS
    reload_signal = "HUP"
    reload_keeps_processes = True
    ordering_rules = (
        ("min_wal_size", "max_wal_size"),
        ("max_parallel_workers_per_gather", "max_parallel_workers"),
        ("max_parallel_workers", "max_worker_processes"),
    )

    def config_path(self, placement: Placement) -> str:
        own_file = placement.adopted.main if placement.adopted else ""
        return own_file or f"{dirname(find_cluster(placement).main_file)}/conf.d/zz-autotune.conf"

    def get_unit(self, placement: Placement) -> str:
        return find_cluster(placement).unit

    def build_validation(self, placement: Placement, files: Mapping[str, bytes]) -> Argv:
        cluster = find_cluster(placement)
        new_files = () if placement.adopted else (self.config_path(placement),)
        return (
            "sh",
            "-c",
            _VALIDATION_SCRIPT,
            "sh",
            f"{cluster.program_directory}/postgres",
            dirname(cluster.main_file),
            *new_files,
        )

    def recommend_settings(
        self, facts: Mapping[str, float], current_settings: Settings
    ) -> Settings:
        """Return PGTune's recommendations for a web application on SSDs with Linux and PostgreSQL
        15 or later.

        PGTune's rules are in src/features/configuration/configurationSlice.js. If the user set
        ``max_connections``, the rules use the user's value as an input. Recommendations that are the
        same for all hosts are in the parameters' ``recommended``.
        """
        # PGTune calculates in kB.
        memory_kb, cpus = int(facts["memory"]) // 1024, int(facts["cpus"])
        shared_buffers_kb = memory_kb // 4
        connection_count = int(current_settings.get("max_connections", 100))
        if connection_count == 100:  # the stock value is not the user's choice
            connection_count = 200
        # PGTune assumes 8 workers if it recommends no max_worker_processes
        worker_count = cpus if cpus >= 4 else 8
        recommended_values: dict[str, Value] = {
            parameter.name: parameter.recommended
            for parameter in PARAMETERS
            if parameter.source == PGTUNE and isinstance(parameter.recommended, int | float)
        }
        recommended_values |= {
            "max_connections": connection_count,
            "shared_buffers": shared_buffers_kb // 1024,
            "effective_cache_size": memory_kb * 3 // 4 // 1024,
            "maintenance_work_mem": min(memory_kb // 16 // 1024, 8192),
            "work_mem": max(
                (memory_kb - shared_buffers_kb) // ((connection_count + worker_count) * 3), 4096
            ),
            # PGTune uses 3 % of shared_buffers, but 16 MB if this share exceeds 14 MB. -1 means 1/32 of
            # shared_buffers.
            "wal_buffers": 16 if 3 * shared_buffers_kb // 100 > 14 * 1024 else -1,
            "wal_compression": "lz4",
            "jit": False,
        }
        if cpus >= 4:
            recommended_values |= {
                "max_worker_processes": cpus,
                "max_parallel_workers": cpus,
                "max_parallel_workers_per_gather": min(4, -(-cpus // 2)),
            }
        if cpus >= 16:
            recommended_values["autovacuum_max_workers"] = 5 if cpus >= 32 else 4
        return recommended_values

    def list_readbacks(self, placement: Placement) -> tuple[Readback, ...]:
        # If no client is connected, it is unknown whose values the application uses, so adoption reads
        # all of them.
        return (
            Readback(
                _build_query_command(placement, _SETTINGS_QUERY.format(unless="")),
                parse_effective,
                _build_query_command(
                    placement,
                    _SETTINGS_QUERY.format(unless="NOT EXISTS (SELECT FROM clients) OR"),
                ),
            ),
        )

    def list_file_readbacks(self, placement: Placement) -> tuple[Readback, ...]:
        cluster = find_cluster(placement)
        parameter_names = [parameter.name for parameter in PARAMETERS]
        program = f"{cluster.program_directory}/postgres"
        dump_command = (
            "sh",
            "-c",
            _DUMP_SCRIPT,
            "sh",
            program,
            dirname(cluster.main_file),
            *parameter_names,
        )
        return (Readback(("sh", "-c", _AS_OWNER_SCRIPT, "sh", *dump_command), parse_dump),)


SERVICES = (Postgresql(),)


def _find_log(placement: Placement) -> str:
    cluster = find_cluster(placement)
    cluster_log = f"/var/log/postgresql/postgresql-{cluster.version}-{cluster.name}.log"
    return cluster_log if cluster.name else cluster.unit


def _build_counters_command(placement: Placement) -> Argv:
    has_checkpointer_view = int(find_cluster(placement).version.partition(".")[0] or 0) >= 17
    return _build_query_command(
        placement, _COUNTERS_QUERY.replace("@", _CHECKPOINT_QUERIES[has_checkpointer_view])
    )


# The first rule that matches applies.
SHORTAGE_RULES = (
    # At least half of the active sessions are waiting for locks.
    build_evidence_rule(
        Resource.LOCKS,
        MEASURED,
        lambda c: c["lock_waits"] >= max(2, 0.5 * c["active"]),
        lambda c: (
            f"{c['lock_waits']:.0f} of {c['active']:.0f} active sessions waited for locks, with"
            f" {c['deadlocks']:.0f} deadlocks: shorten transactions that change the same rows"
        ),
    ),
    # Sorts use temporary files on disk. Fewer than one file per 20 requests delays only a few requests.
    build_evidence_rule(
        Resource.DISK,
        INFERRED,
        lambda c: (
            c["temp_files"] >= max(1.0, 0.05 * c[ANSWERED_REQUESTS]) and c["temp_bytes"] >= 2**20
        ),
        lambda c: (
            f"queries wrote {c['temp_files']:.0f} temporary files, {c['temp_bytes'] / 2**20:.0f} MB:"
            " raise work_mem"
        ),
    ),
    # Tables do not fit into memory: a tenth of the pages is read from disk, and there are enough
    # reads to matter.
    build_evidence_rule(
        Resource.CACHE,
        INFERRED,
        lambda c: c["blks_read"] > max(999, c["blks_hit"] / 9),
        lambda c: (
            f"{c['blks_hit'] / (c['blks_hit'] + c['blks_read']):.0%} of the required pages were in the"
            f" buffers, {c['blks_read']:.0f} were not: raise shared_buffers"
        ),
    ),
    # A single early checkpoint may be due to writes before the reading.
    build_evidence_rule(
        Resource.DISK,
        INFERRED,
        lambda c: c["checkpoints_req"] >= 2,
        lambda c: (
            f"the WAL was full {c['checkpoints_req']:.0f} times, which caused early checkpoints:"
            " raise max_wal_size"
        ),
    ),
)
DIAGNOSIS = Diagnosis(
    # A query through PostgreSQL's port would require an account.
    counter_query=build_command_query(build_command=_build_counters_command,
                        counter_names=frozenset((*TOTAL_COUNTERS, *LEVEL_CONDITIONS, "checkpoints_req")),
                        level_names=frozenset(LEVEL_CONDITIONS), interval_seconds=2.0),
    find_log=_find_log,
    complaint_patterns={"too_many_clients": re.compile(
        r"too many clients already|connection slots are reserved")},
    recommended_changes={
        Resource.CPU: ("work_mem+", "shared_buffers+"),
        Resource.CONNECTIONS: ("max_connections+",),
        Resource.CACHE: ("shared_buffers+",),
        Resource.DISK: ("work_mem+", "max_wal_size+", "checkpoint_timeout+"),
        Resource.STORE: ("shared_buffers+", "work_mem+"),
        Resource.MEMORY: ("max_connections-", "work_mem-", "shared_buffers-"),
    },
    # Refused clients appear only in the log.
    client_limit=ClientLimit("max_connections", "too_many_clients",
                        alternative_advice=", or use a connection pool"),
    worker_rules=SHORTAGE_RULES,
)  # fmt: skip
