"""Redis: the store behind the cache."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

from autotune.services import option_lines
from autotune.services.adoption import Layout
from autotune.services.base import Argv, Needs, Programs, Site, TrialStart, guided, on_restart
from autotune.services.config_files import Config
from autotune.services.diagnosis import Diagnosis, Resource
from autotune.services.redis_protocol import (
    CLIENT_LIMIT,
    COUNTERS,
    RedisProtocolServer,
    as_user,
    backlog,
    clients,
)

SOURCE = "redis.io, redis.conf"
DATA, DUMP = "/var/lib/redis", "autotune.rdb"
option = partial(on_restart, source=SOURCE)

PARAMETERS = guided((
    option("io_threads", "Threads that write answers; advised only from four CPUs on.",
        low=1, high="2 * cpus", stock=1, recommended=1),
    backlog(source=SOURCE),
    clients(source=SOURCE),
    option("io_threads_do_reads",
        "Whether the threads read and parse requests too; of use with more than one.", stock=False),
    option("hz", "Background rounds a second: idle clients, expired keys, rehashing.",
        low=1, high=100, log=True, stock=10),
    option("activerehashing",
        "Whether a millisecond in a hundred goes into resizing the main hash table.",
        choices=(False, True), stock=True),
    option("tcp_keepalive", "Time after which silent clients are asked whether they live; 0 never asks.",
        low=0, high=600, stock=300, unit="s"),
    option("jemalloc_bg_thread", "Whether freed memory goes back to the system in a thread of its own.",
        choices=(False, True), stock=True),
),
    capacity="io_threads maxclients+",
    small="tcp_backlog+ io_threads_do_reads hz- jemalloc_bg_thread",
    safe={"io_threads": (1, "cpus"), "maxclients": (1000, 65_536), "tcp_backlog": (256, 65_535),
          "hz": (5, 50)},
)  # fmt: skip

# Every one is an option of its file, and shown by `CONFIG GET`.
OPTIONS = {parameter.name.replace("_", "-"): parameter.name for parameter in PARAMETERS}


class Redis(RedisProtocolServer):
    """Keeps its data set across restarts in the dump that the loader makes once.

    Under the distribution's unit that is a dump of its own: the one that is there stays untouched.
    """

    name = "redis"
    title = "Redis"
    deployment = "redis"
    port = 6379
    config = ("redis.conf", "/etc/redis/redis.conf")
    template = "redis/redis.conf.j2"
    unit_name = "redis-server.service"
    # LimitNOFILE in the unit of Debian's package.
    unit_nofile = "min(65535, nofile)"
    packages = ("redis-server",)
    programs: ClassVar[Programs] = {"redis-server": ("redis-server",), "redis-cli": ("redis-cli",)}
    parameters = PARAMETERS
    in_effect = OPTIONS
    needs = Needs(
        processes="1",
        rss=64 * 2**20,
        source="resident size with a small data set; redis.io, memory optimization, gives the rest",
        connections="maxclients",
    )

    def leaves(self, site: Site) -> tuple[str, ...]:
        return site.place((), (f"{DATA}/{DUMP}",) if site.own is None else ())

    def validate(self, site: Site, files: Mapping[str, bytes]) -> TrialStart:
        argv = (*self.start(site, files), "--port", "0",
                "--dir", site.place(".", site.directory), "--dbfilename", "trial.rdb",
                "--unixsocket", "trial.sock",
                # In the foreground, and errors are printed here, not in the log.
                "--daemonize", "no", "--supervised", "no", "--pidfile", "trial.pid",
                # A trial start of a replica must not ask its master for all data.
                "--logfile", "", "--replicaof", "no", "one")  # fmt: skip
        return TrialStart(argv, "trial.sock")

    def start(self, site: Site, files: Mapping[str, bytes]) -> Argv:
        # Debian's unit has a user of Redis' own.
        user = site.user and site.place(site.user, "redis")
        group = site.place(site.group, "redis")
        return (*as_user(user, group), site.programs["redis-server"], self.config_path(site))


SERVICES = (Redis(),)


def loses(config: Config) -> str:
    """What a restart would lose: all data, if it has neither snapshots (on by default) nor a log."""
    last = {name: line.words[0].strip("\"'") for name in ("save", "appendonly")
            for line in config.called(name) if line.words}  # fmt: skip
    appends = last.get("appendonly", "no").lower() == "yes"
    saves = last.get("save", "3600") != ""
    return "" if appends or saves else "Redis saves nothing to disk (`save`, `appendonly`)"


DIAGNOSIS = Diagnosis(
    counters=COUNTERS,
    log=lambda site: site.place(None, Redis().unit(site)),
    moves={
        Resource.STORE: ("io_threads+",),
        Resource.CONNECTIONS: ("maxclients+", "tcp_backlog+"),
    },
    threads="io_threads",
    clients=CLIENT_LIMIT,
)

ADOPTION = option_lines.adoption(
    Redis(),
    OPTIONS,
    port="port",
    address="bind",
    paths=("etc/redis", "etc/redis.conf"),
    version="redis-server --version | sed -n 's,.* v=\\([^ ]*\\).*,Redis \\1,p'",
    loses=loses,
    others=(
        Layout("Fedora, RHEL from 9", "redis.service", "/etc/redis/redis.conf"),
        Layout("RHEL to 8", "redis.service", "/etc/redis.conf"),
        Layout(
            "SUSE, its instance named default", "redis@default.service", "/etc/redis/default.conf"
        ),
    ),
)
