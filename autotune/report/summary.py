"""A study as one versioned JSON object, printed by ``run``, ``resume`` and ``report --json``.

- ``verdict``: ``improved`` · ``no-improvement`` · ``unmeetable`` · ``stopped`` (no verdict yet).
- ``slo``: ``percentile`` (99 is p99), ``limit`` in seconds, ``errors`` as a fraction of one.
- ``baseline``, ``best``: ``peak`` in requests/s with its 90 % interval ``low`` to ``high``, and all
  parameters by ``tier.service.parameter``. **The peak of the best configuration pools measurements made
  after its selection** (by the confirmation). The peak that decided the selection is never used, because
  it overstates the capacity. ``peak`` is ``null`` until it is measured. The baseline was not selected by
  its peak. The baseline's first measurement is used until the confirmation measures it again. With a
  ``limit``, the load could not be raised further, and ``peak`` is a lower bound of the capacity.
  ``requests`` is the number of requests in the readings that determine ``peak``. ``lowest_rate`` is their
  lowest rate in requests/s, or ``null`` for a command.
- ``gain``: the gain of the best configuration over the baseline from alternating ``pairs``, with its 90 %
  interval, or ``null``.
- ``preset``: the best shipped preset, with the keys of ``best``; ``null`` if none was fully measured.
- ``gain_shares``: ``preset`` is the gain of the best preset over the baseline, ``search`` the gain of the
  best configuration over that preset. Each is a ratio with its 90 % interval, or ``null``. Without a
  proven gain, ``gain_shares`` is ``null``.
- ``headline``: the verdict in one line of text.
- ``latency``: the latency at ``rate``, with the keys of ``at``. If ``today`` is true, the target
  declares the rate; otherwise the rate is a share of the baseline's capacity. A side is ``null`` if its
  latency is unknown.
- ``memory``: the bytes that all changes add, summed over the hosts. ``modelled`` is the maximum
  according to the memory rules, ``measured`` the use at capacity. Each is ``null`` if unknown.
- ``changes``: the settings that turn the baseline into the best configuration. ``action`` is none, reload
  or restart. ``memory`` is the modelled maximum that the change adds, in bytes, or ``null``. ``cost`` is
  the capacity without the change, divided by the capacity of the best configuration, with its 90 %
  interval, or ``null``.
- ``next``: the commands to ``resume`` the study, to ``apply`` the best configuration and to ``undo`` the
  changes, and a ``note``. ``commands`` lists recommended commands, the most useful first.
- ``trials``: the number of configurations in the budget, by outcome: ``failed`` (not deployed, or no
  load within the objective), ``screened`` (stopped early), ``complete``.
- ``seconds``: wall-clock time over all sessions; ``load`` includes the warm-up.
- ``goal``: only for a command: ``direction``, ``name`` and ``unit`` of its value. Peaks are then the
  command's values, and ``slo`` is ``null``. ``gain`` is the ratio of the best value to the baseline's
  value, with the ``difference`` of the values. The ratio is below 1 for an improvement with ``minimize``,
  and ``null`` if a value is not positive.
- ``bottleneck``: the findings for ``baseline`` and ``best``, or ``null`` if there are none.
- ``beds``: only for a study on several test beds; see `report.beds`.
- ``ceilings``: only if ceilings were measured (`autotune measure --closed`, `--tier`), as
  ``study.ceilings`` records them.
- ``at``: only for requested rates: ``rate`` in requests/s. ``baseline`` and ``best`` contain the
  ``latency`` in seconds at the SLO's percentile, with its 90 % interval ``low`` to ``high``. ``bound``
  is ``at most`` or ``more than`` if the rate is outside the measured range; ``why`` is the reason.
  ``measured`` is true for readings at this rate, and false for the fitted curve.
- ``warnings``: the warnings, each with ``code``, ``value``, ``threshold``, ``text`` and ``remedy``.
"""

from __future__ import annotations

from collections.abc import Mapping

from autotune.estimate import Estimate
from autotune.report import documents
from autotune.report.beds import summarize_beds
from autotune.report.ceilings import encode_ceilings
from autotune.report.conclusion import STOPPED_VERDICT, MeasuredConfiguration
from autotune.report.latency import LatencyEstimate, estimate_latency_at
from autotune.report.next_steps import NextSteps
from autotune.report.parameters import SettingChange
from autotune.report.reversal_costs import select_change_action
from autotune.report.text_report import sort_changes
from autotune.report.units import DifferenceFigures, GainFigures
from autotune.report.view import StudyView
from autotune.report.warnings import StudyWarning
from autotune.study.journal_records import RecordedBottleneck
from autotune.target.model import Target

VERDICT_NAMES: Mapping[str, documents.VerdictName] = {
    "improved": "improved",
    "no-improvement": "no-improvement",
    "unmeetable": "unmeetable",
    STOPPED_VERDICT: "stopped",
}


def build_summary(view: StudyView) -> documents.StudyObject:
    """Return the JSON object of a study, as described in this module's docstring."""
    trial_counts, seconds = view.trial_counts, view.seconds_by_activity
    return {
        "schema": 1,
        "study": view.name,
        "verdict": VERDICT_NAMES[view.verdict],
        "headline": view.headline.text,
        "slo": summarize_slo(view.target),
        **_summarize_goal(view.target),
        "baseline": _summarize_side(view, "baseline"),
        "best": _summarize_side(view, "best"),
        "preset": _summarize_configuration(view, "preset", view.conclusion.preset),
        "gain": encode_gain(view.gain) if view.gain else None,
        "gain_shares": _summarize_gain_shares(view),
        "latency": encode_today_latency(view),
        "memory": {
            "modelled": _round_change_bytes(view.memory_costs.modelled),
            "measured": _round_change_bytes(view.memory_costs.measured),
        },
        "changes": [_summarize_change(view, change) for change in sort_changes(view)],
        "next": _summarize_next_steps(view.next_steps),
        "trials": {
            "complete": trial_counts["complete"],
            "failed": trial_counts["failed"],
            "screened": trial_counts["screened"],
        },
        "seconds": {
            "total": seconds["total"],
            "load": seconds["load"],
            "deploy": seconds["deploy"],
            "search": seconds["search"],
            "other": seconds["other"],
        },
        "bottleneck": _summarize_findings(view),
        **_summarize_optional_parts(view),
        "warnings": [_encode_warning(warning) for warning in view.warnings],
    }


def _summarize_next_steps(steps: NextSteps) -> documents.NextCommands:
    return {
        "resume": list(steps.resume),
        "apply": list(steps.apply),
        "undo": list(steps.undo),
        "note": steps.note,
        "commands": list(steps.commands),
    }


def build_latency_at_rate(view: StudyView, rate: float) -> documents.RateAnswer:
    """Return the entry of ``at`` for a rate. A side without enough readings is ``null``."""
    return _build_rate_answer(rate, estimate_latency_at(view, rate))


def _build_rate_answer(rate: float, sides: Mapping[str, LatencyEstimate]) -> documents.RateAnswer:
    return {
        "rate": rate,
        "baseline": encode_latency(sides.get("baseline")),
        "best": encode_latency(sides.get("best")),
    }


def encode_today_latency(view: StudyView) -> documents.TodayLatencyObject | None:
    """Return the latency at today's request rate as JSON."""
    latency = view.latency
    if latency is None:
        return None
    return {**_build_rate_answer(latency.rate, latency.sides), "today": latency.is_declared}


def encode_latency(latency: LatencyEstimate | None) -> documents.LatencyAnswer | None:
    """Return a latency as JSON."""
    if latency is None:
        return None
    return {
        "latency": latency.seconds,
        "low": latency.low,
        "high": latency.high,
        "bound": latency.bound or None,
        "why": latency.why or None,
        "measured": latency.is_measured,
    }


def summarize_slo(target: Target) -> documents.SloObject | None:
    """Return the SLO of a stack, or ``None`` for a command."""
    if target.command_goal is not None:
        return None
    slo = target.slo.objective
    return {"percentile": round(100 * slo.quantile, 6), "limit": slo.limit, "errors": slo.errors}


def _summarize_goal(target: Target) -> documents.GoalOfCommand:
    goal = target.command_goal
    if goal is None:
        return {}
    direction: documents.Direction = "maximize" if goal.maximize else "minimize"
    return {"goal": {"direction": direction, "name": goal.name, "unit": goal.unit}}


def _summarize_optional_parts(view: StudyView) -> documents.OptionalKeys:
    parts_document: documents.OptionalKeys = {}
    if view.state.beds:
        parts_document["beds"] = summarize_beds(view)
    if view.state.ceilings:
        parts_document["ceilings"] = list(map(encode_ceilings, view.state.ceilings))
    return parts_document


def _summarize_side(view: StudyView, side_name: str) -> documents.Configuration | None:
    return _summarize_configuration(view, side_name, view.conclusion.sides.get(side_name))


def _summarize_configuration(
    view: StudyView, side_name: str, conclusion_side: MeasuredConfiguration | None
) -> documents.Configuration | None:
    if conclusion_side is None:
        return None
    capacity, readings = view.capacities[side_name], view.deciding_readings[side_name]
    return {
        "trial": conclusion_side.trial.number,
        "peak": capacity.peak,
        "low": capacity.low,
        "high": capacity.high,
        "limit": conclusion_side.best_estimate.limit if conclusion_side.best_estimate else None,
        "requests": readings.requests,
        "lowest_rate": readings.lowest_rate,
        "parameters": dict(sorted(conclusion_side.trial.effective_settings.items())),
    }


def encode_gain(gain: GainFigures) -> documents.GainObject:
    """Return a gain as JSON; only a command's values have a ``difference``."""
    gain_document: documents.GainObject = {
        "ratio": gain.ratio,
        "low": gain.low,
        "high": gain.high,
        "pairs": gain.pairs,
    }
    if gain.difference is not None:
        gain_document["difference"] = _encode_difference(gain.difference)
    return gain_document


def _encode_difference(difference: DifferenceFigures) -> documents.Difference:
    return {"value": difference.value, "low": difference.low, "high": difference.high}


def _summarize_gain_shares(view: StudyView) -> documents.GainSharesObject | None:
    if view.verdict != "improved":
        return None
    gain_shares, gain = view.gain_shares, view.gain
    if gain and view.conclusion.preset_won and not view.conclusion.shows_preset:
        # The winner is a preset, so the preset's share is the proven gain.
        return {"preset": _encode_gain_ratio(gain), "search": None}
    return {
        "preset": _encode_ratio(gain_shares.preset) if gain_shares.preset else None,
        "search": _encode_ratio(gain_shares.search) if gain_shares.search else None,
    }


def _round_change_bytes(byte_change: float | None) -> int | None:
    return None if byte_change is None else round(byte_change)


def _encode_gain_ratio(gain: GainFigures) -> documents.Ratio | None:
    if gain.ratio is None:
        return None
    return {"ratio": gain.ratio, "low": gain.low, "high": gain.high}


def _encode_ratio(ratio: Estimate) -> documents.Ratio:
    low, high_ratio = ratio.interval()
    return {"ratio": round(ratio.value, 4), "low": round(low, 4), "high": round(high_ratio, 4)}


def _summarize_change(view: StudyView, change: SettingChange) -> documents.Change:
    cost = view.reversal_costs.get(change.name)
    return {
        "parameter": change.name,
        "before": change.before,
        "after": change.after,
        "action": select_change_action(change),
        "memory": _round_change_bytes(view.memory_costs.by_change.get(change.name)),
        "cost": {
            **_encode_ratio(cost.ratio),
            "distinguishable": cost.is_distinguishable,
            "measured": cost.is_measured,
        }
        if cost is not None
        else None,
    }


def _summarize_findings(view: StudyView) -> documents.Findings | None:
    if not view.bottlenecks:
        return None
    findings = {side: encode_finding(finding) for side, finding in view.bottlenecks.items()}
    return {"baseline": findings.get("baseline"), "best": findings.get("best")}


def encode_finding(finding: RecordedBottleneck) -> documents.Finding:
    """Return a bottleneck as JSON."""
    return {
        "trial": finding.trial,
        "tier": finding.tier,
        "service": finding.service,
        "host": finding.host,
        "resource": str(finding.resource),
        "evidence": finding.evidence,
        "confidence": finding.confidence,
        "gain": finding.gain,
        "related": [list(map(str, shortage)) for shortage in finding.related],
    }


def _encode_warning(warning: StudyWarning) -> documents.StudyWarningObject:
    return {
        "code": warning.code,
        "value": warning.value,
        "threshold": warning.threshold,
        "text": warning.text,
        "remedy": warning.remedy,
    }
