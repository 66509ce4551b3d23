"""Apache's worker states, and rules for a lack of workers.

Workers are processes if Apache runs PHP itself, else threads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

from autotune.services.apache.service import STATUS_HOST, asking
from autotune.services.diagnosis import (
    KEPT,
    WORKING,
    CounterQuery,
    Diagnosis,
    Finding,
    PartReading,
    Resource,
    WorkerPool,
)

# Worker states with a request: reading, sending, DNS lookup, logging.
_LETTERS = {WORKING: "RWDL", KEPT: "K"}
LEVELS = frozenset({"BusyWorkers", "IdleWorkers", "Processes"})


def doing(text: str) -> Mapping[str, float]:
    """Return the numbers of busy and of kept-alive workers, without the one that answers. Empty
    without a scoreboard, which has a letter per worker (mod_status)."""
    scoreboard = re.search(r"(?m)^Scoreboard: (\S+)", text)
    if scoreboard is None:
        return {}
    count = {name: sum(map(scoreboard[1].count, letters)) for name, letters in _LETTERS.items()}
    return {WORKING: max(0.0, count[WORKING] - 1.0), KEPT: float(count[KEPT])}


_pool = partial(
    WorkerPool,
    let_go="lower KeepAliveTimeout",
    asked=True,
    logged=("max_workers", "server reached MaxRequestWorkers setting"),
)
PROCESSES = _pool(
    processes="MaxRequestWorkers",
    more="raise MaxRequestWorkers",
    sooner="raise StartServers and MinSpareServers",
)
THREADS = _pool(
    processes="ServerLimit",
    threads="ThreadsPerChild",
    more="raise ServerLimit or ThreadsPerChild",
    sooner="raise StartServers and MinSpareThreads",
)


def workers(part: PartReading) -> Finding | None:
    """Apply the worker rule of the active module, after those of the tiers behind, which it waits for."""
    if part.activity.runs_application:
        return PROCESSES.taken(part)
    return THREADS.taken(part) if part.setting("ThreadsPerChild") else None


MORE_WORKERS = (
    "MaxRequestWorkers+", "ServerLimit+", "ThreadsPerChild+", "StartServers+",
    "MinSpareServers+", "MinSpareThreads+", "KeepAliveTimeout-",
)  # fmt: skip
DIAGNOSIS = Diagnosis(
    counters=CounterQuery(
        question=f"GET /server-status?auto HTTP/1.0\r\nHost: {STATUS_HOST}\r\n\r\n".encode(),
        complete=lambda _: False,  # the server closes the connection
        command=lambda site: asking(site, "status?auto"),
        names=LEVELS,
        levels=LEVELS | {WORKING, KEPT},
        more=doing,
        at_home=True,
    ),
    log=lambda site: site.place(
        f"{site.directory}/apache2-error.log", "/var/log/apache2/error.log"
    ),
    complaints={
        # Apache logs this once until it is restarted.
        "max_workers": re.compile(r"reached MaxRequestWorkers|scoreboard is full"),
        "no_live_upstreams": re.compile(r"All workers are in error state"),
        "upstream_timed_out": re.compile(r"\(70007\)The timeout specified"),
        "upstream_refused": re.compile(r"\(111\)Connection refused"),
        # The queue of an application server's unix socket is full.
        "upstream_queue_full": re.compile(r"\(11\)Resource temporarily unavailable: AH02454"),
    },
    moves={
        Resource.CPU: ("KeepAlive=True", "MaxKeepAliveRequests+", "BufferedLogs=True"),
        Resource.WORKERS: MORE_WORKERS,
        Resource.CONNECTIONS: ("MaxRequestWorkers+", "ServerLimit+", "ListenBacklog+"),
        Resource.MEMORY: ("MaxRequestWorkers-", "ServerLimit-"),
    },
    worker_rules=(workers,),
)
