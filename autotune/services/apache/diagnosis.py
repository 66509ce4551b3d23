"""Parse Apache's worker states, and detect a lack of workers.

Workers are processes if Apache itself runs PHP, and otherwise threads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

from autotune.services.apache.service import STATUS_HOST, build_status_command
from autotune.services.base import Placement
from autotune.services.diagnosis import (
    BUSY_WORKERS,
    KEEPALIVE_WORKERS,
    CounterQuery,
    Diagnosis,
    InstanceReading,
    Resource,
    ResourceShortage,
    WorkerPool,
)

# Scoreboard letters of workers that have a request (reading, sending, DNS lookup, logging), and of
# workers that hold an idle keep-alive connection.
_SCOREBOARD_LETTERS = {BUSY_WORKERS: "RWDL", KEEPALIVE_WORKERS: "K"}
LEVEL_COUNTERS = frozenset({"BusyWorkers", "IdleWorkers", "Processes"})


def count_workers(status_text: str) -> Mapping[str, float]:
    """Return the numbers of busy workers and of workers that hold an idle keep-alive connection.

    The worker that serves the status page is not counted. The result is empty if the page lacks a
    scoreboard, which contains one letter per worker (mod_status).
    """
    scoreboard = re.search(r"(?m)^Scoreboard: (\S+)", status_text)
    if scoreboard is None:
        return {}
    letter_counts = {
        name: sum(map(scoreboard[1].count, letters))
        for name, letters in _SCOREBOARD_LETTERS.items()
    }
    return {
        BUSY_WORKERS: max(0.0, letter_counts[BUSY_WORKERS] - 1.0),
        KEEPALIVE_WORKERS: float(letter_counts[KEEPALIVE_WORKERS]),
    }


_build_worker_pool = partial(
    WorkerPool,
    keepalive_advice="lower KeepAliveTimeout",
    answers_queries=True,
    log_complaint=("max_workers", "server reached MaxRequestWorkers setting"),
)
PREFORK_POOL = _build_worker_pool(
    processes_parameter="MaxRequestWorkers",
    increase_advice="raise MaxRequestWorkers",
    faster_start_advice="raise StartServers and MinSpareServers",
)
EVENT_POOL = _build_worker_pool(
    processes_parameter="ServerLimit",
    threads_parameter="ThreadsPerChild",
    increase_advice="raise ServerLimit or ThreadsPerChild",
    faster_start_advice="raise StartServers and MinSpareThreads",
)


def detect_exhausted_workers(reading: InstanceReading) -> ResourceShortage | None:
    """Return a shortage if the workers of Apache's active processing module are exhausted. Rules of
    back-end tiers apply first, because Apache's workers wait for those tiers.
    """
    if reading.activity.runs_application:
        return PREFORK_POOL.detect_exhaustion(reading)
    return EVENT_POOL.detect_exhaustion(reading) if reading.get_setting("ThreadsPerChild") else None


def _find_log(placement: Placement) -> str:
    """Return the path of the error log in the layout of the distribution."""
    is_httpd = placement.adopted is not None and placement.adopted.unit == "httpd.service"
    installed_log = "/var/log/httpd/error_log" if is_httpd else "/var/log/apache2/error.log"
    return placement.choose(f"{placement.directory}/apache2-error.log", installed_log)


WORKER_CHANGES = (
    "MaxRequestWorkers+", "ServerLimit+", "ThreadsPerChild+", "StartServers+",
    "MinSpareServers+", "MinSpareThreads+", "KeepAliveTimeout-",
)  # fmt: skip
DIAGNOSIS = Diagnosis(
    counter_query=CounterQuery(
        request=f"GET /server-status?auto HTTP/1.0\r\nHost: {STATUS_HOST}\r\n\r\n".encode(),
        is_complete=lambda _: False,  # the reply ends when the server closes the connection
        build_command=lambda site: build_status_command(site, "status?auto"),
        counter_names=LEVEL_COUNTERS,
        level_names=LEVEL_COUNTERS | {BUSY_WORKERS, KEEPALIVE_WORKERS},
        parse_counters=count_workers,
        is_local_only=True,
    ),
    find_log=_find_log,
    complaint_patterns={
        # Apache logs this message only once per start.
        "max_workers": re.compile(r"reached MaxRequestWorkers|scoreboard is full"),
        "no_live_upstreams": re.compile(r"All workers are in error state"),
        "upstream_timed_out": re.compile(r"\(70007\)The timeout specified"),
        "upstream_refused": re.compile(r"\(111\)Connection refused"),
        # The accept queue of an application server's Unix socket is full.
        "upstream_queue_full": re.compile(r"\(11\)Resource temporarily unavailable: AH02454"),
    },
    recommended_changes={
        Resource.CPU: ("KeepAlive=True", "MaxKeepAliveRequests+", "BufferedLogs=True"),
        Resource.WORKERS: WORKER_CHANGES,
        Resource.CONNECTIONS: ("MaxRequestWorkers+", "ServerLimit+", "ListenBacklog+"),
        Resource.MEMORY: ("MaxRequestWorkers-", "ServerLimit-"),
        Resource.HANDSHAKES: ("KeepAlive=True", "KeepAliveTimeout+", "MaxKeepAliveRequests+"),
        Resource.UPSTREAM_HANDSHAKES: ("proxy_disablereuse=False", "proxy_max+", "proxy_smax+"),
    },
    worker_rules=(detect_exhausted_workers,),
)
