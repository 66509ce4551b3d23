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
    option("io_threads",
        "Number of threads that write responses. Advised only with at least four CPUs.",
        low=1, high="2 * cpus", stock=1, recommended=1),
    backlog(source=SOURCE),
    clients(source=SOURCE),
    option("io_threads_do_reads",
        "Let I/O threads also read and parse requests. Useful with more than one thread.", stock=False),
    option("hz", "Background cycles per second: idle clients, expired keys, rehashing.",
        low=1, high=100, log=True, stock=10),
    option("activerehashing",
        "Spend 1 ms of every 100 ms on resizing the main hash table.",
        choices=(False, True), stock=True),
    option("tcp_keepalive", "Idle time before TCP keep-alive probes; 0 disables them.",
        low=0, high=600, stock=300, unit="s"),
    option("jemalloc_bg_thread", "Return freed memory to the system in a background thread.",
        choices=(False, True), stock=True),
),
    capacity="io_threads maxclients+",
    small="tcp_backlog+ io_threads_do_reads hz- jemalloc_bg_thread",
    safe={"io_threads": (1, "cpus"), "maxclients": (1000, 65_536), "tcp_backlog": (256, 65_535),
          "hz": (5, 50)},
)  # fmt: skip

# Each is an option in its file and in `CONFIG GET`.
OPTIONS = {parameter.name.replace("_", "-"): parameter.name for parameter in PARAMETERS}


class Redis(RedisProtocolServer):
    """A store that keeps its data set across restarts in a dump that the loader creates once.

    Under the distribution's unit it uses a separate dump. An existing dump is not changed.
    """

    name = "redis"
    title = "Redis"
    deployment = "redis"
    port = 6379
    config = ("redis.conf", "/etc/redis/redis.conf")
    template = "redis/redis.conf.j2"
    unit_name = "redis-server.service"
    # LimitNOFILE in Debian's unit.
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
                # In the foreground, with errors printed here instead of in the log.
                "--daemonize", "no", "--supervised", "no", "--pidfile", "trial.pid",
                # A trial start of a replica must not request all data from its master.
                "--logfile", "", "--replicaof", "no", "one")  # fmt: skip
        return TrialStart(argv, "trial.sock")

    def start(self, site: Site, files: Mapping[str, bytes]) -> Argv:
        # Debian's unit runs as Redis' own user.
        user = site.user and site.place(site.user, "redis")
        group = site.place(site.group, "redis")
        return (*as_user(user, group), site.programs["redis-server"], self.config_path(site))


SERVICES = (Redis(),)


def loses(config: Config) -> str:
    """Return the data that a restart loses: all, without snapshots (the default) or an append-only
    log.
    """
    last = {name: line.words[0].strip("\"'") for name in ("save", "appendonly")
            for line in config.called(name) if line.words}  # fmt: skip
    appends = last.get("appendonly", "no").lower() == "yes"
    saves = last.get("save", "3600") != ""
    return "" if appends or saves else "Redis stores no data on disk (`save`, `appendonly`)"


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
