"""The study over time: when things happened, each trial's capacity, the best so far, each reading.

Time is the wall's, or of a model its own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate, pairwise
from typing import Any, Protocol

from autotune.report.load_curve import milliseconds
from autotune.report.trials import WARM_UP, label, outcome
from autotune.report.view import StudyView, capacity
from autotune.study.records import COUNTED, Phase, Trial
from autotune.study.store import reading_of
from autotune.target.slo import Slo

# A reading that violated the SLO this far below its trial's interval was disturbed: one-sided
# noise, which the posterior discounts. In log units; 0.1 is about 10 %.
DISTURBED = 0.1


class Time(Protocol):
    """``axis`` says what its seconds count."""

    @property
    def axis(self) -> str: ...

    def seconds(self, at: str) -> float:
        """Seconds until the moment ``at`` (ISO 8601, as the journals have it)."""
        ...


def time_of(view: StudyView) -> Time:
    """A model's own where the study is of one."""
    if view.target.simulated is not None:
        return load_time(view.study.readings)
    return study_time(view.study.records, view.study.readings)


@dataclass(frozen=True)
class LoadTime:
    """Moments as seconds of load that had been sent until then: all the time a model has.

    ``moments`` are those of its readings in order, ``loads`` the seconds up to and with each.
    """

    moments: tuple[datetime, ...]
    loads: tuple[float, ...]
    axis: str = "minutes of load, by the model's clock"

    def seconds(self, at: str) -> float:
        count = bisect_right(self.moments, datetime.fromisoformat(at))
        return round(self.loads[count - 1], 1) if count else 0.0


def load_time(readings: Iterable[Mapping[str, Any]]) -> LoadTime:
    """From the readings of a study, in the order taken."""
    in_order = list(readings)
    return LoadTime(
        # A wall clock may be set back meanwhile.
        tuple(accumulate((datetime.fromisoformat(reading["at"]) for reading in in_order), max)),
        tuple(accumulate(float(reading["seconds"]) for reading in in_order)),
    )


@dataclass(frozen=True)
class StudyTime:
    """Wall-clock moments as seconds of the study; ``pauses`` are (from, to) between sittings."""

    began: datetime
    pauses: tuple[tuple[datetime, datetime], ...] = ()
    axis: str = "minutes of study"

    def seconds(self, at: str) -> float:
        """Seconds of study until then; never negative."""
        moment = datetime.fromisoformat(at)
        lost = sum(
            (min(moment, ended) - begun).total_seconds()
            for begun, ended in self.pauses
            if begun < moment
        )
        return max(0.0, round((moment - self.began).total_seconds() - lost, 1))


def study_time(
    events: Iterable[Mapping[str, Any]], readings: Iterable[Mapping[str, Any]]
) -> StudyTime:
    """From a study's journals: a sitting lasts from its record to the last thing that was dated."""
    moments = sorted(
        (datetime.fromisoformat(str(record.get("at") or record["started"])), kind)
        for kind, record in (
            *((str(event["event"]), event) for event in events),
            *(("reading", reading) for reading in readings),
        )
        if record.get("at") or record.get("started")
    )
    if not moments:
        return StudyTime(datetime.fromisoformat("1970-01-01T00:00:00+00:00"))
    pauses = [
        (before, moment) for (before, _), (moment, kind) in pairwise(moments) if kind == "session"
    ]
    return StudyTime(moments[0][0], tuple(pauses))


def peaks(view: StudyView, time: Time) -> list[dict[str, Any]]:
    """Every measured trial: when it ended, its capacity with its interval, its phase, what it said."""
    ended = {
        r["trial"]: r["at"] for r in view.study.records if r["event"] in ("measured", "failed")
    }
    units = view.units
    return [
        {
            "trial": trial.number,
            "of": trial.of,
            "phase": str(trial.phase),
            "at": time.seconds(ended[trial.number]),
            **capacity(trial.peak if trial.peak and trial.peak.feasible else None, units),
            "says": f"{label(trial)}: {outcome(trial, units)}",
        }
        for trial in view.state.finished()
        if ended.get(trial.number)
    ]


def best_so_far(view: StudyView, time: Time) -> list[dict[str, Any]]:
    """The highest first measurement of any configuration, whenever it rose: steps, not a claim."""
    ended = {r["trial"]: r["at"] for r in view.study.records if r["event"] == "measured"}
    units = view.units
    steps: list[dict[str, Any]] = []
    highest = 0.0
    for trial in view.state.finished(*COUNTED, Phase.MEASURE):
        peak = trial.peak
        if peak is None or not peak.feasible or peak.peak <= highest or not ended[trial.number]:
            continue
        highest = peak.peak
        steps.append(
            {"at": time.seconds(ended[trial.number]), "peak": units.rounded(units.of(highest)),
             "trial": trial.number}
        )  # fmt: skip
    return steps


def readings(view: StudyView, time: Time) -> dict[str, list[Any]]:
    """Every reading as columns: seconds, trial, purpose, rate, latency, violations, state.

    ``state`` is ``met``, ``broken``, ``disturbed`` or ``limited``; ``late`` the latency at the
    SLO's percentile in milliseconds, ``None`` beyond anything observed.
    """
    slo = view.target.slo.slo
    trials = {trial.number: trial for trial in view.state.trials}
    columns: dict[str, list[Any]] = {
        name: [] for name in ("at", "trial", "warm", "rate", "late", "bad", "state")
    }
    for reading in view.study.readings:
        columns["at"].append(time.seconds(reading["at"]))
        columns["trial"].append(reading["trial"])
        columns["warm"].append(reading.get("purpose") == WARM_UP)
        columns["rate"].append(round(reading["rate"], 1))
        counted = reading_of(reading)
        columns["late"].append(milliseconds(counted.percentile(slo.quantile)))
        columns["bad"].append(round(100 * counted.fraction, 3))
        columns["state"].append(state_of(reading, trials.get(reading["trial"]), slo))
    return columns


def state_of(reading: Mapping[str, Any], trial: Trial | None, slo: Slo) -> str:
    """Whether a reading met the SLO, and if not, whether that was the server."""
    if reading.get("limited"):
        return "limited"
    if reading.get("disturbed"):
        return "disturbed"
    if slo.met(reading_of(reading)):
        return "met"
    peak = trial.peak if trial else None
    below = peak is not None and peak.feasible and reading["rate"] < peak.low * (1 - DISTURBED)
    return "disturbed" if below else "broken"
