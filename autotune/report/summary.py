"""A study as one versioned JSON object: what ``run``, ``resume`` and ``report --json`` print.

- ``verdict``: ``improved`` · ``no-improvement`` · ``unmeetable`` · ``stopped`` (none reached yet).
- ``slo``: ``percentile`` (99 is p99), ``limit`` in seconds, ``errors`` as a fraction of one.
- ``baseline``, ``best``: ``peak`` in requests/s with its 90 % interval ``low`` to ``high``, and all
  parameters by ``tier.service.parameter``. **The best's peak is pooled from measurements made after
  it was selected** (those of the confirmation), never those it was selected by, which overstate it.
  It is ``null`` until there is one. The baseline was not selected by its peak; its first measurement
  is used until confirmation has measured it again.
- ``gain``: best over baseline from alternating ``pairs`` with its 90 % interval, or ``null``.
- ``trials``: the configurations that the budget counts, each in one of three: ``failed`` (not
  deployed, or no load within the objective), ``screened`` (given up: hardly better), ``complete``.
- ``seconds``: wall clock over all sessions; ``load`` includes warming up.
- ``goal``: only where the target is a command: ``direction``, ``name`` and ``unit`` of its value.
  Peaks are its values then, ``gain`` is best over baseline (below 1 is better where the direction
  is ``minimize``; ``null`` where a value is not positive) with the ``difference`` of the values, and
  ``slo`` is ``null``.
- ``bottleneck``: the findings for ``baseline`` and ``best``, or ``null`` when there are none.
- ``beds``: only of a study on several test beds: see `report.beds`.
- ``ceilings``: only where some were measured (`autotune measure --closed`, `--tier`), as
  ``study.ceilings`` records them.
- ``at``: only where rates were asked about: ``rate`` in requests/s, and for ``baseline`` and ``best``
  the ``latency`` in seconds at the SLO's percentile with its 90 % interval ``low`` to ``high``.
  ``bound`` is ``at most`` or ``more than`` where the rate lies beyond what was measured.
- ``warnings``: ``code``, ``value``, ``threshold``, ``text``, ``remedy`` each.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from autotune.report.beds import beds
from autotune.report.latency import latency_at
from autotune.report.view import StudyView
from autotune.report.warnings import warnings
from autotune.target.model import Target

SCHEMA = 1
SIDES = ("baseline", "best")


def summary(view: StudyView) -> dict[str, Any]:
    """The object described above."""
    goal, findings, ceilings = view.target.goal, view.bottlenecks, view.state.ceilings
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "study": view.name,
        "verdict": view.verdict,
        "slo": slo(view.target),
    }
    if goal is not None:
        direction = "maximize" if goal.maximize else "minimize"
        document["goal"] = {"direction": direction, "name": goal.name, "unit": goal.unit}
    document |= {
        "baseline": _side(view, "baseline"),
        "best": _side(view, "best"),
        "gain": view.gain,
        "trials": dict(view.trials),
        "seconds": dict(view.seconds),
        "bottleneck": {side: findings.get(side) for side in SIDES} if findings else None,
    }
    if view.state.beds:
        document["beds"] = beds(view)
    if ceilings:
        document["ceilings"] = list(map(dict, ceilings))
    return document | {"warnings": [asdict(warning) for warning in warnings(view)]}


def answer(view: StudyView, rate: float) -> dict[str, Any]:
    """An entry of ``at``; a side without enough readings is ``null``."""
    answers = {
        side: {"latency": latency.seconds, "low": latency.low, "high": latency.high,
               "bound": latency.bound or None, "why": why or None}
        for side, (latency, why) in latency_at(view, rate).items()
    }  # fmt: skip
    return {"rate": rate, **{side: answers.get(side) for side in SIDES}}


def slo(target: Target) -> dict[str, float] | None:
    """The objective of a stack; a command has none."""
    if target.goal is not None:
        return None
    slo = target.slo.slo
    return {"percentile": round(100 * slo.quantile, 6), "limit": slo.limit, "errors": slo.errors}


def _side(view: StudyView, label: str) -> dict[str, Any] | None:
    side = view.conclusion.sides.get(label)
    if side is None:
        return None
    parameters = dict(sorted(side.trial.in_effect.items()))
    return {"trial": side.trial.number, **view.capacities[label], "parameters": parameters}
