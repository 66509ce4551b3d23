"""The distribution's MariaDB, with an autotune settings file that is read last at startup."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from autotune.services.base import (
    Argv,
    Endpoint,
    Placement,
    Programs,
    Readback,
    Role,
    Service,
    Settings,
)
from autotune.services.diagnosis import (
    ClientLimit,
    Diagnosis,
    Resource,
    build_command_query,
    build_ratio_rule,
)
from autotune.services.mariadb.parameters import PARAMETERS, RESOURCE_NEEDS, recommend_settings
from autotune.services.readback import build_backlog_readback, convert_unit
from autotune.strict_parsing import is_uint, split_lines

# Arguments: program, pattern, [file]. Prints the settings that MariaDB would reject or change at a
# start with that file, read after the host's own files. Only MariaDB's messages reveal rejected
# engine options and adjusted values.
_VALIDATION_SCRIPT = """
program=$1 pattern=$2
said=$("$program" ${3+"--defaults-extra-file=$3"} --help --verbose 2>&1 >/dev/null)
status=$?
wrong=$(printf '%s\\n' "$said" | grep -E -e "$pattern") || [ "$status" = 0 ] || wrong=$said
[ -n "$wrong" ] || exit "$status"
printf '%s\\n' "$wrong"
exit 1
"""
_ERROR_PATTERN = r"\[ERROR\]|option '({})': .* adjusted to".format(
    "|".join(parameter.name.replace("_", "[-_]") for parameter in PARAMETERS)
)


_SWITCHES = {"TRUE": "ON", "FALSE": "OFF"}
# MariaDB prints these numbers instead of values that it computes at startup.
_UNSET_NUMBERS = ("4294967295", "18446744073709551615")
# Values that `SET GLOBAL` set after the start. Statements in `init_file` set theirs again at each start.
_UNSAVED_QUERY = f"""
SELECT LOWER(VARIABLE_NAME), GLOBAL_VALUE FROM information_schema.SYSTEM_VARIABLES
WHERE GLOBAL_VALUE_ORIGIN = 'SQL' AND COALESCE(@@GLOBAL.init_file, '') = ''
AND VARIABLE_NAME IN {("READ_ONLY", *(parameter.name.upper() for parameter in PARAMETERS))}
"""  # noqa: S608  # all names are constants
# Arguments: the server, the client without a statement. After all nodes have stopped, a cluster only
# starts again if an administrator selects its first node (galera_new_cluster).
_RESTART_CHECK_SCRIPT = rf"""
program=$1
shift
case $("$@" "SHOW GLOBAL STATUS LIKE 'wsrep_connected'" 2>/dev/null) in *ON)
    echo "is a node of a Galera cluster, which stops if all hosts of its tier restart together"
    echo "remove the tier, or tune a copy of the database outside of the cluster"
    exit ;;
esac
unsaved=$("$@" "{_UNSAVED_QUERY}" 2>/dev/null)
[ -n "$unsaved" ] || exit 0
options=$("$program" --verbose --help 2>/dev/null | sed 's/ TRUE$/ ON/; s/ FALSE$/ OFF/')
printf '%s\n' "$unsaved" | while read -r name now; do
    value=$(printf '%s\n' "$options" | sed -n "s/^$(printf %s "$name" | tr _ -)  *//p" | tail -n 1)
    case $value in "$now" | '') continue ;; {" | ".join(_UNSET_NUMBERS)}) value=DEFAULT ;; esac
    echo "has $name $now, but its files set $value, which a restart would restore"
    echo "write \`$name = $now\` to its files, or run \`SET GLOBAL $name = $value\`"
    exit
done
"""


class Mariadb(Service):
    """A MariaDB server. The server's data directory, accounts and addresses are not changed."""

    name = "mariadb"
    other_names = ("mysql", "mysqld", "mariadbd", "percona")
    title = "MariaDB"
    deployment = "mariadb"
    role = Role.DATABASE
    port = 3306
    keeps_data = True
    config_paths = ("mariadb.cnf", "/etc/mysql/mariadb.conf.d/zz-autotune.cnf")
    template = "mariadb/mariadb.cnf.j2"
    unit_name = "mariadb.service"
    # The value of LimitNOFILE in Debian's unit.
    unit_nofile = "min(32768, nofile)"
    packages = ("mariadb-server",)
    programs: ClassVar[Programs] = {
        "mariadbd": ("mariadbd", "/usr/libexec/mariadbd"),
        "mariadb": ("mariadb",),
    }
    parameters = PARAMETERS
    needs = RESOURCE_NEEDS
    ordering_rules = (
        ("innodb_io_capacity", "innodb_io_capacity_max"),
        ("thread_cache_size", "max_connections"),
        ("tmp_table_size", "max_heap_table_size"),
    )

    def build_validation(self, placement: Placement, files: Mapping[str, bytes]) -> Argv:
        new_files = () if placement.adopted else (self.config_path(placement),)
        return (
            "sh",
            "-c",
            _VALIDATION_SCRIPT,
            "sh",
            placement.programs["mariadbd"],
            _ERROR_PATTERN,
            *new_files,
        )

    def build_unpersisted_check(
        self, placement: Placement, files: Mapping[str, bytes], *, allows_data_loss: bool = False
    ) -> Argv:
        """Return a check for a cluster, which a restart of all of its nodes would stop, and for values
        that a restart would lose.
        """
        client_command = build_query_command(placement, "")[:-1]
        program = placement.programs["mariadbd"]
        return ("sh", "-c", _RESTART_CHECK_SCRIPT, "sh", program, *client_command)

    def get_socket(self, placement: Placement) -> str | Endpoint:
        return placement.adopted_address or placement.listen

    def recommend_settings(
        self, facts: Mapping[str, float], current_settings: Settings
    ) -> Settings:
        return recommend_settings(facts, current_settings)

    def list_readbacks(self, placement: Placement) -> tuple[Readback, ...]:
        variables_readback = Readback(
            build_query_command(placement, "SHOW GLOBAL VARIABLES"), parse_effective
        )
        return (variables_readback, build_backlog_readback(placement, "back_log"))

    def list_file_readbacks(self, placement: Placement) -> tuple[Readback, ...]:
        help_command = (placement.programs["mariadbd"], "--verbose", "--help")
        return (Readback(help_command, parse_option_table),)


SERVICES = (Mariadb(),)


def build_query_command(placement: Placement, statement: str) -> Argv:
    """Return the command that runs ``statement`` through the Unix socket and prints names and
    values.

    Root needs no password on the Unix socket. Reading variables and counters requires an account,
    but no privileges.
    """
    connection_option = (
        f"--socket={placement.adopted_address}"
        if placement.adopted_address
        else "--protocol=socket"
    )
    return (
        placement.programs["mariadb"],
        connection_option,
        "--batch",
        "--skip-column-names",
        "-e",
        statement,
    )


def parse_rows(output: str) -> dict[str, str]:
    """Return the names and values in a table with two columns."""
    return dict(line.split("\t", 1) for line in split_lines(output) if "\t" in line)


def parse_option_table(output: str) -> Settings:
    """Return the parameter values in the table that ``--verbose --help`` prints after the options."""
    option_rows = re.findall(
        r"(?m)^([a-z][a-z0-9-]{2,80}) +(\S[^\n]*)$", output.rpartition("\n-----")[2]
    )
    printed_values = {
        name.replace("-", "_"): _SWITCHES.get(value, value)
        for name, value in option_rows
        if value not in _UNSET_NUMBERS
    }
    return _convert_values(printed_values)


def parse_effective(output: str) -> Settings:
    """Return the values of global variables, in the units of the parameters."""
    return _convert_values(parse_rows(output))


def _convert_values(printed_values: Mapping[str, str]) -> Settings:
    """Return the values of the parameters in their units. A disabled query cache has no size."""
    if printed_values.get("query_cache_type") == "OFF":
        printed_values = {**printed_values, "query_cache_size": "0"}
    return {
        p.name: convert_unit(p, printed_values[p.name])
        for p in PARAMETERS
        if p.name in printed_values
    }


# Arguments of `build_ratio_rule`.
RATIO_RULES = (
    ("Innodb_row_lock_waits", "Questions", 0.05, 10, Resource.LOCKS,
     "times a statement waited for a row that another statement had locked",
     "shorten transactions, or allow fewer (max_connections, thread_pool_size)"),
    ("Innodb_log_waits", "Questions", 0.01, 1, Resource.DISK,
     "times a statement waited for space in the log buffer", "raise innodb_log_buffer_size"),
    ("Innodb_buffer_pool_reads", "Innodb_buffer_pool_read_requests", 0.01, 1000, Resource.DISK,
     "requested pages were read from disk", "raise innodb_buffer_pool_size"),
    # MySQLTuner also uses a share of 25 %.
    ("Created_tmp_disk_tables", "Created_tmp_tables", 0.25, 100, Resource.DISK,
     "temporary tables were written to disk",
     "raise tmp_table_size and max_heap_table_size, unless the tables contain text columns"),
    ("Table_open_cache_overflows", "Questions", 0.1, 100, Resource.CACHE,
     "times a table was closed to open another", "raise table_open_cache"),
    ("Threads_created", "Connections", 0.5, 100, Resource.WORKERS,
     "connections got a new thread", "raise thread_cache_size, or keep connections open"),
)  # fmt: skip
LEVEL_COUNTERS = frozenset(("Threads_connected", "Threads_running", "Max_used_connections"))
TOTAL_COUNTERS = {name for row in RATIO_RULES for name in row[:2]}
REFUSED_COUNTER = "Connection_errors_max_connections"


def parse_counters(output: str) -> Mapping[str, float]:
    """Return the status variables that the diagnosis needs."""
    return {
        name: float(value)
        for name, value in parse_rows(output).items()
        if name in {*LEVEL_COUNTERS, *TOTAL_COUNTERS, REFUSED_COUNTER} and is_uint(value)
    }


DIAGNOSIS = Diagnosis(
    # MariaDB's protocol starts with a binary handshake, so MariaDB's own client program reads the
    # counters.
    counter_query=build_command_query(
        build_command=lambda site: build_query_command(site, "SHOW GLOBAL STATUS"),
        level_names=LEVEL_COUNTERS,
        parse_counters=parse_counters,
    ),
    find_log=lambda _: Mariadb.unit_name,
    recommended_changes={
        Resource.CPU: ("thread_handling=pool-of-threads", "table_open_cache+", "tmp_table_size+",
                       "max_heap_table_size+"),
        Resource.CONNECTIONS: ("max_connections+", "back_log+"),
        Resource.WORKERS: ("thread_handling=pool-of-threads", "thread_cache_size+"),
        Resource.STORE: ("innodb_buffer_pool_size+", "innodb_log_file_size+", "table_open_cache+"),
        Resource.DISK: ("innodb_buffer_pool_size+", "innodb_log_file_size+", "tmp_table_size+"),
        Resource.LOCKS: ("thread_handling=pool-of-threads", "max_connections-"),
        Resource.CACHE: ("table_open_cache+", "table_definition_cache+"),
        Resource.MEMORY: ("max_connections-", "innodb_buffer_pool_size-", "sort_buffer_size-"),
    },
    client_limit=ClientLimit("max_connections", REFUSED_COUNTER),
    worker_rules=tuple(build_ratio_rule(*row) for row in RATIO_RULES),
)  # fmt: skip
