"""What Redis counts, says and runs out of."""

from __future__ import annotations

from autotune.services.base import Site
from autotune.services.diagnosis import Diagnosis, Resource
from autotune.services.redis_protocol import CLIENT_LIMIT, COUNTERS


def _log(site: Site) -> str | None:
    return site.place(None, "redis-server.service")


DIAGNOSIS = Diagnosis(
    counters=COUNTERS,
    log=_log,
    moves={
        Resource.STORE: ("io_threads+",),
        Resource.CONNECTIONS: ("maxclients+", "tcp_backlog+"),
    },
    threads="io_threads",
    clients=CLIENT_LIMIT,
)
