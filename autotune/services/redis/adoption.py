"""Which options of Redis are parameters."""

from __future__ import annotations

from collections.abc import Iterator

from autotune.services import option_lines
from autotune.services.adoption import Adoption, RunningHost, RunningService
from autotune.services.config_files import gather, included
from autotune.services.directives import NUMBER, YES_NO, Accepts, Adopted
from autotune.services.option_lines import Options

MAIN = "/etc/redis/redis.conf"
OPTIONS: Options = (
    ("io-threads", "io_threads", NUMBER, 1),
    ("tcp-backlog", "tcp_backlog", NUMBER, 511),
    ("maxclients", "maxclients", NUMBER, 10_000),
    ("io-threads-do-reads", "io_threads_do_reads", YES_NO, False),
    ("hz", "hz", NUMBER, 10),
    ("activerehashing", "activerehashing", YES_NO, True),
    ("tcp-keepalive", "tcp_keepalive", NUMBER, 300),
    ("jemalloc-bg-thread", "jemalloc_bg_thread", YES_NO, True),
)


def find(host: RunningHost) -> Iterator[RunningService]:
    if host.runs("redis-server.service"):
        config = gather(host.tree, MAIN, option_lines.read, included)
        port = option_lines.last_number(config, "port", 6379)
        yield RunningService(host=host, key="redis", config=config, kind="store", port=port)


def tune(service: RunningService, accepts: Accepts) -> Adopted:
    return option_lines.tune(service.config, OPTIONS, accepts)


ADOPTION = Adoption(
    known_as="Redis",
    units=("redis-server.service",),
    paths=("etc/redis",),
    version="runs redis-server.service &&"
    " redis-server --version | sed -n 's,.* v=\\([^ ]*\\).*,Redis \\1,p'",
    find=find,
    tune=tune,
)
