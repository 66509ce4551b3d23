"""MariaDB as the distribution has it: settings in a file of their own, read last, when it starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from autotune.services.base import Argv, Endpoint, Programs, Readback, Role, Service, Settings, Site
from autotune.services.mariadb.advice import advice
from autotune.services.mariadb.parameters import NEEDS, PARAMETERS
from autotune.services.readback import backlog_in_force, number
from autotune.target.units import SIZE

# program pattern [file]: what a start with that file, read after the host's own, would refuse or
# change. An engine's options it refuses in words alone, and what is out of range it replaces.
_CHECK = """
program=$1 pattern=$2
said=$("$program" ${3+"--defaults-extra-file=$3"} --help --verbose 2>&1 >/dev/null)
status=$?
wrong=$(printf '%s\\n' "$said" | grep -E -e "$pattern") || [ "$status" = 0 ] || wrong=$said
[ -n "$wrong" ] || exit "$status"
printf '%s\\n' "$wrong"
exit 1
"""
_WRONG = r"\[ERROR\]|option '({})': .* adjusted to".format(
    "|".join(parameter.name.replace("_", "[-_]") for parameter in PARAMETERS)
)


class Mariadb(Service):
    """Its data directory, accounts and addresses are the host's, and stay as they are."""

    name = "mariadb"
    title = "MariaDB"
    deployment = "mariadb"
    role = Role.DATABASE
    port = 3306
    keeps_data = True
    config = ("mariadb.cnf", "/etc/mysql/mariadb.conf.d/zz-autotune.cnf")
    template = "mariadb/mariadb.cnf.j2"
    unit_name = "mariadb.service"
    # LimitNOFILE in the unit of Debian's package.
    unit_nofile = "min(32768, nofile)"
    packages = ("mariadb-server",)
    programs: ClassVar[Programs] = {
        "mariadbd": ("mariadbd", "/usr/libexec/mariadbd"),
        "mariadb": ("mariadb",),
    }
    parameters = PARAMETERS
    needs = NEEDS
    at_most = (
        ("innodb_io_capacity", "innodb_io_capacity_max"),
        ("thread_cache_size", "max_connections"),
        ("tmp_table_size", "max_heap_table_size"),
    )

    def validate(self, site: Site, files: Mapping[str, bytes]) -> Argv:
        new = () if site.own else (self.config_path(site),)
        return ("sh", "-c", _CHECK, "sh", site.programs["mariadbd"], _WRONG, *new)

    def socket(self, site: Site) -> str | Endpoint:
        return (site.own and site.own.listen) or site.listen

    def advice(self, facts: Mapping[str, float], running: Settings) -> Settings:
        return advice(facts, running)

    def effective(self, site: Site) -> tuple[Readback, ...]:
        asking = Readback(ask(site, "SHOW GLOBAL VARIABLES"), in_effect)
        return (asking, backlog_in_force(site, "back_log"))


SERVICES = (Mariadb(),)


def ask(site: Site, statement: str) -> Argv:
    """The command that prints names and values, at its unix socket: root needs no password there.

    Neither variables nor counters take any privilege beyond an account.
    """
    own = site.own.listen if site.own else ""
    place = (f"--socket={own}",) if own else ("--protocol=socket",)
    return (site.programs["mariadb"], *place, "--batch", "--skip-column-names", "-e", statement)


def rows(text: str) -> dict[str, str]:
    """Names and values of a table with two columns."""
    return dict(line.split("\t", 1) for line in text.splitlines() if "\t" in line)


def in_effect(text: str) -> Settings:
    """Values of its global variables, in the units of the parameters."""
    printed = rows(text)
    if printed.get("query_cache_type") == "OFF":
        printed["query_cache_size"] = "0"
    values = {p.name: number(printed[p.name]) for p in PARAMETERS if p.name in printed}
    for parameter in PARAMETERS:
        value = values.get(parameter.name)
        if isinstance(parameter.stock, bool) and value is not None:
            values[parameter.name] = value == "ON"
        elif parameter.unit and isinstance(value, int):
            values[parameter.name] = number(f"{value / SIZE[parameter.unit]:.10g}")
    return values
