"""The table of trials: what each was, what came of it, what it changes."""

from __future__ import annotations

from typing import Any

from autotune.errors import AutotuneError
from autotune.report import figures
from autotune.report.claim import claim
from autotune.report.diff import Files, file_diff, rendered
from autotune.report.lines import outcome
from autotune.report.parameters import Declared, changes, declared
from autotune.report.sections import finding_in_words
from autotune.report.studies import Study
from autotune.report.summary import numbers
from autotune.report.yardstick import yardstick
from autotune.study.records import Trial


def rows(study: Study) -> list[dict[str, Any]]:
    """One for each trial; a repeat refers to the trial it repeats instead of showing it again."""
    found = claim(study.state)
    baseline = found.baseline.trial if found.baseline else None
    files = _files(study, baseline) if baseline else {}
    return [_row(study, trial, baseline, files) for trial in study.state.trials]


def _row(study: Study, trial: Trial, baseline: Trial | None, stock: Files) -> dict[str, Any]:
    by = yardstick(study.target, study.state)
    row: dict[str, Any] = {
        "trial": trial.number,
        "phase": str(trial.phase),
        "of": trial.of,
        **numbers(trial.peak if trial.peak and trial.peak.feasible else None, by),
        "outcome": outcome(trial, by) if trial.over else "under way",
        "verdict": "failed" if trial.failure else trial.peak.verdict if trial.peak else "",
        "bottleneck": finding_in_words(study.state.bottlenecks.get(trial.number, {})),
        "rules": list(trial.bindings),
        "differences": list(trial.differences),
    }
    if trial.of is None and baseline is not None and trial.number != baseline.number:
        row["changes"] = _changes(baseline, trial, declared(study.target))
        row["diff"] = file_diff(stock, _files(study, trial), "baseline", f"trial-{trial.number}")
    return row


def _changes(baseline: Trial, trial: Trial, own: Declared) -> list[list[str]]:
    return [
        [
            change.name,
            "–" if change.before is None else figures.setting(change.before, change.unit),
            figures.setting(change.after, change.unit),
        ]
        for change in changes(baseline.settings, trial.settings, own)
    ]


def _files(study: Study, trial: Trial) -> Files:
    try:
        return rendered(study.directory, trial)
    except AutotuneError:  # never deployed: there are none
        return {}
