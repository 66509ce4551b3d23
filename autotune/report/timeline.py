"""The study over time: events, each trial's capacity, the best so far, each reading.

Time is wall-clock time, or the model's own time for a simulated study.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate, pairwise
from typing import Any

from autotune.report.load_curve import to_milliseconds
from autotune.report.trial_outcomes import WARM_UP_PURPOSE, format_outcome, format_trial_label
from autotune.report.view import StudyView, build_trial_capacity
from autotune.study.study_state import COUNTED_PHASES, Phase, Trial
from autotune.study.study_store import reading_from_record
from autotune.target.slo import Slo

# Share of an interval's lower end. The posterior treats violations below it as one-sided noise.
DISTURBED_SHARE = 0.1
RecordStream = Iterable[Mapping[str, Any]]


@dataclass(frozen=True)
class TimeAxis:
    """``label`` is the label of the time axis. ``seconds_until`` returns the seconds until a moment
    (ISO 8601, as in the journals)."""

    label: str
    seconds_until: Callable[[str], float]


def select_time_axis(view: StudyView) -> TimeAxis:
    """Return the model's own time if the study is simulated, else wall-clock time."""
    if view.target.simulated is not None:
        return build_load_time_axis(view.study.readings)
    return build_study_time_axis(view.study.records, view.study.readings)


def build_load_time_axis(readings: RecordStream) -> TimeAxis:
    """Return a clock of the load seconds sent so far, because a model has no other time.

    ``readings`` are the readings of a study, in order.
    """
    in_order = list(readings)
    # The wall clock can be set back during a study.
    moments = [*accumulate((datetime.fromisoformat(r["at"]) for r in in_order), max)]
    load_seconds = [*accumulate(float(reading["seconds"]) for reading in in_order)]

    def seconds(at: str) -> float:
        count = bisect_right(moments, datetime.fromisoformat(at))
        return round(load_seconds[count - 1], 1) if count else 0.0

    return TimeAxis("minutes of load (virtual time)", seconds)


def build_study_time_axis(events: RecordStream, readings: RecordStream) -> TimeAxis:
    """Return a clock of the seconds since the study started, without pauses between its sessions.

    A session lasts from its journal record to the last dated record before the next session. The
    time is never negative.
    """
    moments = sorted(
        (datetime.fromisoformat(str(record.get("at") or record["started"])), kind)
        for kind, record in (
            *((str(event["event"]), event) for event in events),
            *(("reading", reading) for reading in readings),
        )
        if record.get("at") or record.get("started")
    )
    pauses = [
        (before, moment) for (before, _), (moment, kind) in pairwise(moments) if kind == "session"
    ]

    def seconds(at: str) -> float:
        moment = datetime.fromisoformat(at)
        start = moments[0][0] if moments else moment
        pause_seconds = sum(
            (min(moment, pause_end) - pause_start).total_seconds()
            for pause_start, pause_end in pauses
            if pause_start < moment
        )
        return max(0.0, round((moment - start).total_seconds() - pause_seconds, 1))

    return TimeAxis("minutes of study", seconds)


def list_peaks(view: StudyView, time: TimeAxis) -> list[dict[str, Any]]:
    """Return each measured trial: finish time, capacity with interval, phase, outcome."""
    end_times = _index_end_times(view, "measured", "failed")
    return [
        {
            "trial": trial.number,
            "of": trial.source_trial,
            "phase": str(trial.phase),
            "at": time.seconds_until(end_times[trial.number]),
            **build_trial_capacity(trial, view.units),
            "says": f"{format_trial_label(trial)}: {format_outcome(trial, view.units)}",
        }
        for trial in view.state.list_finished()
        if end_times.get(trial.number)
    ]


def list_best_steps(view: StudyView, time: TimeAxis) -> list[dict[str, Any]]:
    """Return a step for each rise of the highest first measurement so far (not re-measured)."""
    end_times, units = _index_end_times(view, "measured"), view.units
    steps: list[dict[str, Any]] = []
    highest = 0.0
    for trial in view.state.list_finished(*COUNTED_PHASES, Phase.MEASURE):
        peak = trial.peak
        if (
            peak is None
            or not peak.is_feasible
            or peak.peak <= highest
            or not end_times[trial.number]
        ):
            continue
        highest = peak.peak
        at, amount = (
            time.seconds_until(end_times[trial.number]),
            units.round_value(units.from_peak(highest)),
        )
        steps.append({"at": at, "peak": amount, "trial": trial.number})
    return steps


def _index_end_times(view: StudyView, *events: str) -> dict[int, str]:
    return {r["trial"]: r["at"] for r in view.study.records if r["event"] in events}


def build_reading_columns(view: StudyView, time: TimeAxis) -> dict[str, list[Any]]:
    """Return every reading as columns: seconds, trial, purpose, rate, latency, violations, state.

    ``state`` is ``met``, ``broken``, ``disturbed`` or ``limited``. ``late`` is the latency at the SLO's
    percentile in milliseconds, ``None`` beyond all observations.
    """
    slo = view.target.slo.objective
    trials = {trial.number: trial for trial in view.state.trials}
    rows = []
    for record in view.study.readings:
        reading = reading_from_record(record)
        row = {
            "at": time.seconds_until(record["at"]),
            "trial": record["trial"],
            "warm": record.get("purpose") == WARM_UP_PURPOSE,
            "rate": round(record["rate"], 1),
            "late": to_milliseconds(reading.percentile(slo.quantile)),
            "bad": round(100 * reading.violation_fraction, 3),
            "state": classify_reading(record, trials.get(record["trial"]), slo),
        }
        rows.append(row)
    columns = ("at", "trial", "warm", "rate", "late", "bad", "state")
    return {column: [row[column] for row in rows] for column in columns}


def classify_reading(reading: Mapping[str, Any], trial: Trial | None, slo: Slo) -> str:
    """Return ``met``, ``broken`` (by the server), ``disturbed`` or ``limited``."""
    if reading.get("limited"):
        return "limited"
    if reading.get("disturbed"):
        return "disturbed"
    if slo.is_met(reading_from_record(reading)):
        return "met"
    peak = trial.peak if trial else None
    is_far_below = (
        peak is not None and peak.is_feasible and reading["rate"] < peak.low * (1 - DISTURBED_SHARE)
    )
    return "disturbed" if is_far_below else "broken"
