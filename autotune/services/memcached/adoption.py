"""Which options of memcached are parameters."""

from __future__ import annotations

from collections.abc import Iterator

from autotune.services import option_lines
from autotune.services.adoption import Adoption, RunningHost, RunningService
from autotune.services.config_files import gather
from autotune.services.directives import NUMBER, REAL, Accepts, Adopted
from autotune.services.option_lines import Options

MAIN = "/etc/memcached.conf"
OPTIONS: Options = (
    ("-t", "threads", NUMBER, 4),
    ("-c", "connections", NUMBER, 1024),
    ("-R", "requests_per_event", NUMBER, 20),
    ("-m", "memory", NUMBER, 64),
    ("-b", "backlog", NUMBER, 1024),
    ("-f", "growth_factor", REAL, 1.25),
    ("-n", "chunk_size", NUMBER, 48),
)


def find(host: RunningHost) -> Iterator[RunningService]:
    if host.runs("memcached.service"):
        config = gather(host.tree, MAIN, option_lines.read, lambda _: None)
        port = option_lines.last_number(config, "-p", 11211)
        yield RunningService(host=host, key="memcached", config=config, kind="cache", port=port)


def tune(service: RunningService, accepts: Accepts) -> Adopted:
    return option_lines.tune(service.config, OPTIONS, accepts)


ADOPTION = Adoption(
    known_as="memcached",
    units=("memcached.service",),
    paths=("etc/memcached.conf",),
    version="runs memcached.service && memcached -V",
    find=find,
    tune=tune,
)
