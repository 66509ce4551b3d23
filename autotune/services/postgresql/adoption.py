"""Which lines of PostgreSQL's files are parameters, and what else they say of a host."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from autotune.services.adoption import Adoption, RunningHost, RunningService
from autotune.services.base import Parameter
from autotune.services.config_files import Config, PlacedDirective, gather
from autotune.services.directives import (
    Absent,
    Accepts,
    Adopted,
    Notation,
    Tunable,
    at_end,
    joined,
    map_directives,
)
from autotune.services.postgresql import syntax
from autotune.services.postgresql.parameters import PARAMETERS
from autotune.services.postgresql.service import SOCKETS, Cluster, Postgresql
from autotune.strict import is_whole

_UNIT = re.compile(r"postgresql@([0-9.]+)-(.+)\.service")
# What a number without a unit counts, where that is not the parameter's.
_BARE = {"shared_buffers": "8kB", "effective_cache_size": "8kB", "wal_buffers": "8kB",
         "maintenance_work_mem": "kB"}  # fmt: skip
_OVERRIDDEN = "postgresql.auto.conf has it and counts more: `ALTER SYSTEM RESET {}` has it tuned"
Last = Mapping[str, PlacedDirective]  # of a name that is there several times the last counts


def find(host: RunningHost) -> Iterator[RunningService | str]:
    """Every cluster that runs."""
    clusters = [Cluster(m[1], m[2]) for unit in host.units
                if (m := _UNIT.fullmatch(unit)) and host.runs(unit)]  # fmt: skip
    for cluster in clusters:
        config = gather(host.tree, f"{cluster.etc}/postgresql.conf", syntax.read, syntax.includes)
        last = _last(config)
        port = _value(last, "port", str(Postgresql.port))
        sockets = _value(last, "unix_socket_directories", SOCKETS).partition(",")[0].strip()
        if is_whole(port) and sockets.startswith("/"):
            yield RunningService(host=host, key=Postgresql.deployment, config=config, kind="db",
                                 port=int(port), listen=sockets)  # fmt: skip
        else:
            yield f"PostgreSQL {cluster.version} {cluster.name} has no unix socket to be asked at"


def tune(service: RunningService, accepts: Accepts) -> Adopted:
    """Every parameter but those that `ALTER SYSTEM` has set in the data directory."""
    config, last = service.config, _last(service.config)
    main = f"{_value(last, 'data_directory', '')}/postgresql.auto.conf"
    by_sql = _last(gather(service.host.tree, main, syntax.read, syntax.includes))
    tunables = [_tunable(config, p, last) for p in PARAMETERS if p.name not in by_sql]
    adopted = map_directives(config, tunables, accepts)
    left = {p.name: _OVERRIDDEN.format(p.name) for p in PARAMETERS if p.name in by_sql}
    return joined(adopted, Adopted(left=left))


def _last(config: Config) -> Last:
    return {placed.name: placed for placed in config.directives}


def _value(last: Last, name: str, default: str) -> str:
    return syntax.plain(last[name].words[0]) if name in last else default


def _tunable(config: Config, parameter: Parameter, last: Last) -> Tunable:
    """What the files do not have goes to the end of the main one."""
    name, expression = parameter.name, syntax.written(parameter)
    first, end = ("", r"\n") if config.texts.get(config.main, "").endswith("\n") else (r"\n", "")
    absent = Absent(parameter.stock, at_end, f'"{first}{name} = " ~ {expression} ~ "{end}"')
    bare = _BARE.get(name, parameter.unit)
    notation = Notation(lambda text: syntax.meaning(parameter, text, bare), lambda _: expression)
    return Tunable(name, name, notation, absent=absent, counts=lambda placed: placed is last[name])


ADOPTION = Adoption(
    known_as=Postgresql.title,
    units=("postgresql@*.service",),
    paths=("etc/postgresql", "var/lib/postgresql/*/*/postgresql.auto.conf"),
    version="""for postgres in /usr/lib/postgresql/*/bin/postgres; do
    version=${postgres#/usr/lib/postgresql/} version=${version%%/*}
    [ -d "/etc/postgresql/$version" ] || continue
    "$postgres" -V | sed 's,^postgres (PostgreSQL) \\([^ ]*\\).*,PostgreSQL \\1,'
done""",
    find=find,
    tune=tune,
)
