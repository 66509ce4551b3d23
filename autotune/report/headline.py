"""The verdict of a study in one line, and what the preset and the search contributed to a gain."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.optimize.confirmation import CLAIM_COVERAGE, MIN_PAIRS
from autotune.report.beds import format_bed_count
from autotune.report.conclusion import STOPPED_VERDICT
from autotune.report.figures import StudyFigures
from autotune.report.gain_shares import format_gain_shares
from autotune.report.units import RequestUnits, ValueUnits
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


def build_headline(figures: StudyFigures) -> Headline:
    """Return the top line of a report."""
    mark, style = VERDICT_MARKS.get(figures.verdict, UNDECIDED_MARK)
    return Headline(mark, style, _format_verdict(figures))


def _format_verdict(figures: StudyFigures) -> str:
    """Return the verdict in one line: ``+41 % [36, 47] requests/s at p99 ≤ 50 ms, 6 alternating pairs``.

    The line claims only proven results.
    """
    match figures.verdict:
        case "improved" if figures.gain:
            text = _format_gain(figures)
        case "improved":
            # A baseline without a capacity gives no ratio.
            requests = isinstance(figures.units, RequestUnits)
            problem = "does not meet the SLO at any rate" if requests else "gave no value"
            best_text = figures.units.format_amount(figures.capacities["best"].peak)
            text = f"{best_text}{figures.units.objective_suffix}; the baseline {problem}"
        case "no-improvement":
            text = _format_no_improvement(figures)
        case "unmeetable":
            text = _format_unmeetable(figures)
        case _ if figures.conclusion.baseline is None and not sum(figures.trial_counts.values()):
            suffix = figures.units.objective_suffix
            text = f"no verdict: {figures.name} compared no configurations{suffix}"
        case _:
            text = f"unfinished: no verdict for {figures.name} yet"
    return f"{text} (simulated; no host was touched)" if figures.target.simulated else text


def _format_no_improvement(figures: StudyFigures) -> str:
    units = figures.units
    if figures.gain is not None:
        is_worse = units.is_loss(figures.gain)
        if not is_worse and figures.gain.pairs < MIN_PAIRS:
            return f"too little time to prove a gain (needs {MIN_PAIRS} pairs): {_format_gain(figures)}"
        if units.is_gain(figures.gain):
            confidence = f"{100 * CLAIM_COVERAGE:g} %"
            return f"likely an improvement, but not proven at {confidence}: {_format_gain(figures)}"
        kind = (
            "improvement: the best candidate is worse, "
            if is_worse
            else "distinguishable improvement: "
        )
        return f"no {kind}{_format_gain(figures)}"
    if sum(figures.trial_counts.values()) <= 1:
        reason = "time ran out before any candidate was tried"
    elif figures.conclusion.best:
        reason = "no other configuration was confirmed"
    else:
        outcome = "met the SLO" if isinstance(units, RequestUnits) else "gave a value"
        reason = f"no other configuration {outcome}"
    if limited := _format_load_limit(figures):
        return f"no gain could be measured{units.objective_suffix}: {limited}"
    return f"no improvement{units.objective_suffix}: {reason}"


def _format_load_limit(figures: StudyFigures) -> str:
    """Return the highest capacity under a load limit, as text; empty if no trial hit a limit."""
    limited_peaks = [
        t.peak for t in figures.state.trials if t.peak and t.peak.is_load_limited and t.peak.met_slo
    ]
    if not limited_peaks:
        return ""
    highest_peak = max(limited_peaks, key=lambda peak: peak.peak)
    bound_text = figures.units.format_lower_bound(highest_peak.peak)
    return (
        f"the capacity is {bound_text} in {format_count(len(limited_peaks), 'measurement')} (limited by "
        f"{highest_peak.limit})"
    )


def _format_unmeetable(figures: StudyFigures) -> str:
    if limited := _format_load_limit(figures):
        return f"no verdict{figures.units.objective_suffix}: {limited}"
    if isinstance(figures.units, ValueUnits):
        return "no configuration gave a reproducible value"
    if best := figures.conclusion.best:
        return f"{figures.units.objective} not met: trial {best.trial.number} met it once, but not again"
    return f"{figures.units.objective} not attainable at any rate with any configuration tried"


def _format_gain(figures: StudyFigures) -> str:
    assert figures.gain is not None
    pairs_text = format_count(figures.gain.pairs, "alternating pair")
    return f"{figures.gain.text}{figures.units.objective_suffix}, {pairs_text}{format_bed_count(figures)}"


def format_gain_split(figures: StudyFigures) -> str:
    """Return what the preset and the search contributed to a proven gain; empty if unknown."""
    conclusion = figures.conclusion
    if conclusion.preset_won and not conclusion.shows_preset and figures.verdict == "improved":
        return "from the preset alone; the search found nothing better"
    peaks = []
    for side in (conclusion.baseline, conclusion.preset):
        peak = side.best_estimate if side else None
        peaks.append(peak.peak if peak and peak.is_feasible else 0.0)
    return format_gain_shares(figures.gain_shares, figures.units, *peaks)
