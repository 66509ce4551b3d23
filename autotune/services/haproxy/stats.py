"""What HAProxy tells of itself at its stats socket: `show info`, `show stat` and `show pools`."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping

from autotune.services.base import Argv, Settings, Site, Value
from autotune.services.readback import number
from autotune.strict import is_whole, split_lines

QUESTION = "show info;show stat;show pools"
TOTALS = ("FRONTEND", "BACKEND")
COLUMNS = {"svname", "algo", "slim"}
# Every Debian has perl-base, but no client of unix sockets. A whole path may be too long for a socket:
# hence the change of directory.
_ASK = (
    "chdir shift; my $s = IO::Socket::UNIX->new(shift) or die qq($!\\n);"
    " print $s qq(@ARGV\\n); print while <$s>"
)
_VALUES = {"nbthread": r"(?m)^Nbthread: ([0-9]{1,15})$", "maxconn": r"(?m)^Maxconn: ([0-9]{1,15})$",
           "tune_bufsize": r"Pool buffer \(([0-9]{1,15}) bytes\)"}  # fmt: skip


def socket_of(site: Site) -> str:
    """The path of its stats socket, or the name of the one in the site's directory."""
    return site.own_place or site.place("haproxy.sock", "/run/haproxy/admin.sock")


def asking(site: Site) -> Argv:
    """The command that prints all three answers, to be run on its host."""
    directory = site.place(site.directory, "/")
    return ("perl", "-MIO::Socket::UNIX", "-e", _ASK, directory, socket_of(site), QUESTION)


def rows(text: str) -> list[Mapping[str, str]]:
    """What `show stat` says of every frontend, server and backend, by the names of its columns.

    Nothing where a column of ``COLUMNS`` is missing.
    """
    table = text.partition("# pxname,")[2].partition("\n\n")[0]
    reader = csv.DictReader(split_lines(f"pxname,{table}"), restval="")
    try:
        complete = {*(reader.fieldnames or ())} >= COLUMNS
        return [row for row in reader if None not in row] if complete else []
    except csv.Error:
        return []


def in_effect(text: str) -> Settings:
    """Values that the running process says it has; those of servers only where all have the same."""
    values: dict[str, Value] = {name: int(match[1]) for name, pattern in _VALUES.items()
                                if (match := re.search(pattern, text))}  # fmt: skip
    limits = {row["slim"] or "0" for row in rows(text) if row["svname"] not in TOTALS}
    methods = {row["algo"] for row in rows(text) if row["algo"]}
    for name, alike in (("server_maxconn", limits), ("balance", methods)):
        if len(alike) == 1:
            values[name] = number(alike.pop())
    return values


def counters(text: str) -> Mapping[str, float]:
    """Of `show stat`: sums over backends, the worst of them, and the fullest frontend."""
    numbers = [{name: float(value) for name, value in row.items() if is_whole(value)}
               for row in rows(text) if row["svname"] in TOTALS]  # fmt: skip
    backends = [row for row in numbers if "qcur" in row]
    frontends = [row for row in numbers if "qcur" not in row and row.get("slim")]
    sums = {name: sum(row.get(name, 0.0) for row in backends) for name in ("qcur", "econ", "wretr")}
    worst = {name: max((row.get(name, 0.0) for row in backends), default=0.0)
             for name in ("qmax", "qtime", "rtime")}  # fmt: skip
    fullest = max(frontends, key=lambda row: row.get("smax", 0.0) / row["slim"], default={})
    return sums | worst | {name: fullest[name] for name in ("smax", "slim") if name in fullest}
