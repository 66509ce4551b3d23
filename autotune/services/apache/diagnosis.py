"""What Apache shows of its workers, and when it lacks them: processes where it runs PHP itself,
threads of processes elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping

from autotune.services.apache.service import STATUS_HOST, asking
from autotune.services.diagnosis import (
    FULL,
    INFERRED,
    KEPT,
    MEASURED,
    QUEUED,
    TOLD,
    WORKING,
    CounterQuery,
    Diagnosis,
    Finding,
    PartActivity,
    PartReading,
    Resource,
)

AROUND = 2  # times it is asked in any reading: before there is load and after
BUSY = 0.75  # of the workers, which are asked for once a second
# Waiting connections per worker: they add less than a tenth of a request's time (Little's law).
FLEETING = 0.1
# A worker that has a request in hand: it reads it, works on it, asks for a name, logs it.
_LETTERS = {WORKING: "RWDL", KEPT: "K"}
LEVELS = frozenset({"BusyWorkers", "IdleWorkers", "Processes"})


def doing(text: str) -> Mapping[str, float]:
    """Workers that have a request in hand, the one that answers this not counted, and those that
    wait for the next one of a kept connection, off the scoreboard: a letter each (mod_status).
    Nothing where there is no scoreboard."""
    scoreboard = re.search(r"(?m)^Scoreboard: (\S+)", text)
    if scoreboard is None:
        return {}
    count = {name: sum(map(scoreboard[1].count, letters)) for name, letters in _LETTERS.items()}
    return {WORKING: max(0.0, count[WORKING] - 1.0), KEPT: float(count[KEPT])}


def workers(part: PartReading) -> Finding | None:
    """All its workers are busy and connections wait to be accepted. What is behind comes first:
    a load balancer whose web servers lack workers runs out of its own."""
    activity, most = part.activity, part.setting("MaxRequestWorkers")
    if most is None or activity.queued < QUEUED or not activity.workers:
        return None
    threads = part.setting("ThreadsPerChild") or 1
    there = min(activity.workers * threads, most)
    kept = activity.counters.get(KEPT, 0.0)
    logged = "max_workers" in activity.complaints
    # A server that leaves the question about its state waiting has nobody to answer it.
    exhausted = bool(activity.unanswered) or activity.occupied + kept >= BUSY * there
    # A reading cut short ends before anybody was asked; but whoever is free accepts at once,
    # unless the machine keeps it from running for a moment.
    unasked = activity.answers + activity.unanswered <= AROUND
    inferred = unasked and there >= FULL * most and activity.waiting >= FLEETING * there
    if not (logged or exhausted or inferred):
        return None
    return Finding(
        Resource.WORKERS,
        f"{_observed(activity, kept, logged=logged)} of {there} workers, {most} allowed;"
        f" {activity.waiting:.0f} connections waited at its socket (up to {activity.waiting_max}):"
        f" {_move(there, most, threads, kept)}",
        TOLD if logged else MEASURED if exhausted else INFERRED,
    )


def _observed(part: PartActivity, kept: float, *, logged: bool) -> str:
    if logged:
        return "“server reached MaxRequestWorkers setting” in its log"
    if part.unanswered:
        return f"none free to tell of its state, {part.unanswered} times,"
    if part.answers <= AROUND and not part.occupied:
        return "not one free"
    return f"{part.occupied:.0f} busy" + (
        f" and {kept:.0f} held by kept connections" if kept else ""
    )


def _move(there: int, most: int, threads: int, kept: float) -> str:
    if there < FULL * most:
        spare = "MinSpareServers" if threads == 1 else "MinSpareThreads"
        return f"they are started too slowly: raise StartServers and {spare}"
    if kept > 0.5 * there:
        return "lower KeepAliveTimeout"
    return "raise MaxRequestWorkers" if threads == 1 else "raise ServerLimit or ThreadsPerChild"


MORE_WORKERS = (
    "MaxRequestWorkers+", "ServerLimit+", "ThreadsPerChild+", "StartServers+",
    "MinSpareServers+", "MinSpareThreads+", "KeepAliveTimeout-",
)  # fmt: skip
DIAGNOSIS = Diagnosis(
    counters=CounterQuery(
        question=f"GET /server-status?auto HTTP/1.0\r\nHost: {STATUS_HOST}\r\n\r\n".encode(),
        complete=lambda _: False,  # it closes the connection
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
        # Apache says so once, until it is restarted.
        "max_workers": re.compile(r"reached MaxRequestWorkers|scoreboard is full"),
        "no_live_upstreams": re.compile(r"All workers are in error state"),
        "upstream_timed_out": re.compile(r"\(70007\)The timeout specified"),
        "upstream_refused": re.compile(r"\(111\)Connection refused"),
    },
    moves={
        Resource.WORKERS: MORE_WORKERS,
        Resource.CONNECTIONS: ("MaxRequestWorkers+", "ServerLimit+", "ListenBacklog+"),
        Resource.MEMORY: ("MaxRequestWorkers-", "ServerLimit-"),
    },
    worker_rules=(workers,),
)
