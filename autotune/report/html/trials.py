"""The table of trials: what each was, what came of it, what it changes."""

from __future__ import annotations

from typing import Any

from autotune.errors import AutotuneError
from autotune.report.diff import Files, file_diff, rendered
from autotune.report.parameters import Declared, changes, declared
from autotune.report.studies import Study
from autotune.report.text import describe_finding
from autotune.report.trials import outcome
from autotune.report.view import StudyView, capacity
from autotune.study.records import Trial


def rows(view: StudyView) -> list[dict[str, Any]]:
    """One for each trial; a repeat refers to the trial it repeats instead of showing it again."""
    baseline = view.conclusion.baseline.trial if view.conclusion.baseline else None
    files = _files(view.study, baseline) if baseline else {}
    return [_row(view, trial, baseline, files) for trial in view.state.trials]


def _row(view: StudyView, trial: Trial, baseline: Trial | None, stock: Files) -> dict[str, Any]:
    units = view.units
    row: dict[str, Any] = {
        "trial": trial.number,
        "phase": str(trial.phase),
        "of": trial.of,
        **capacity(trial.peak if trial.peak and trial.peak.feasible else None, units),
        "outcome": outcome(trial, units) if trial.over else "under way",
        "verdict": "failed" if trial.failure else trial.peak.verdict if trial.peak else "",
        "bottleneck": describe_finding(view.state.bottlenecks.get(trial.number, {})),
        "rules": list(trial.bindings),
        "differences": list(trial.differences),
    }
    if trial.of is None and baseline is not None and trial.number != baseline.number:
        row["changes"] = _changes(baseline, trial, declared(view.target))
        row["diff"] = file_diff(
            stock, _files(view.study, trial), "baseline", f"trial-{trial.number}"
        )
    return row


def _changes(baseline: Trial, trial: Trial, own: Declared) -> list[list[str]]:
    return [
        [change.name, *change.texts] for change in changes(baseline.settings, trial.settings, own)
    ]


def _files(study: Study, trial: Trial) -> Files:
    try:
        return rendered(study.directory, trial)
    except AutotuneError:  # never deployed: there are none
        return {}
