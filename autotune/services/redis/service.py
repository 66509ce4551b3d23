"""Redis: the store behind the cache."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import ClassVar

from autotune.services import option_lines
from autotune.services.adoption import DistributionLayout
from autotune.services.base import (
    Argv,
    Placement,
    Programs,
    ResourceNeeds,
    TrialStart,
    build_user_prefix,
    on_restart,
    with_guidance,
)
from autotune.services.config_files import Config
from autotune.services.diagnosis import Diagnosis, Resource
from autotune.services.redis_protocol import (
    CLIENT_LIMIT,
    COUNTER_QUERY,
    DEBIAN_FILE,
    RedisProtocolServer,
    build_backlog,
    build_client_limit,
)
from autotune.services.unit_files import list_unit_paths

DOCS = "redis.io, redis.conf"
_TLS_PORT_PATTERN = re.compile(rb"(?mi)^[ \t]*tls-port[ \t]")
DATA_DIRECTORY, DUMP_FILE = "/var/lib/redis", "autotune.rdb"
_DEBIAN_LOG = "/var/log/redis/redis-server.log"
build_redis_option = partial(on_restart, source=DOCS)

PARAMETERS = with_guidance((
    build_redis_option("io_threads",
        "Number of threads that write responses. More than one helps only with at least four CPUs.",
        low=1, high="2 * cpus", stock=1, recommended=1),
    build_backlog(source=DOCS),
    build_client_limit(source=DOCS),
    build_redis_option("io_threads_do_reads",
        "Let I/O threads also read and parse requests. This helps only with several threads.",
        stock=False),
    build_redis_option("hz",
        "Background cycles per second, for idle clients, expired keys and rehashing.",
        low=1, high=100, log=True, stock=10),
    build_redis_option("activerehashing",
        "Spend 1 ms of every 100 ms on resizing the main hash table.",
        choices=(False, True), stock=True),
    build_redis_option("tcp_keepalive", "Idle time before TCP keep-alive probes; 0 disables them.",
        low=0, high=600, stock=300, unit="s"),
    build_redis_option("jemalloc_bg_thread", "Return freed memory to the system in a background thread.",
        choices=(False, True), stock=True),
),
    capacity="io_threads maxclients+",
    small="tcp_backlog+ io_threads_do_reads hz- jemalloc_bg_thread",
    safe={"io_threads": (1, "cpus"), "maxclients": (1000, 65_536), "tcp_backlog": (256, 65_535),
          "hz": (5, 50)},
)  # fmt: skip

# Each parameter is an option in the file and in `CONFIG GET`.
PARAMETERS_BY_OPTION = {
    parameter.name.replace("_", "-"): parameter.name for parameter in PARAMETERS
}


class Redis(RedisProtocolServer):
    """A store that keeps its data set across restarts, in a dump that the loader creates once.

    In the distribution's unit, Redis uses a separate dump. An existing dump is not changed.
    """

    name = "redis"
    other_names = ("redis-server", "valkey", "valkey-server", "keydb")
    title = "Redis"
    deployment = "redis"
    port = 6379
    config_paths = ("redis.conf", DEBIAN_FILE)
    template = "redis/redis.conf.j2"
    unit_name = "redis-server.service"
    # The value of LimitNOFILE in Debian's unit.
    unit_nofile = "min(65535, nofile)"
    packages = ("redis-server",)
    programs: ClassVar[Programs] = {"redis-server": ("redis-server",), "redis-cli": ("redis-cli",)}
    parameters = PARAMETERS
    parameters_by_option = PARAMETERS_BY_OPTION
    needs = ResourceNeeds(
        processes="1",
        rss=64 * 2**20,
        source="resident size with a small data set; redis.io, memory optimization",
        connections="maxclients",
    )

    def list_created_files(self, placement: Placement) -> tuple[str, ...]:
        return placement.choose(
            (), (f"{DATA_DIRECTORY}/{DUMP_FILE}",) if placement.adopted is None else ()
        )

    def build_validation(self, placement: Placement, files: Mapping[str, bytes]) -> TrialStart:
        # Only versions with TLS know this option. The running server already listens on the port.
        has_tls_port = any(map(_TLS_PORT_PATTERN.search, files.values()))
        tls_options = ("--tls-port", "0") if has_tls_port else ()
        argv = (*self.build_start_command(placement, files), "--port", "0", *tls_options,
                "--dir", placement.choose(".", placement.directory), "--dbfilename", "trial.rdb",
                "--unixsocket", "trial.sock",
                # Run in the foreground, and print errors instead of logging them.
                "--daemonize", "no", "--supervised", "no", "--pidfile", "trial.pid",
                # The trial start of a replica must not request all data from its master.
                "--logfile", "", "--replicaof", "no", "one")  # fmt: skip
        return TrialStart(argv, "trial.sock")

    def build_start_command(self, placement: Placement, files: Mapping[str, bytes]) -> Argv:
        # Debian's unit runs Redis under the account `redis`.
        user = placement.user and placement.choose(placement.user, "redis")
        group = placement.choose(placement.group, "redis")
        return (
            *build_user_prefix(user, group),
            placement.programs["redis-server"],
            self.config_path(placement),
        )


SERVICES = (Redis(),)


def describe_restart_loss(config: Config) -> str:
    """Return a description of the data that a restart loses: all data, unless Redis writes snapshots (the
    default) or an append-only log.
    """
    value_by_directive = {
        name: line.words[0].strip("\"'")
        for name in ("save", "appendonly")
        for line in config.find_all(name)
        if line.words
    }
    uses_append_file = value_by_directive.get("appendonly", "no").lower() == "yes"
    saves_snapshots = value_by_directive.get("save", "3600") != ""
    return (
        ""
        if uses_append_file or saves_snapshots
        else "Redis stores no data on disk (`save`, `appendonly`)"
    )


def _find_log(placement: Placement) -> str | None:
    """Return the log file that Debian's own configuration sets, or else the unit."""
    unit = Redis().get_unit(placement)
    is_debian_file = placement.adopted is not None and unit == Redis.unit_name
    return placement.choose(None, _DEBIAN_LOG if is_debian_file else unit)


DIAGNOSIS = Diagnosis(
    counter_query=COUNTER_QUERY,
    find_log=_find_log,
    recommended_changes={
        Resource.STORE: ("io_threads+",),
        Resource.CONNECTIONS: ("maxclients+", "tcp_backlog+"),
    },
    threads_parameter="io_threads",
    forks_helpers=True,  # BGSAVE and BGREWRITEAOF
    client_limit=CLIENT_LIMIT,
)

ADOPTION = option_lines.OptionFile(
    Redis(),
    PARAMETERS_BY_OPTION,
    port_option="port",
    tls_port_option="tls-port",
    address_option="bind",
    paths=(
        "etc/redis",
        "etc/redis.conf",
        *(
            path
            for unit in ("redis-server.service", "redis.service", "redis@default.service")
            for path in list_unit_paths(unit)
        ),
    ),
    version_script="redis-server --version | sed -n 's,.* v=\\([^ ]*\\).*,Redis \\1,p'",
    describe_loss=describe_restart_loss,
    other_layouts=(
        DistributionLayout("Fedora, RHEL 9 and later", "redis.service", "/etc/redis/redis.conf"),
        DistributionLayout("RHEL 8 and earlier", "redis.service", "/etc/redis.conf"),
        DistributionLayout(
            "SUSE, instance `default`", "redis@default.service", "/etc/redis/default.conf"
        ),
    ),
).build_adoption()
