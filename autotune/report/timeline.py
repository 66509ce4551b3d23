"""The study over time: events, each trial's capacity, the best result so far, and each reading.

Time is wall-clock time, or virtual time for a simulated study.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate, pairwise

from autotune.measure.reading import WARM_UP_PURPOSE, Reading
from autotune.report.capacity import build_trial_capacity
from autotune.report.chart_data import BestStep, PeakPoint, ReadingColumns
from autotune.report.load_curve import to_milliseconds
from autotune.report.studies import DatedEvent
from autotune.report.trial_outcomes import format_outcome, format_trial_label
from autotune.report.view import StudyView
from autotune.study.reading_records import RecordedReading
from autotune.study.study_state import COUNTED_PHASES, Phase, Trial
from autotune.target.slo import Slo

# A reading that violates the SLO counts as disturbed if its rate is below the capacity's 90 % interval
# by more than this fraction.
DISTURBED_SHARE = 0.1


@dataclass(frozen=True)
class TimeAxis:
    """A time axis with a ``label``.

    ``seconds_until`` returns the seconds from the start of the axis to a time stamp (ISO 8601).
    """

    label: str
    seconds_until: Callable[[str], float]


def select_time_axis(view: StudyView) -> TimeAxis:
    """Return virtual time if the study is simulated, else wall-clock time."""
    if view.target.simulated is not None:
        return build_load_time_axis(view.study.readings)
    return build_study_time_axis(view.study.dated_events, view.study.readings)


def build_load_time_axis(readings: Iterable[RecordedReading]) -> TimeAxis:
    """Return an axis of the seconds of load so far, because a simulated stack has no other time.

    ``readings`` are the readings of a study in order.
    """
    ordered_readings = list(readings)
    # The wall clock can be set back during a study, so each time is raised to the latest time so far.
    reading_times = [*accumulate((datetime.fromisoformat(r.at) for r in ordered_readings), max)]
    load_seconds = [*accumulate(float(reading.seconds) for reading in ordered_readings)]

    def find_load_seconds(at: str) -> float:
        earlier_count = bisect_right(reading_times, datetime.fromisoformat(at))
        return round(load_seconds[earlier_count - 1], 1) if earlier_count else 0.0

    return TimeAxis("minutes of load (virtual time)", find_load_seconds)


def build_study_time_axis(
    events: Iterable[DatedEvent], readings: Iterable[RecordedReading]
) -> TimeAxis:
    """Return an axis of the seconds since the study started, without the pauses between its sessions.

    A session lasts from its record in the journal to the last record with a time before the next
    session. The time is never negative.
    """
    all_events = [*events, *(DatedEvent("reading", reading.at) for reading in readings)]
    dated_kinds = sorted(
        (datetime.fromisoformat(event.at), event.kind) for event in all_events if event.at
    )
    pauses = [
        (last_event_time, event_time)
        for (last_event_time, _), (event_time, event_kind) in pairwise(dated_kinds)
        if event_kind == "session"
    ]

    def find_study_seconds(at: str) -> float:
        event_time = datetime.fromisoformat(at)
        study_start = dated_kinds[0][0] if dated_kinds else event_time
        pause_seconds = sum(
            (min(event_time, pause_end) - pause_start).total_seconds()
            for pause_start, pause_end in pauses
            if pause_start < event_time
        )
        return max(0.0, round((event_time - study_start).total_seconds() - pause_seconds, 1))

    return TimeAxis("minutes of study", find_study_seconds)


def list_peaks(view: StudyView, time_axis: TimeAxis) -> list[PeakPoint]:
    """Return each measured trial: finish time, capacity with interval, phase and outcome."""
    return [
        _build_peak_point(view, trial, time_axis.seconds_until(trial.ended_at))
        for trial in view.state.list_finished_trials()
        if trial.ended_at
    ]


def _build_peak_point(view: StudyView, trial: Trial, end_seconds: float) -> PeakPoint:
    capacity = build_trial_capacity(trial, view.units)
    return {
        "trial": trial.number,
        "of": trial.source_trial,
        "phase": str(trial.phase),
        "at": end_seconds,
        "peak": capacity.peak,
        "low": capacity.low,
        "high": capacity.high,
        "outcome": f"{format_trial_label(trial)}: {format_outcome(trial, view.units)}",
    }


def list_best_steps(view: StudyView, time_axis: TimeAxis) -> list[BestStep]:
    """Return a step for each increase in the highest peak so far. Repeats of a configuration do not
    count.
    """
    units = view.units
    best_steps: list[BestStep] = []
    highest_peak = 0.0
    for trial in view.state.list_finished_trials(*COUNTED_PHASES, Phase.MEASURE):
        peak = trial.peak
        if peak is None or not trial.meets_slo or peak.peak <= highest_peak or not trial.ended_at:
            continue
        highest_peak = peak.peak
        end_seconds, amount = (
            time_axis.seconds_until(trial.ended_at),
            units.round_value(units.from_peak(highest_peak)),
        )
        best_steps.append({"at": end_seconds, "peak": amount, "trial": trial.number})
    return best_steps


def build_reading_columns(view: StudyView, time_axis: TimeAxis) -> ReadingColumns:
    """Return every reading as columns: seconds, trial, purpose, rate, latency, violations, state.

    ``state`` is ``met``, ``broken``, ``disturbed`` or ``limited``. ``late`` is the latency at the SLO's
    percentile in milliseconds, or ``None`` if too few responses arrived.
    """
    slo = view.target.slo.objective
    trials = {trial.number: trial for trial in view.state.trials}
    records = view.study.readings
    return {
        "at": [time_axis.seconds_until(record.at) for record in records],
        "trial": [record.trial for record in records],
        "warm": [record.purpose == WARM_UP_PURPOSE for record in records],
        "rate": [round(record.rate, 1) for record in records],
        "late": [to_milliseconds(r.reading.percentile(slo.quantile)) for r in records],
        "bad": [round(100 * record.reading.violation_fraction, 3) for record in records],
        "state": [classify_reading(r.reading, trials.get(r.trial), slo) for r in records],
    }


def classify_reading(reading: Reading, trial: Trial | None, slo: Slo) -> str:
    """Return a reading's state: ``met``, ``broken`` (by the server), ``disturbed`` or ``limited``."""
    if reading.limited:
        return "limited"
    if slo.is_met(reading):
        return "met"
    peak = trial.peak if trial and trial.meets_slo else None
    is_far_below = peak is not None and reading.rate < peak.low * (1 - DISTURBED_SHARE)
    return "disturbed" if is_far_below else "broken"
