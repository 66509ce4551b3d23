"""Parameters across trials, for parallel coordinates and slices."""

from __future__ import annotations

from typing import Any

from autotune.report.parameters import Declared, active, declared, described
from autotune.report.view import StudyView, capacity
from autotune.services.base import Value
from autotune.study.records import COUNTED


def columns(view: StudyView) -> dict[str, Any]:
    """Trials that the budget counts, their peaks with 90 % intervals, every setting that varied.

    ``parameters`` are ``name``, ``unit``, ``log`` and one value per trial: ``None`` where it had no
    effect. ``choices`` lists the values of anything but numbers, by which they are numbered.
    """
    trials = [t for t in view.state.finished(*COUNTED) if t.peak and t.peak.feasible]
    names = dict.fromkeys(name for trial in trials for name in trial.settings)
    own = declared(view.target)
    acting = [active(trial.settings, own) for trial in trials]
    capacities = [capacity(trial.peak, view.units) for trial in trials]
    varied = []
    for name in names:
        values = [t.settings.get(name) if name in acts else None
                  for t, acts in zip(trials, acting, strict=True)]  # fmt: skip
        if len({value for value in values if value is not None}) > 1:
            varied.append(_column(name, values, own))
    return {
        "trials": [trial.number for trial in trials],
        "peaks": [known["peak"] for known in capacities],
        "lows": [known["low"] for known in capacities],
        "highs": [known["high"] for known in capacities],
        "parameters": varied,
    }


def _column(name: str, values: list[Value | None], own: Declared) -> dict[str, Any]:
    parameter = described(name, own=own)
    numeric = all(
        value is None or (isinstance(value, int | float) and not isinstance(value, bool))
        for value in values
    )
    shown = values if numeric else [None if v is None else _word(v) for v in values]
    return {
        "name": name,
        "unit": parameter.unit if parameter else "",
        "log": bool(parameter and parameter.log),
        "values": shown,
        "choices": None if numeric else sorted({str(v) for v in shown if v is not None}),
    }


def _word(value: Value) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)
