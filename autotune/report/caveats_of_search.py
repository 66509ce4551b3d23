"""Doubts about how the study went: what the search could see, and what it had time for."""

from __future__ import annotations

from collections.abc import Iterator

from autotune.measure.warmup import MOST_WINDOWS
from autotune.report import figures
from autotune.report.claim import STOPPED
from autotune.report.evidence import Caveat, Evidence, listed
from autotune.report.failures import unusable
from autotune.study.records import COUNTED

IDLE = 0.20  # of a run's time, spent neither loading nor warming up
FAILED = 1 / 3  # of the trials
TRIED = 1 / 2  # of the trials that the budget allows
DISTURBED = 1 / 10  # of the readings


def _cold(e: Evidence) -> Iterator[Caveat]:
    found = [n for n, seen in e.tallies.items() if seen.warmed >= MOST_WINDOWS]
    of_claim = {trial.number for trial in e.behind_the_claim}
    if found:
        touched = sorted(of_claim.intersection(found))
        yield Caveat(
            "warm-up-cut-short", len(found), 0,
            f"the warm-up of {figures.plural(len(found), 'trial')} was still moving after "
            f"{MOST_WINDOWS} windows"
            + (f"; behind the verdict: trial {listed(touched)}" if touched else ""),
            "a cold cache makes peaks too low: check that the data set fits what `data:` says",
        )  # fmt: skip


def _disturbed(e: Evidence) -> Iterator[Caveat]:
    lost = sum(seen.disturbed for seen in e.tallies.values())
    taken = sum(seen.readings + seen.warmed for seen in e.tallies.values()) + lost
    if lost > DISTURBED * taken:
        yield Caveat(
            "cpu-taken-away", lost, round(DISTURBED * taken, 1),
            f"{lost} of {taken} readings had to be taken again: other machines on the same hardware "
            "took the hosts' CPU time",
            "choose a quieter hour, or hosts with CPUs of their own",
        )  # fmt: skip


def _generator(e: Evidence) -> Iterator[Caveat]:
    found = [t.number for t in e.state.trials if t.peak and t.peak.verdict == "generator-limited"]
    if found:
        yield Caveat(
            "generator-limited", len(found), 0,
            f"in {figures.plural(len(found), 'trial')} ({listed(found)}) the load generator gave "
            f"out before the stack did (load.max_rate is "
            f"{figures.rate(e.target.load.max_rate)} requests/s)",
            "raise load.max_rate, or add hosts to load.hosts: the true peak is higher",
        )  # fmt: skip


def _many_failed(e: Evidence) -> Iterator[Caveat]:
    over = e.state.finished(*COUNTED)
    failed = sum(map(unusable, over))
    # Where nothing at all worked, the verdict says so.
    if FAILED * len(over) < failed < len(over):
        yield Caveat(
            "many-failed", failed, round(FAILED * len(over), 1),
            f"{failed} of {len(over)} trials failed and taught the search little",
            "narrow the ranges that the causes name, under `parameters:`",
        )  # fmt: skip


def _few_tried(e: Evidence) -> Iterator[Caveat]:
    tried, allowed = len(e.state.finished(*COUNTED)), e.target.budget.trials
    if e.claim.verdict != STOPPED and tried < TRIED * allowed:
        yield Caveat(
            "few-trials", tried, TRIED * allowed,
            f"the time was enough for {tried} of {allowed} trials; there may be more to gain",
            "raise budget.time",
        )  # fmt: skip


def _idle(e: Evidence) -> Iterator[Caveat]:
    if e.target.goal is not None:
        return  # what a command does with its time is its own affair
    total = e.state.elapsed
    idle = total - e.state.seconds.get("load", 0.0)
    if total and idle / total > IDLE:
        yield Caveat(
            "time-not-loading", round(idle / total, 3), IDLE,
            f"{figures.share(idle, total)} of the time went into something else than load; "
            f"{100 * IDLE:g} % is what it should take",
            "`seconds` says into what; restarts cost most, fixing what needs them saves time",
        )  # fmt: skip


CHECKS = (_cold, _disturbed, _generator, _many_failed, _few_tried, _idle)
