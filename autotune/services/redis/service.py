"""Redis: the store behind the cache."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.services.base import (
    Argv,
    ConfigFile,
    Endpoint,
    Loader,
    Readback,
    Role,
    Service,
    Site,
    TrialStart,
)
from autotune.services.redis.parameters import NEEDS, PARAMETERS
from autotune.services.redis_protocol import as_user, in_effect, loader

DATA, DUMP = "/var/lib/redis", "autotune.rdb"
SWITCHES = ("io_threads_do_reads", "activerehashing", "jemalloc_bg_thread")
IN_EFFECT = {
    name.replace("_", "-"): name
    for name in ("io_threads", "tcp_backlog", "tcp_keepalive", *SWITCHES)
} | {"maxclients": "maxclients", "hz": "hz"}


class Redis(Service):
    """Keeps its data set across restarts in the dump that the loader makes once.

    Under the distribution's unit that is a dump of its own: the one that is there stays untouched.
    """

    name = "redis"
    title = "Redis"
    deployment = "redis"
    role = Role.STORE
    port = 6379
    # LimitNOFILE in the unit of Debian's package.
    unit_nofile = "min(65535, nofile)"
    packages = ("redis-server",)
    parameters = PARAMETERS
    needs = NEEDS

    @property
    def programs(self) -> Mapping[str, tuple[str, ...]]:
        return {"redis-server": ("redis-server",), "redis-cli": ("redis-cli",)}

    def files(self, site: Site) -> tuple[ConfigFile, ...]:
        return (ConfigFile(_conf(site), "redis/redis.conf.j2"),)

    def leaves(self, site: Site) -> tuple[str, ...]:
        """Files that the server itself makes, and that are to be gone when it is put back."""
        return site.place((), (f"{DATA}/{DUMP}",))

    def unit(self, site: Site) -> str:
        return "redis-server.service"

    def validate(self, site: Site, files: Mapping[str, bytes]) -> TrialStart:
        argv = (*self.start(site, files), "--port", "0",
                "--dir", site.place(".", site.directory), "--dbfilename", "trial.rdb",
                "--unixsocket", "trial.sock",
                # As Debian's unit has it; and what goes wrong is told here, not in the log.
                "--daemonize", "no", "--supervised", "no", "--pidfile", "trial.pid",
                "--logfile", "")  # fmt: skip
        return TrialStart(argv, "trial.sock")

    def start(self, site: Site, files: Mapping[str, bytes]) -> Argv:
        return (*_as(site), site.programs["redis-server"], _conf(site))

    def socket(self, site: Site) -> Endpoint:
        return site.listen

    def effective(self, site: Site) -> tuple[Readback, ...]:
        return in_effect(site, IN_EFFECT, SWITCHES)

    def loader(self, site: Site) -> Loader:
        return loader(site)


SERVICES = (Redis(),)


def _as(site: Site) -> Argv:
    """Debian's unit has a user of Redis' own."""
    if site.user is None:
        return ()
    return as_user(site.place(site.user, "redis"), site.place(site.group or "", "redis"))


def _conf(site: Site) -> str:
    return site.place("redis.conf", "/etc/redis/redis.conf")
