"""Counters, log patterns and rules of HAProxy."""

from __future__ import annotations

import re

from autotune.services.diagnosis import (
    MEASURED,
    QUEUED,
    CounterQuery,
    Diagnosis,
    Finding,
    PartReading,
    Resource,
)
from autotune.services.haproxy.stats import QUESTION, asking, counters, socket_of


def _connections(part: PartReading) -> Finding | None:
    """Return a finding if connections are the bottleneck. It covers three cases: requests wait
    longer for a web host than it takes to answer, clients wait for a connection, or web hosts
    refuse connections."""
    counted, activity = part.activity.counters, part.activity
    waited, answered = counted.get("qtime", 0.0), counted.get("rtime", 0.0)
    limit, sessions = part.setting("server_maxconn"), counted.get("slim", 0.0)
    why = ""
    if limit and waited > answered:
        why = (
            f"up to {counted['qmax']:.0f} requests waited {waited:.0f} ms on average for a web host"
            f" (limit {limit}, answers in {answered:.0f} ms): raise server_maxconn"
        )
    elif sessions and counted["smax"] >= sessions and activity.queued >= QUEUED:
        why = (
            f"all of its {sessions:.0f} connections were in use and {activity.waiting:.0f} waited"
            f" (up to {activity.waiting_max}): raise maxconn"
        )
    elif part.mostly_errors and (again := counted.get("wretr", 0.0)):
        why = (
            f"HAProxy retried connections to web hosts {again:.0f} times and {counted['econ']:.0f}"
            " failed: raise the web hosts' backlog, or keep connections open"
        )
    return Finding(Resource.CONNECTIONS, why, MEASURED) if why else None


DIAGNOSIS = Diagnosis(
    counters=CounterQuery(
        question=f"{QUESTION}\n".encode(),
        complete=lambda _: False,  # the server closes the connection
        command=asking,
        names=frozenset(("CumConns", "Idle_pct")),
        levels=frozenset(("Idle_pct", "qcur", "qmax", "qtime", "rtime", "smax", "slim")),
        more=counters,
        at_home=True,
        socket=socket_of,
    ),
    log=lambda site: site.place(f"{site.directory}/haproxy.out", "haproxy.service"),
    # A word of the log line encodes the end of a request: s timeout, S server; Q queue, C
    # connecting.
    complaints={
        "queue_timeout": re.compile(r" sQ[\w-]{2} "),
        "no_live_upstreams": re.compile(r"has no server available"),
        "upstream_timed_out": re.compile(r" s[CH][\w-]{2} "),
        "upstream_refused": re.compile(r" SC[\w-]{2} "),
        "open_files": re.compile(r"reached (process|system) FD limit|Too many open files"),
        "no_ports": re.compile(r"no free ports|Cannot assign requested address"),
    },
    moves={
        Resource.WORKERS: ("nbthread+",),
        Resource.CONNECTIONS: ("maxconn+", "server_maxconn+", "backlog+"),
        Resource.MEMORY: ("maxconn-",),
    },
    threads="nbthread",
    worker_rules=(_connections,),
)
