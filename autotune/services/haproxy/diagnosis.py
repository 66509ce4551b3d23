"""Counters, log patterns and rules of HAProxy."""

from __future__ import annotations

import re

from autotune.services.diagnosis import (
    MEASURED,
    MIN_QUEUED_FRACTION,
    CounterQuery,
    Diagnosis,
    InstanceReading,
    Resource,
    ResourceShortage,
)
from autotune.services.haproxy.stats import (
    STATS_COMMANDS,
    build_stats_command,
    find_stats_socket,
    parse_counters,
)


def _detect_exhausted_connections(reading: InstanceReading) -> ResourceShortage | None:
    """Return a shortage if connections are the bottleneck. There are three cases:

    - Requests wait for a web host longer than the web host takes to respond.
    - All connections are in use, and clients wait.
    - Web hosts refuse connections.
    """
    counters, activity = reading.activity.counters, reading.activity
    wait_ms, response_ms = counters.get("qtime", 0.0), counters.get("rtime", 0.0)
    server_limit, session_limit = reading.get_setting("server_maxconn"), counters.get("slim", 0.0)
    is_full = counters.get("reached_limit") or counters.get("scur", 0.0) >= session_limit > 0
    evidence = ""
    if server_limit and wait_ms > response_ms:
        evidence = (
            f"requests waited {wait_ms:.0f} ms on average for a web host"
            f" (limit {server_limit}, response time {response_ms:.0f} ms): raise server_maxconn"
        )
    elif is_full and activity.queued_fraction >= MIN_QUEUED_FRACTION:
        evidence = (
            f"all of its {session_limit:.0f} connections were in use and "
            f"{activity.waiting_connections:.0f} waited"
            f" (up to {activity.max_waiting}): raise maxconn"
        )
    elif reading.errors_dominate and (retry_count := counters.get("wretr", 0.0)):
        evidence = (
            f"HAProxy retried connections to web hosts {retry_count:.0f} times and {counters['econ']:.0f}"
            " failed: raise the web hosts' backlog, or keep connections open"
        )
    return ResourceShortage(Resource.CONNECTIONS, evidence, MEASURED) if evidence else None


DIAGNOSIS = Diagnosis(
    counter_query=CounterQuery(
        request=f"{STATS_COMMANDS}\n".encode(),
        is_complete=lambda _: False,  # the reply ends when the server closes the connection
        build_command=build_stats_command,
        counter_names=frozenset(("CumConns", "Idle_pct")),
        level_names=frozenset(("Idle_pct", "qcur", "qtime", "rtime", "scur", "slim")),
        parse_counters=parse_counters,
        is_local_only=True,
        interval_seconds=2.0,
        find_socket=find_stats_socket,
    ),
    find_log=lambda site: site.choose(f"{site.directory}/haproxy.out", "haproxy.service"),
    # In a log line, one word encodes how the request ended. The letters of the word are s (timeout), S
    # (server), Q (queue), C (connecting) and H (waiting for headers).
    complaint_patterns={
        "queue_timeout": re.compile(r" sQ[\w-]{2} "),
        "no_live_upstreams": re.compile(r"has no server available"),
        "upstream_timed_out": re.compile(r" s[CH][\w-]{2} "),
        "upstream_refused": re.compile(r" SC[\w-]{2} "),
        "open_files": re.compile(r"reached (process|system) FD limit|Too many open files"),
        "no_ports": re.compile(r"no free ports|Cannot assign requested address"),
    },
    recommended_changes={
        Resource.WORKERS: ("nbthread+",),
        Resource.CONNECTIONS: ("maxconn+", "server_maxconn+", "backlog+"),
        Resource.MEMORY: ("maxconn-",),
        Resource.HANDSHAKES: ("timeout_http_keep_alive+",),
        Resource.UPSTREAM_HANDSHAKES: (
            "http_server_close=False",
            "http_reuse=safe",
            "pool_purge_delay+",
        ),
    },
    threads_parameter="nbthread",
    worker_rules=(_detect_exhausted_connections,),
)
