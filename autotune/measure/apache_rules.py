"""When Apache lacks workers: processes where it runs PHP itself, threads of processes elsewhere."""

from __future__ import annotations

from autotune.measure.activity import PartActivity
from autotune.measure.bottleneck import FULL, INFERRED, MEASURED, TOLD, Bottleneck, Resource
from autotune.measure.scoreboard import KEPT
from autotune.measure.situation import Situation

SEEN = 0.25  # of the looks found connections waiting: less is a burst
AROUND = 2  # times it is asked in any reading: before there is load and after
BUSY = 0.75  # of the workers, which are asked for once a second
# Waiting connections per worker: they add less than a tenth of a request's time (Little's law).
FLEETING = 0.1


def apache_workers(one: Situation) -> Bottleneck | None:
    """All its workers are taken and connections wait to be accepted. What is behind comes first:
    a load balancer whose web servers lack workers runs out of its own."""
    for part in one.parts:
        most = one.setting(part, "MaxRequestWorkers")
        if part.service != "apache" or most is None or part.queued < SEEN or not part.workers:
            continue
        threads = one.setting(part, "ThreadsPerChild") or 1
        there = min(part.workers * threads, most)
        told, taken = "max_workers" in part.complaints, _taken(part, there)
        # A reading cut short ends before anybody was asked; but whoever is free accepts at once,
        # unless the machine keeps it from running for a moment.
        unasked = part.answers + part.unanswered <= AROUND
        inferred = unasked and there >= FULL * most and part.waiting >= FLEETING * there
        if not (told or taken or inferred):
            continue
        return Bottleneck(
            part.tier,
            part.service,
            part.host,
            Resource.WORKERS,
            f"{_seen(part, told=told)} of {there} workers, {most} allowed;"
            f" {part.waiting:.0f} connections waited at its socket (up to {part.waiting_max}):"
            f" {_remedy(part, there, most, threads)}",
            TOLD if told else MEASURED if taken else INFERRED,
        )
    return None


def _taken(part: PartActivity, there: int) -> bool:
    # A server that leaves the question about its state waiting has nobody to answer it.
    return bool(part.unanswered) or part.occupied + _kept(part) >= BUSY * there


def _seen(part: PartActivity, *, told: bool) -> str:
    if told:
        return "“server reached MaxRequestWorkers setting” in its log"
    if part.unanswered:
        return f"none free to tell of its state, {part.unanswered} times,"
    if part.answers <= AROUND and not part.occupied:
        return "not one free"
    kept = f" and {_kept(part):.0f} held by kept connections" if _kept(part) else ""
    return f"{part.occupied:.0f} busy{kept}"


def _remedy(part: PartActivity, there: int, most: int, threads: int) -> str:
    if there < FULL * most:
        spare = "MinSpareServers" if threads == 1 else "MinSpareThreads"
        return f"they are started too slowly: raise StartServers and {spare}"
    if _kept(part) > 0.5 * there:
        return "lower KeepAliveTimeout"
    return "raise MaxRequestWorkers" if threads == 1 else "raise ServerLimit or ThreadsPerChild"


def _kept(part: PartActivity) -> float:
    return part.counters.get(KEPT, 0.0)
