"""PostgreSQL as distributions have it: where its files are, how it is asked and validated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from autotune.services.base import Argv, Programs, Readback, Role, Service, Settings, Site, Value
from autotune.services.postgresql.parameters import NEEDS, PARAMETERS, advice
from autotune.services.postgresql.syntax import UNITS, meaning

VERSIONS = ("18", "17", "16", "15", "14")
SOCKETS = "/var/run/postgresql"
_ETC = re.compile(r"/etc/postgresql/([0-9.]+)/([^/]+)/|/var/lib/pgsql/(?:([0-9]+)/)?data/")
_BIN = re.compile(r"/postgresql/([0-9.]+)/bin/")
# As root by the account that owns the data, else by the account itself: it needs a role of its name.
_AS_OWNER = """
[ "$(id -u)" != 0 ] || set -- setpriv --reuid=postgres --regid=postgres --init-groups "$@"
cd / && exec "$@"
"""
# `-C` reads every file, refuses what is wrong in them, and starts nothing. Of a host's own files all
# together; else the one file that autotune writes.
_WHOLE = 'exec "$1" -C max_connections -D "$2"'
_ALONE = f'{_WHOLE} -c config_file="$3"'
_BY_NAME = {parameter.name: parameter for parameter in PARAMETERS}
# In effect, and in files: of what waits for a restart (`pending_restart`) the two differ.
_SETTINGS = f"""
SELECT s.name, s.setting, coalesce(s.unit, ''), coalesce(f.setting, '') FROM pg_settings s
LEFT JOIN pg_file_settings f ON f.name = s.name AND f.applied WHERE s.name IN {tuple(_BY_NAME)}
"""  # noqa: S608  # of names that are here


@dataclass(frozen=True)
class Cluster:
    """One of the databases of a host, as Debian names them: ``15 main``. Elsewhere none has a name; nor a
    version, in the packages of Fedora, the RHEL family and SUSE, but in those of postgresql.org."""

    version: str
    name: str = "main"

    @classmethod
    def of(cls, site: Site) -> Cluster:
        """The one that the host's own files are of, or else that of the newest version there."""
        paths = [file.path for file in site.own.files] if site.own else []
        if own := next(filter(None, map(_ETC.match, paths)), None):
            return cls(own[1] or own[3] or "", own[2] or "")
        program = _BIN.search(site.programs.get("postgres", ""))
        return cls(program[1] if program else VERSIONS[0])

    @property
    def major(self) -> int:
        """0 where it is not known."""
        return int(self.version.partition(".")[0] or 0)

    @property
    def _place(self) -> tuple[str, str, str]:
        """Its unit, the directory of its files, and that of the programs of its version."""
        version, name = self.version, self.name
        if name:
            return (f"postgresql@{version}-{name}.service", f"/etc/postgresql/{version}/{name}",
                    f"/usr/lib/postgresql/{version}/bin")  # fmt: skip
        if version:
            return (f"postgresql-{version}.service", f"/var/lib/pgsql/{version}/data",
                    f"/usr/pgsql-{version}/bin")  # fmt: skip
        return "postgresql.service", "/var/lib/pgsql/data", "/usr/bin"

    @property
    def unit(self) -> str:
        return self._place[0]

    @property
    def etc(self) -> str:
        return self._place[1]

    def program(self, name: str) -> str:
        return f"{self._place[2]}/{name}"


def asking(site: Site, sql: str) -> Argv:
    """A command that prints the rows of ``sql``, to be run on the host: columns are split by `|`."""
    psql = (Cluster.of(site).program("psql"), "-XAtqw", "-h", site.own_place or SOCKETS,
            "-p", str(site.listen.port), "-d", "postgres", "-c", sql)  # fmt: skip
    return ("sh", "-c", _AS_OWNER, "sh", *psql)


def in_effect(text: str) -> Settings:
    """What `pg_settings` shows, in the units of parameters."""
    values: dict[str, Value] = {}
    for row in text.splitlines():
        match row.split("|"):
            case [name, setting, unit, in_file] if name in _BY_NAME and unit in UNITS:
                # It shows what it has worked out.
                if name == "wal_buffers" and in_file in ("", "-1"):
                    setting = "-1"
                value = meaning(_BY_NAME[name], setting, unit)
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
    programs: ClassVar[Programs] = {
        "postgres": tuple(
            Cluster(version, name).program("postgres")
            for name in ("main", "")
            for version in (*VERSIONS, *([] if name else [""]))
        )
    }
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
        return own or f"{Cluster.of(site).etc}/conf.d/zz-autotune.conf"

    def unit(self, site: Site) -> str:
        return Cluster.of(site).unit

    def validate(self, site: Site, files: Mapping[str, bytes]) -> Argv:
        cluster = Cluster.of(site)
        words = (cluster.program("postgres"), cluster.etc)
        if site.own is not None:
            return ("sh", "-c", _WHOLE, "sh", *words)
        return ("sh", "-c", _ALONE, "sh", *words, self.config_path(site))

    def advice(self, facts: Mapping[str, float], running: Settings) -> Settings:
        return advice(facts, running)

    def effective(self, site: Site) -> tuple[Readback, ...]:
        return (Readback(asking(site, _SETTINGS), in_effect),)


SERVICES = (Postgresql(),)
