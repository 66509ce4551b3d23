"""Which lines of PostgreSQL's files are parameters, and what else they say of a host."""

from __future__ import annotations

import re
from collections.abc import Iterator
from posixpath import dirname

from autotune.services.adoption import Adoption, RunningHost, RunningService
from autotune.services.base import Parameter
from autotune.services.config_files import Config, gather
from autotune.services.directives import (
    Accepts,
    Adopted,
    Notation,
    Tunable,
    last_line,
    map_directives,
)
from autotune.services.postgresql import syntax
from autotune.services.postgresql.parameters import PARAMETERS
from autotune.services.postgresql.service import SOCKETS, Cluster, Postgresql
from autotune.strict import is_whole

_UNIT = re.compile(r"postgresql(?:@([0-9.]+)-(.+)|(?:-([0-9]+))?)\.service")
# What a number without a unit counts, where that is not the parameter's.
_BARE = {"shared_buffers": "8kB", "effective_cache_size": "8kB", "wal_buffers": "8kB",
         "maintenance_work_mem": "kB"}  # fmt: skip
_BY_SQL = "postgresql.auto.conf has it and counts more: `ALTER SYSTEM RESET {}` has it tuned"
_BY_COMMAND = "pg_ctl.conf has it and counts more: in postgresql.conf it is tuned"
_COMMAND = re.compile(r"(?:-c\s*|--)([A-Za-z][\w-]*)=")


def find(host: RunningHost) -> Iterator[RunningService | str]:
    """Every cluster that runs."""
    clusters = [Cluster(m[1] or m[3] or "", m[2] or "") for unit in host.units
                if (m := _UNIT.fullmatch(unit)) and host.runs(unit)]  # fmt: skip
    for cluster in clusters:
        main = f"{cluster.etc}/postgresql.conf"
        if not cluster.name and host.tree.real(main) not in host.tree.files:
            if cluster.version:  # Debian's unit of all clusters has none
                yield f"PostgreSQL runs as {cluster.unit}, and there is no {main}: it is not tuned"
            continue
        config = gather(host.tree, main, syntax.read, syntax.includes, beside=True)
        port = _value(config, "port", str(Postgresql.port))
        sockets = _value(config, "unix_socket_directories", SOCKETS).partition(",")[0].strip()
        if is_whole(port) and sockets.startswith("/"):
            yield RunningService(host=host, key=Postgresql.deployment, config=config, kind="db",
                                 port=int(port), listen=sockets,
                                 unit="" if cluster.name else cluster.unit)  # fmt: skip
        else:
            yield f"PostgreSQL of {cluster.unit} has no unix socket to be asked at"


def tune(service: RunningService, accepts: Accepts) -> Adopted:
    """Every parameter but those that the command or `ALTER SYSTEM` have set."""
    config, tree = service.config, service.host.tree
    main = f"{_value(config, 'data_directory', dirname(config.main))}/postgresql.auto.conf"
    by_sql = {line.name for line in gather(tree, main, syntax.read, syntax.includes).directives}
    left = {p.name: _BY_SQL.format(p.name) for p in PARAMETERS if p.name in by_sql}
    # Options that Debian starts a cluster with count more than any file.
    options = tree.content(f"{dirname(config.main)}/pg_ctl.conf")
    by_command = {name.replace("-", "_").lower() for line in options.splitlines()
                  if not line.lstrip().startswith("#") for name in _COMMAND.findall(line)}  # fmt: skip
    left |= {p.name: _BY_COMMAND for p in PARAMETERS if p.name in by_command}
    return map_directives(config, (_tunable(config, p) for p in PARAMETERS), accepts, left)


def _value(config: Config, name: str, default: str) -> str:
    return syntax.plain(config.last(name, default))


def _tunable(config: Config, parameter: Parameter) -> Tunable:
    """What the files do not have goes to the end of the main one."""
    name, expression = parameter.name, syntax.written(parameter)
    absent = last_line(config, parameter.stock, f"{name} = ", expression)
    bare = _BARE.get(name, parameter.unit)
    notation = Notation(lambda text: syntax.meaning(parameter, text, bare), lambda _: expression)
    return Tunable(name, name, notation, absent=absent, last=True)


ADOPTION = Adoption(
    known_as=Postgresql.title,
    units=("postgresql@*.service", "postgresql-*.service", "postgresql.service"),
    paths=(
        "etc/postgresql",
        "var/lib/postgresql/*/*/postgresql.auto.conf",
        "var/lib/pgsql/data/postgresql*.conf",
        "var/lib/pgsql/*/data/postgresql*.conf",
    ),
    version="""for postgres in /usr/lib/postgresql/*/bin/postgres; do
    version=${postgres#/usr/lib/postgresql/} version=${version%%/*}
    [ -d "/etc/postgresql/$version" ] || continue
    "$postgres" -V | sed 's,^postgres (PostgreSQL) \\([^ ]*\\).*,PostgreSQL \\1,'
done
for postgres in /usr/pgsql-*/bin/postgres /usr/bin/postgres; do
    [ ! -x "$postgres" ] || [ ! -e /var/lib/pgsql ] || "$postgres" -V | sed 's,^postgres (,,; s,),,'
done""",
    find=find,
    tune=tune,
)
