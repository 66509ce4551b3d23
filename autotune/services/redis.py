"""Redis: the store behind the cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.services.base import (
    Action,
    Argv,
    ConfigFile,
    Endpoint,
    Parameter,
    Readback,
    Site,
    TrialStart,
)
from autotune.services.needs import Needs
from autotune.services.readback import alternating

SOURCE = "redis.io, redis.conf"

PARAMETERS = (
    Parameter(
        name="io_threads", low=1, high="2 * cpus", stock=1, recommended=1,
        action=Action.RESTART, source=SOURCE,
        meaning="Threads that write answers; advised only from four CPUs on.",
    ),
    Parameter(
        name="tcp_backlog", low=64, high=65535, log=True, stock=511, recommended=4096,
        action=Action.RESTART, source=SOURCE,
        meaning="Connections that may wait to be accepted; the kernel caps it at somaxconn.",
    ),
    Parameter(
        name="maxclients", low=128, high="min(65536, nofile - 100)", log=True, stock=10_000,
        action=Action.RESTART, source=SOURCE,
        meaning="Clients at one time; more are refused.",
    ),
)  # fmt: skip

DATA, DUMP = "/var/lib/redis", "autotune.rdb"
IN_EFFECT = {"io-threads": "io_threads", "tcp-backlog": "tcp_backlog", "maxclients": "maxclients"}

NEEDS = Needs(
    processes="1",
    rss=64 * 2**20,
    source="resident size with a small data set; redis.io, memory optimization, gives the rest",
    connections="maxclients",
)


@dataclass(frozen=True)
class Redis:
    """Keeps its data set across restarts in the dump that the loader makes once.

    Under the distribution's unit that is a dump of its own: the one that is there stays untouched.
    """

    name: str = "redis"
    packages: tuple[str, ...] = ("redis-server",)
    parameters: tuple[Parameter, ...] = PARAMETERS
    at_most: tuple[tuple[str, str], ...] = ()
    reload_signal: str | None = None
    needs: Needs = NEEDS

    @property
    def programs(self) -> Mapping[str, tuple[str, ...]]:
        return {"redis-server": ("redis-server",), "redis-cli": ("redis-cli",)}

    def files(self, site: Site) -> tuple[ConfigFile, ...]:
        return (ConfigFile(_conf(site), "redis/redis.conf.j2"),)

    def leaves(self, site: Site) -> tuple[str, ...]:
        """Files that the server itself makes, and that are to be gone when it is put back."""
        return (f"{DATA}/{DUMP}",) if site.runtime == "systemd" else ()

    def unit(self, site: Site) -> str:
        return "redis-server.service"

    def validate(self, site: Site, files: Mapping[str, bytes]) -> TrialStart:
        argv = (*self.start(site, files), "--port", "0",
                "--dir", site.place(".", site.directory), "--dbfilename", "trial.rdb",
                "--unixsocket", "trial.sock")  # fmt: skip
        return TrialStart(argv, "trial.sock")

    def start(self, site: Site, files: Mapping[str, bytes]) -> Argv:
        return (*_as(site), site.programs["redis-server"], _conf(site))

    def socket(self, site: Site) -> Endpoint:
        return site.listen

    def effective(self, site: Site) -> tuple[Readback, ...]:
        argv = (site.programs["redis-cli"], "-h", site.listen.host, "-p", str(site.listen.port),
                "CONFIG", "GET", "*")  # fmt: skip
        return (Readback(argv, alternating(IN_EFFECT)),)


def _as(site: Site) -> Argv:
    """Redis cannot drop to another user by itself: util-linux' ``setpriv`` does it before."""
    if site.user is None:
        return ()
    user, group = site.place(site.user, "redis"), site.place(site.group or "", "redis")
    return ("setpriv", f"--reuid={user}", f"--regid={group}", "--init-groups")


def _conf(site: Site) -> str:
    return site.place("redis.conf", "/etc/redis/redis.conf")
