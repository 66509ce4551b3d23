"""Queries of HAProxy's stats socket: `show info`, `show stat` and `show pools`."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping

from autotune.services.base import Argv, Placement, Settings, Value
from autotune.services.readback import parse_number
from autotune.strict_parsing import MAX_NUMBER, is_uint, split_lines

STATS_COMMANDS = "show info;show stat;show pools"
TOTAL_ROWS = ("FRONTEND", "BACKEND")
REQUIRED_COLUMNS = {"svname", "algo", "slim"}
# Debian always has perl-base, but no client for Unix sockets. An absolute path may be too long for
# a socket address, so the script first changes to the socket's directory.
_SOCKET_CLIENT_SCRIPT = (
    "chdir shift; my $s = IO::Socket::UNIX->new(shift) or die qq($!\\n);"
    " print $s qq(@ARGV\\n); print while <$s>"
)
_INFO_PATTERNS = {
    "nbthread": r"(?m)^Nbthread: ([0-9]{1,15})$",
    "maxconn": r"(?m)^Maxconn: ([0-9]{1,15})$",
    "tune_bufsize": r"Pool buffer \(([0-9]{1,15}) bytes\)",
}


def find_stats_socket(placement: Placement) -> str:
    """Return the path of the stats socket. A relative path starts at the working directory."""
    return placement.adopted_address or placement.choose("haproxy.sock", "/run/haproxy/admin.sock")


def build_stats_command(placement: Placement) -> Argv:
    """Return the command that runs on HAProxy's host and prints the responses to all
    ``STATS_COMMANDS``.
    """
    directory = placement.choose(placement.directory, "/")
    return (
        "perl",
        "-MIO::Socket::UNIX",
        "-e",
        _SOCKET_CLIENT_SCRIPT,
        directory,
        find_stats_socket(placement),
        STATS_COMMANDS,
    )


def parse_rows(output: str) -> list[Mapping[str, str]]:
    """Return the rows of `show stat` for every frontend, server and backend, each as a mapping from
    column to text. The result is empty if one of ``REQUIRED_COLUMNS`` is missing.
    """
    stats_table = output.partition("# pxname,")[2].partition("\n\n")[0]
    csv_reader = csv.DictReader(split_lines(f"pxname,{stats_table}"), restval="")
    try:
        is_complete = {*(csv_reader.fieldnames or ())} >= REQUIRED_COLUMNS
        return [row for row in csv_reader if None not in row] if is_complete else []
    except csv.Error:
        return []


def parse_effective(output: str) -> Settings:
    """Return the effective parameter values of the running HAProxy process. A setting of the servers is
    included only if its value is the same for all servers.
    """
    # Each frontend has its own limit of connections, which may be lower than that of the process.
    frontend_limits = [
        int(row["slim"])
        for row in parse_rows(output)
        if row["svname"] == "FRONTEND" and is_uint(row["slim"])
    ]
    upper_limits = {"maxconn": max(frontend_limits)} if any(frontend_limits) else {}
    parameter_values: dict[str, Value] = {
        parameter_name: min(int(match[1]), upper_limits.get(parameter_name, MAX_NUMBER))
        for parameter_name, pattern in _INFO_PATTERNS.items()
        if (match := re.search(pattern, output))
    }
    server_limits = {
        row["slim"] or "0" for row in parse_rows(output) if row["svname"] not in TOTAL_ROWS
    }
    # HAProxy 2.6 prints `unknown` for some load-balancing methods, such as `random`.
    balance_methods = {row["algo"] for row in parse_rows(output) if row["algo"]}
    for parameter_name, distinct_values in (
        ("server_maxconn", server_limits),
        ("balance", balance_methods),
    ):
        if len(distinct_values) == 1 and "unknown" not in distinct_values:
            parameter_values[parameter_name] = parse_number(distinct_values.pop())
    return parameter_values


def parse_counters(output: str) -> Mapping[str, float]:
    """Return the counters in `show stat`: sums and maximums over the backends, and the numbers of
    sessions of the fullest frontend. ``reached_limit`` is 1 if this frontend was full since HAProxy's
    start.
    """
    total_rows = [
        {name: float(value) for name, value in row.items() if is_uint(value)}
        for row in parse_rows(output)
        if row["svname"] in TOTAL_ROWS
    ]
    backend_rows = [row for row in total_rows if "qcur" in row]
    frontend_rows = [row for row in total_rows if "qcur" not in row and row.get("slim")]
    sum_by_counter = {
        name: sum(row.get(name, 0.0) for row in backend_rows) for name in ("qcur", "econ", "wretr")
    }
    maximum_by_counter = {
        name: max((row.get(name, 0.0) for row in backend_rows), default=0.0)
        for name in ("qtime", "rtime")
    }
    fullest_frontend = max(
        frontend_rows,
        key=lambda row: (row.get("scur", 0.0) / row["slim"], -row["slim"]),
        default={},
    )
    return (
        sum_by_counter
        | maximum_by_counter
        | {name: fullest_frontend[name] for name in ("scur", "slim") if name in fullest_frontend}
        | {
            "reached_limit": float(
                0 < fullest_frontend.get("slim", 0.0) <= fullest_frontend.get("smax", 0.0)
            )
        }
    )
