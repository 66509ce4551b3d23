"""A study as one versioned JSON object, printed by ``run``, ``resume`` and ``report --json``.

- ``verdict``: ``improved`` · ``no-improvement`` · ``unmeetable`` · ``stopped`` (none reached yet).
- ``slo``: ``percentile`` (99 is p99), ``limit`` in seconds, ``errors`` as a fraction of one.
- ``baseline``, ``best``: ``peak`` in requests/s with its 90 % interval ``low`` to ``high``, and all
  parameters by ``tier.service.parameter``. **The best's peak pools measurements made after its
  selection** (by the confirmation). The peak that decided the selection is never used, because it
  overstates the capacity. ``peak`` is ``null`` until there is one. The baseline was not selected by
  its peak. Its first measurement is used until the confirmation measures it again.
- ``gain``: best over baseline from alternating ``pairs`` with its 90 % interval, or ``null``.
- ``preset``: the best shipped preset, like ``best``; ``null`` if none was measured to the end.
- ``gain_shares``: ``preset`` is the best preset over the baseline, ``search`` the best over that preset.
  Each is a ratio with its 90 % interval, or ``null``. Without a proven gain, ``gain_shares`` is ``null``.
- ``changes``: the settings that turn the baseline into the best. ``action`` is none, reload or restart.
  ``cost`` is the capacity without the change over the best's, with its 90 % interval, or ``null``.
- ``next``: the commands to ``resume`` the study, ``apply`` the best and ``undo`` that, and a ``note``.
- ``trials``: the configurations in the budget by outcome: ``failed`` (not deployed, or no load within
  the objective), ``screened`` (stopped early: hardly better), ``complete``.
- ``seconds``: wall clock over all sessions; ``load`` includes the warm-up.
- ``goal``: only for a command: ``direction``, ``name`` and ``unit`` of its value. Peaks are then its
  values, and ``slo`` is ``null``. ``gain`` is best over baseline with the ``difference`` of the
  values. It is below 1 for an improvement with ``minimize``, and ``null`` if a value is not positive.
- ``bottleneck``: the findings for ``baseline`` and ``best``, or ``null`` if there are none.
- ``beds``: only for a study on several test beds; see `report.beds`.
- ``ceilings``: only if some were measured (`autotune measure --closed`, `--tier`), as
  ``study.ceilings`` records them.
- ``at``: only for requested rates: ``rate`` in requests/s. ``baseline`` and ``best`` contain the
  ``latency`` in seconds at the SLO's percentile, with its 90 % interval ``low`` to ``high``.
  ``bound`` is ``at most`` or ``more than`` if the rate is outside the measured range.
- ``warnings``: ``code``, ``value``, ``threshold``, ``text``, ``remedy`` each.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from autotune.estimate import Estimate
from autotune.report.beds import summarize_beds
from autotune.report.latency import estimate_latency_at
from autotune.report.next_steps import build_next_steps
from autotune.report.parameters import SettingChange
from autotune.report.reversal_costs import select_action
from autotune.report.text_report import sort_changes
from autotune.report.view import MeasuredConfiguration, StudyView
from autotune.report.warnings import collect_warnings
from autotune.target.model import Target

SCHEMA_VERSION = 1
SIDE_NAMES = ("baseline", "best")


def build_summary(view: StudyView) -> dict[str, Any]:
    """Return the JSON object of a study, as described above."""
    goal, findings, ceilings = view.target.command_goal, view.bottlenecks, view.state.ceilings
    document: dict[str, Any] = {
        "schema": SCHEMA_VERSION,
        "study": view.name,
        "verdict": view.verdict,
        "slo": summarize_slo(view.target),
    }
    if goal is not None:
        direction = "maximize" if goal.maximize else "minimize"
        document["goal"] = {"direction": direction, "name": goal.name, "unit": goal.unit}
    document |= {
        "baseline": _summarize_side(view, "baseline"),
        "best": _summarize_side(view, "best"),
        "preset": _summarize_configuration(view, "preset", view.conclusion.preset),
        "gain": view.gain,
        "gain_shares": _summarize_shares(view),
        "changes": [_summarize_change(view, change) for change in sort_changes(view)],
        "next": _summarize_steps(view),
        "trials": dict(view.trial_counts),
        "seconds": dict(view.seconds_by_activity),
        "bottleneck": {side: findings.get(side) for side in SIDE_NAMES} if findings else None,
    }
    if view.state.beds:
        document["beds"] = summarize_beds(view)
    if ceilings:
        document["ceilings"] = list(map(dict, ceilings))
    return document | {"warnings": [asdict(warning) for warning in collect_warnings(view)]}


def build_latency_answer(view: StudyView, rate: float) -> dict[str, Any]:
    """Return an entry of ``at``; a side without enough readings is ``null``."""
    answers = {
        side: {"latency": latency.seconds, "low": latency.low, "high": latency.high,
               "bound": latency.bound or None, "why": reason or None}
        for side, (latency, reason) in estimate_latency_at(view, rate).items()
    }  # fmt: skip
    return {"rate": rate, **{side: answers.get(side) for side in SIDE_NAMES}}


def summarize_slo(target: Target) -> dict[str, float] | None:
    """Return the SLO of a stack, or ``None`` for a command."""
    if target.command_goal is not None:
        return None
    slo = target.slo.objective
    return {"percentile": round(100 * slo.quantile, 6), "limit": slo.limit, "errors": slo.errors}


def _summarize_side(view: StudyView, label: str) -> dict[str, Any] | None:
    return _summarize_configuration(view, label, view.conclusion.sides.get(label))


def _summarize_configuration(
    view: StudyView, label: str, side: MeasuredConfiguration | None
) -> dict[str, Any] | None:
    if side is None:
        return None
    parameters = dict(sorted(side.trial.effective_settings.items()))
    return {"trial": side.trial.number, **view.capacities[label], "parameters": parameters}


def _summarize_shares(view: StudyView) -> dict[str, Any] | None:
    if view.verdict != "improved":
        return None
    shares = view.gain_shares
    if view.gain and view.conclusion.preset_won and not view.conclusion.shows_preset:
        # The winner is the preset, so its share is the proven gain.
        return {"preset": {key: view.gain[key] for key in ("ratio", "low", "high")}, "search": None}
    return {"preset": _summarize_ratio(shares.preset), "search": _summarize_ratio(shares.search)}


def _summarize_ratio(ratio: Estimate | None) -> dict[str, float] | None:
    if ratio is None:
        return None
    low, high = ratio.interval()
    return {"ratio": round(ratio.value, 4), "low": round(low, 4), "high": round(high, 4)}


def _summarize_change(view: StudyView, change: SettingChange) -> dict[str, Any]:
    cost = view.reversal_costs.get(change.name)
    summary: dict[str, Any] = {
        "parameter": change.name,
        "before": change.before,
        "after": change.after,
        "action": select_action(change),
        "cost": None,
    }
    if cost is not None:
        summary["cost"] = {
            **(_summarize_ratio(cost.ratio) or {}),
            "distinguishable": cost.is_distinguishable,
            "measured": cost.is_measured,
        }
    return summary


def _summarize_steps(view: StudyView) -> dict[str, Any]:
    steps = build_next_steps(view)
    commands = {"resume": steps.resume, "apply": steps.apply, "undo": steps.undo}
    return {**{purpose: list(lines) for purpose, lines in commands.items()}, "note": steps.note}
