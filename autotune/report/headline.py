"""The verdict of a study in one line, and the contributions of the preset and the search to a gain."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.optimize.confirmation import CLAIM_COVERAGE, MIN_PAIRS
from autotune.report import format as fmt
from autotune.report.beds import format_bed_count
from autotune.report.conclusion import STOPPED_VERDICT
from autotune.report.figures import StudyFigures
from autotune.report.gain_shares import format_gain_shares
from autotune.report.units import RequestUnits, ValueUnits
from autotune.study.proof import have_unstable_rates
from autotune.study.ranking import REQUIRED_REPRODUCTIONS
from autotune.target.messages import format_count

VERDICT_MARKS = {
    "improved": ("✓", "green"),
    "unmeetable": ("✗", "red"),
    STOPPED_VERDICT: ("…", "yellow"),
}
UNDECIDED_MARK = ("=", "yellow")


@dataclass(frozen=True)
class Headline:
    """The top line of a report: its ``text``, and the verdict's ``mark`` with the mark's color."""

    mark: str
    style: str
    text: str

    def __str__(self) -> str:
        return f"{self.mark} {self.text}"


def build_headline(view: StudyFigures) -> Headline:
    """Return the top line of a report."""
    verdict_mark, style = VERDICT_MARKS.get(view.verdict, UNDECIDED_MARK)
    return Headline(verdict_mark, style, _format_verdict(view))


def _format_verdict(view: StudyFigures) -> str:
    """Return the verdict in one line: ``+41 % [36, 47] requests/s at p99 ≤ 50 ms, 6 alternating pairs``.

    The line claims only proven results.
    """
    match view.verdict:
        case "improved" if view.gain:
            verdict_text = _format_gain(view)
        case "improved":
            # Without a capacity of the baseline, no ratio can be computed.
            is_web_stack = isinstance(view.units, RequestUnits)
            problem = "does not meet the SLO at any rate" if is_web_stack else "returned no value"
            if view.conclusion.baseline and view.conclusion.baseline.trial.failure:
                problem = "could not be measured"
            best_text = view.units.format_amount(view.capacities["best"].peak)
            verdict_text = f"{best_text}{view.units.objective_suffix}; the baseline {problem}"
        case "no-improvement":
            verdict_text = _format_no_improvement(view)
        case "unmeetable":
            verdict_text = _format_unmeetable(view)
        case _ if view.state.purpose:
            suffix = view.units.objective_suffix
            verdict_text = f"no verdict: {view.name} compared no configurations{suffix}"
        case _:
            verdict_text = f"unfinished: no verdict for {view.name} yet"
    return (
        f"{verdict_text} (simulated; no host was touched)"
        if view.target.simulated
        else verdict_text
    )


def _format_no_improvement(view: StudyFigures) -> str:
    units = view.units
    if view.gain is not None:
        is_worse = units.is_loss(view.gain)
        if not is_worse and view.gain.pairs < MIN_PAIRS:
            return (
                f"too little time to prove a gain (needs {MIN_PAIRS} pairs): {_format_gain(view)}"
            )
        if units.is_gain(view.gain):
            confidence = f"{100 * CLAIM_COVERAGE:g} %"
            return f"likely an improvement, but not proven at {confidence}: {_format_gain(view)}"
        outcome_text = (
            "improvement: the best candidate is worse, "
            if is_worse
            else "distinguishable improvement: "
        )
        return f"no {outcome_text}{_format_gain(view)}"
    if sum(view.trial_counts.values()) <= 1:
        no_gain_reason = "time ran out before any candidate was tried"
    elif view.conclusion.best:
        no_gain_reason = "no other configuration was confirmed"
    else:
        outcome = "met the SLO" if isinstance(units, RequestUnits) else "gave a value"
        no_gain_reason = f"no other configuration {outcome}"
    if limit_text := _format_load_limit(view):
        return f"no gain could be measured{units.objective_suffix}: {limit_text}"
    return f"no improvement{units.objective_suffix}: {no_gain_reason}"


def _format_load_limit(view: StudyFigures) -> str:
    """Return the highest capacity under a load limit, as text; empty if no trial hit a limit."""
    limited_peaks = [
        t.peak for t in view.state.trials if t.peak and t.peak.is_load_limited and t.peak.met_slo
    ]
    if not limited_peaks:
        return ""
    highest_peak = max(limited_peaks, key=lambda peak: peak.peak)
    bound_text = view.units.format_lower_bound(highest_peak.peak)
    return (
        f"the capacity is {bound_text} in {format_count(len(limited_peaks), 'measurement')} (limited by "
        f"{highest_peak.limit})"
    )


def _format_unmeetable(view: StudyFigures) -> str:
    if limit_text := _format_load_limit(view):
        return f"no verdict{view.units.objective_suffix}: {limit_text}"
    if isinstance(view.units, ValueUnits):
        return "no configuration returned a reproducible value"
    if (best := view.conclusion.best) and have_unstable_rates(best.repeats):
        peaks = [trial.peak.peak for trial in best.repeats if trial.peak]
        return (
            f"{view.units.objective} not met reliably: repeats of trial {best.trial.number} met it at "
            f"rates from {fmt.format_rate(min(peaks))}/s to {fmt.format_rate(max(peaks))}/s"
        )
    if best:
        trials = [best.trial, *best.repeats]
        measured_trials = [trial for trial in trials if not trial.is_unmeasured]
        met_count = sum(trial.meets_slo for trial in measured_trials)
        measurements_text = format_count(len(measured_trials), "measurement")
        return (
            f"{view.units.objective} not met reliably: trial {best.trial.number} met it in {met_count} "
            f"of {measurements_text}, and {REQUIRED_REPRODUCTIONS + 1} must all meet it"
        )
    evidence = f" ({evidence_text})" if (evidence_text := view.all_readings.failure_text) else ""
    return (
        f"{view.units.objective} not attainable at any rate with any configuration tried{evidence}"
    )


def _format_gain(view: StudyFigures) -> str:
    assert view.gain is not None
    pairs_text = format_count(view.gain.pairs, "alternating pair")
    return f"{view.gain.text}{view.units.objective_suffix}, {pairs_text}{format_bed_count(view)}"


def format_gain_split(view: StudyFigures) -> str:
    """Return the contributions of the best preset and of the search to a proven gain, as text; empty if
    unknown.
    """
    conclusion = view.conclusion
    if conclusion.preset_won and not conclusion.shows_preset and view.verdict == "improved":
        return "from the preset alone; the search found nothing better"
    peaks = []
    for conclusion_side in (conclusion.baseline, conclusion.preset):
        peak = conclusion_side.best_estimate if conclusion_side else None
        peaks.append(peak.peak if peak and peak.is_feasible else 0.0)
    return format_gain_shares(view.gain_shares, view.units, *peaks)
