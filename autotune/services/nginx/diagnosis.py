"""What nginx says and runs out of."""

from __future__ import annotations

import re

from autotune.services.base import Site
from autotune.services.diagnosis import TOLD, Diagnosis, Finding, PartReading, Resource


def _log(site: Site) -> str:
    return site.place(f"{site.directory}/nginx-error.log", "/var/log/nginx/error.log")


def _connections(part: PartReading) -> Finding | None:
    """Out of connections it resets clients."""
    if not (part.mostly_errors and part.activity.complaints.get("worker_connections")):
        return None
    limit = part.setting("worker_connections")
    workers = part.setting("worker_processes") or part.activity.workers
    return Finding(
        Resource.CONNECTIONS,
        f"“worker_connections are not enough” in its log: {workers} workers of {limit}"
        f" connections, two for each request; {part.failed} requests failed:"
        " raise worker_connections",
        TOLD,
    )


DIAGNOSIS = Diagnosis(
    counters=None,
    log=_log,
    complaints={
        "worker_connections": re.compile(r"worker_connections are not enough"),
        "no_live_upstreams": re.compile(r"no live upstreams"),
        "upstream_timed_out": re.compile(r"upstream timed out"),
        "upstream_refused": re.compile(r"connect\(\).* failed \(111"),
        "upstream_queue_full": re.compile(r"connect\(\).* failed \(11:"),
    },
    moves={
        Resource.WORKERS: ("worker_processes+",),
        Resource.CONNECTIONS: (
            "worker_connections+",
            "worker_processes+",
            "backlog+",
            "upstream_keepalive+",
        ),
    },
    threads="worker_processes",
    refusal_rules=(_connections,),
)
