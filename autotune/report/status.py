"""The current status of a study on one screen, from any terminal."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from autotune import terminal
from autotune.report import format as fmt
from autotune.report.beds import compute_name_width, summarize_beds
from autotune.report.capacity import CapacityFigures, build_capacity
from autotune.report.conclusion import MeasuredConfiguration
from autotune.report.documents import (
    BedStatus,
    CheckedAnswers,
    RunningTrial,
    StatusSide,
    StudyStatus,
    TrialProgress,
)
from autotune.report.studies import Study, open_study
from autotune.report.summary import encode_today_latency
from autotune.report.trial_outcomes import format_no_result, format_outcome_counts
from autotune.report.units import RequestUnits, Units, ValueUnits
from autotune.report.view import StudyView, build_study_view
from autotune.study.ownership import guard_foreign_records
from autotune.study.study_state import Phase, State, Trial
from autotune.target.messages import format_count

# Seconds between polls. Polls are rare, because reading a journal takes CPU time from the stack.
POLL_SECONDS = 2.0
CLEAR_SCREEN = "\x1b[H\x1b[2J"


def build_status(view: StudyView) -> StudyStatus:
    """Return the status as one JSON object.

    Peaks are pooled from measurements after the selection, if there are any. Otherwise, the peaks come
    from the search, and prove nothing. ``state`` is ``running`` (a process holds the lock), ``stopped``
    (`resume` continues the study) or ``finished``. A study from `measure` is ``stopped`` only if none
    of its trials finished. ``trial`` is the current trial. ``seconds.left`` is an estimate.
    """
    state, budget = view.state, view.target.budget
    # Before the verdict, status and the live panel show the same leader.
    best_side = view.conclusion.best if state.verdict else view.outlook.leader
    baseline_status, best_status = (
        _summarize_side(side, view.units) for side in (view.conclusion.baseline, best_side)
    )
    lock_holder = view.study.running_process
    bed_statuses = _summarize_bed_status(view)
    status_document: StudyStatus = {
        "schema": 1,
        "study": view.name,
        "state": "running" if lock_holder else "finished" if state.is_over else "stopped",
        "holder": lock_holder,
        "verdict": state.verdict.verdict if state.verdict else None,
        "trial": _summarize_running_trial(view.study, _list_last_trials(state)),
        "trials": _summarize_trials(view),
        "proof": {
            "finalists": len(state.list_finished_trials(Phase.FINALIST)),
            "confirmations": len(state.list_finished_trials(Phase.CONFIRM)),
        },
        "baseline": baseline_status,
        "best": best_status,
        "ratio": _compute_ratio(view, baseline_status, best_status),
        "change": _format_change(view),
        "latency": encode_today_latency(view),
        "answers": summarize_answers(view.study),
        "seconds": {
            "elapsed": round(state.elapsed_seconds, 1),
            "left": _estimate_seconds_left(view),
            "budget": budget.time,
        },
    }
    if bed_statuses:
        status_document["beds"] = bed_statuses
    return status_document


def _summarize_trials(view: StudyView) -> TrialProgress:
    trial_counts = view.trial_counts
    return {
        "complete": trial_counts["complete"],
        "failed": trial_counts["failed"],
        "screened": trial_counts["screened"],
        "done": view.outlook.trial_count,
        "budget": view.target.budget.trials,
    }


def _summarize_bed_status(view: StudyView) -> dict[str, BedStatus]:
    running_by_bed = {t.bed: t for t in view.state.list_running_trials()}
    return {
        bed: {
            **summary,
            "trial": _summarize_running_trial(
                view.study, [running_by_bed[bed]] if bed in running_by_bed else []
            ),
        }
        for bed, summary in summarize_beds(view)["each"].items()
    }


def summarize_answers(study: Study) -> CheckedAnswers:
    """Return the numbers of responses checked under load and of wrong responses, and an example."""
    reading_counts = study.reading_counts.values()
    return {
        "looked_at": sum(
            trial_reading_counts.checked_count for trial_reading_counts in reading_counts
        ),
        "wrong": sum(trial_reading_counts.wrong for trial_reading_counts in reading_counts),
        "example": next(
            (
                trial_reading_counts.example
                for trial_reading_counts in reading_counts
                if trial_reading_counts.example
            ),
            None,
        ),
    }


def _estimate_seconds_left(view: StudyView) -> float | None:
    """Return the seconds that are left of the budget; ``None`` if the study is over, and for a sweep,
    which has no budget.
    """
    has_budget = not view.state.is_over and view.state.sweep_size is None
    return round(view.outlook.seconds_left, 1) if has_budget else None


def _list_last_trials(state: State) -> tuple[Trial, ...]:
    """Return the last trial, unless it is a finished measurement of a sweep, which may have no peak."""
    return tuple(t for t in state.trials[-1:] if t.number not in state.swept_trials)


def _summarize_running_trial(study: Study, trials: Sequence[Trial]) -> RunningTrial | None:
    """Return the status of the last of ``trials``, or ``None`` if that trial is finished."""
    last_trial = trials[-1] if trials else None
    if last_trial is None or last_trial.is_finished:
        return None
    reading_counts = study.reading_counts.get(last_trial.number)
    reading = reading_counts.last if reading_counts else None
    return {
        "trial": last_trial.number,
        "phase": str(last_trial.phase),
        "of": last_trial.source_trial,
        "deployed": bool(last_trial.effective) or reading_counts is not None,
        "windows": reading_counts.warmed if reading_counts else 0,
        "readings": reading_counts.readings if reading_counts else 0,
        "rate": reading.rate if reading else None,
    }


def _summarize_side(side: MeasuredConfiguration | None, units: Units) -> StatusSide | None:
    if side is None:
        return None
    is_infeasible = (
        isinstance(units, RequestUnits) and side.best_estimate is None and not side.is_unmet
    )
    capacity = (
        CapacityFigures(0.0, 0.0, 0.0)
        if is_infeasible
        else build_capacity(side.best_estimate, units)
    )
    return {
        "trial": side.trial.number,
        "peak": capacity.peak,
        "low": capacity.low,
        "high": capacity.high,
        "limit": side.best_estimate.limit if side.best_estimate else None,
    }


def _compute_ratio(
    view: StudyView, baseline_status: StatusSide | None, best: StatusSide | None
) -> float | None:
    """Return the ratio of the best peak to the baseline's peak, from the verdict's gain, if any."""
    if gain := view.conclusion.gain:
        return view.units.build_gain(gain, _find_baseline_peak(view)).ratio
    if not best or not baseline_status or not baseline_status["peak"] or best["peak"] is None:
        return None
    return round(best["peak"] / baseline_status["peak"], 4)


def _find_baseline_peak(view: StudyView) -> float:
    side = view.conclusion.baseline
    return side.best_estimate.peak if side and side.best_estimate else 0.0


def _format_change(view: StudyView) -> str | None:
    if view.conclusion.gain and _find_baseline_peak(view):
        return view.units.format_change(view.conclusion.gain.ratio, _find_baseline_peak(view))
    return view.outlook.lead_text or None


def format_status(view: StudyView) -> str:
    """Return the status as a few lines of text."""
    return "\n".join(_format_status_lines(view, build_status(view))) + "\n"


def watch_status(
    find_directory: Callable[[], Path], out: TextIO, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Print the status of the study whenever it changes, until the study finishes or stops.

    ``find_directory`` returns the study's directory with the latest records. On a terminal, the status
    is redrawn in place, unless ``TERM`` is ``dumb``. Raises AutotuneError for a damaged study.
    """
    previous_text, is_redrawn = "", out.isatty() and os.environ.get("TERM") != "dumb"
    while True:
        directory = find_directory()
        with guard_foreign_records(directory):
            view = build_study_view(open_study(directory))
            status_text, study_state = format_status(view), build_status(view)["state"]
        if status_text != previous_text:
            out.write(CLEAR_SCREEN if is_redrawn else "\n" if previous_text else "")
            terminal.write_text(out, _fit_to_terminal(status_text, out), end="")
            previous_text = status_text
        if study_state != "running":
            return
        sleep(POLL_SECONDS)


def _fit_to_terminal(text: str, stream: TextIO) -> str:
    """Return the text with its lines broken at the width of the terminal, if ``stream`` is one."""
    width = shutil.get_terminal_size().columns if stream.isatty() else None
    lines = terminal.wrap_lines(((line, "") for line in text.splitlines()), width)
    return "".join(f"{line}\n" for line, _ in lines)


def _format_status_lines(view: StudyView, status_document: StudyStatus) -> Iterator[str]:
    is_running = status_document["state"] == "running"
    if (purpose := view.study.state.purpose) and not is_running:
        yield f"{view.name}: a configuration was {purpose}"
        yield f"  next      {view.next_steps.status_command}"
        return
    is_stopped = status_document["state"] == "stopped"
    state_text = "stopped (no process holds the lock)" if is_stopped else status_document["state"]
    lock_holder = status_document["holder"]
    yield f"{view.name}: {state_text}" + (f", {lock_holder}" if lock_holder else "")
    if status_document["verdict"]:
        yield f"  verdict   {view.headline.text}"
    yield from _format_activity(view.units, status_document, is_running=is_running)
    if (sweep_size := view.state.sweep_size) is not None:
        measurements_text = format_count(sweep_size, "measurement")
        yield f"  measured  {len(view.state.swept_trials)} of {measurements_text}"
    else:
        yield from _format_trial_counts(view, status_document)
        yield from _format_peaks(view, status_document)
    if view.latency:
        yield f"  latency   {view.latency.text}"
    elapsed_text = fmt.format_duration(status_document["seconds"]["elapsed"])
    left_text = (
        f", about {view.outlook.time_left_text}" if status_document["seconds"]["left"] else ""
    )
    yield f"  time      {elapsed_text} spent{left_text}"
    if view.next_steps.status_command:
        yield f"  next      {view.next_steps.status_command}"


def _format_activity(
    units: Units, status_document: StudyStatus, *, is_running: bool
) -> Iterator[str]:
    """Yield the current step of each test bed, or of the only stack."""
    bed_statuses = status_document.get("beds", {})
    name_width = compute_name_width(bed_statuses, 6)
    for bed, bed_status in bed_statuses.items():
        trial = bed_status["trial"]
        activity = _format_running_trial(trial, units, is_running=is_running) if trial else "idle"
        if bed_status["set_aside"]:
            activity = f"removed from the study: {bed_status['set_aside']}"
        pace_text = f", {bed_status['per_hour']:g} per hour" if bed_status["per_hour"] else ""
        count_text = format_count(bed_status["trials"], "measurement")
        yield f"  bed {bed:{name_width}}{count_text}{pace_text}; now {activity}"
    if status_document["trial"] and "beds" not in status_document:
        trial_text = _format_running_trial(status_document["trial"], units, is_running=is_running)
        yield f"  now       {trial_text}"


def _format_trial_counts(view: StudyView, status_document: StudyStatus) -> Iterator[str]:
    trial_counts, proof_counts = status_document["trials"], status_document["proof"]
    counts_text = ", ".join(format_outcome_counts(view.trial_counts))
    budget_text = format_count(trial_counts["budget"], "configuration")
    yield f"  tried     {trial_counts['done']} of {budget_text}: {counts_text}"
    yield f"  measured  {format_count(len(view.state.list_finished_trials()), 'measurement')}"
    if any(proof_counts.values()):
        finalists_text = f"{format_count(proof_counts['finalists'], 'finalist')} measured again"
        confirmations_text = format_count(proof_counts["confirmations"], "confirmation measurement")
        yield f"  proof     {finalists_text}, {confirmations_text}"
    answers = status_document["answers"]
    if answers["wrong"] or answers["example"]:
        wrong_text = f"{answers['wrong']} of {answers['looked_at']} checked responses are incorrect"
        yield f"  responses {wrong_text}, such as {answers['example']}"


def _format_peaks(view: StudyView, status_document: StudyStatus) -> Iterator[str]:
    units, baseline_side = view.units, view.conclusion.baseline
    best_status, verdict = status_document["best"], status_document["verdict"]
    no_result_text = format_no_result(baseline_side, units) if baseline_side else ""
    yield f"  baseline  {_format_peak(status_document['baseline'], units, no_result_text)}"
    is_web_stack = isinstance(units, RequestUnits)
    if best_status and not verdict and is_web_stack and not units.has_value(best_status["peak"]):
        yield "  best      nothing meets the SLO yet"
    elif best_status or not verdict:
        peak_change = status_document["change"]
        change_text = f", {peak_change} over the baseline" if peak_change else ""
        is_candidate = best_status is not None and best_status != status_document["baseline"]
        claim_text = f"{change_text} (not yet proven)" if is_candidate and not verdict else ""
        yield f"  best      {_format_peak(best_status, units, units.no_result_text)}{claim_text}"


def _format_running_trial(trial: RunningTrial, units: Units, *, is_running: bool) -> str:
    repeat_text = f" of trial {trial['of']}" if trial["of"] is not None else ""
    trial_text = f"trial {trial['trial']} ({trial['phase']}{repeat_text})"
    if not is_running:
        return f"{trial_text} was interrupted; `resume` repeats it"
    if isinstance(units, ValueUnits):
        return (
            f"{trial_text} is running the command, {format_count(trial['readings'], 'call')} so far"
        )
    if not trial["deployed"]:
        return f"{trial_text} is being deployed"
    if not trial["readings"]:
        return f"{trial_text} is warming up, {format_count(trial['windows'], 'window')} so far"
    readings = format_count(trial["readings"], "reading")
    return f"{trial_text} is being measured: {readings}, the last at {fmt.format_rate(trial['rate'])}/s"


def _format_peak(side_status: StatusSide | None, units: Units, no_result_text: str) -> str:
    if side_status is None:
        return "not measured yet"
    peak, interval_low, interval_high = side_status["peak"], side_status["low"], side_status["high"]
    if peak is None or interval_low is None or interval_high is None or not units.has_value(peak):
        return f"{no_result_text} (trial {side_status['trial']})"
    if side_status["limit"]:
        bound_text = f"{units.format_lower_bound(peak)} (limited by {side_status['limit']})"
        return f"{bound_text} (trial {side_status['trial']})"
    interval_text = units.format_interval(interval_low, interval_high)
    return f"{units.format_amount(peak)} {interval_text} (trial {side_status['trial']})"
