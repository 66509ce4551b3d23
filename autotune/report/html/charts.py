"""What the charts of the page are drawn from, as data for its script."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from autotune.report import format as fmt
from autotune.report.html import timeline, trials
from autotune.report.load_curve import PERCENTILES, hosts_at_capacity, load_curve
from autotune.report.objective import Requests, Units
from autotune.report.parameters import Declared, active, declared, described
from autotune.report.view import StudyView, capacity
from autotune.services.base import Value
from autotune.study.records import COUNTED


def data(view: StudyView) -> dict[str, Any]:
    """Everything the charts are drawn from."""
    slo, units = view.target.slo.slo, view.units
    sides = view.conclusion.sides
    time = timeline.time_of(view)
    return {
        "slo": {
            "percentile": fmt.percentile(slo),
            "limit": 1000 * slo.limit,
            "allowed": 100 * slo.allowed,
            "said": fmt.objective(slo),
        },
        "baseline": sides["baseline"].trial.number if "baseline" in sides else None,
        "best": sides["best"].trial.number if "best" in sides else None,
        "time": time.axis,
        "unit": {
            "name": units.unit, "suffix": units.suffix, "from_zero": isinstance(units, Requests)
        },
        "quantity": units.quantity,
        "counted": sorted(map(str, COUNTED)),
        "peaks": timeline.peaks(view, time),
        "steps": timeline.best_so_far(view, time),
        "readings": timeline.readings(view, time),
        "latency": percentile_curves(view),
        "hosts": _hosts(view),
        "parameters": columns(view),
        "trials": trials.rows(view),
        "ceilings": [dict(record) for record in view.state.ceilings],
        **_model(view),
    }  # fmt: skip


def _hosts(view: StudyView) -> dict[str, dict[str, dict[str, float]]]:
    """Baseline beside best; neither is there without a reading that met the SLO."""
    slo = view.target.slo.slo
    means = {label: hosts_at_capacity(readings, slo) for label, readings in view.readings().items()}
    return {label: of_side for label, of_side in means.items() if of_side}


def _model(view: StudyView) -> dict[str, Any]:
    """Importance, pairs that interact, ranges to widen and slices, by the model; or nothing yet."""
    model, units = view.state.model, view.units
    if model is None:
        return {}
    total = sum(row["effect"] for row in model["importance"]) or 1.0
    edges = [
        f"{e['parameter']} is best at the {e['end']} end of its range ({e['value']}): "
        f"try {e['try_range'][0]} to {e['try_range'][1]}"
        for e in model["edges"]
    ]
    return {
        "importance": {
            "rows": [
                {"name": row["parameter"], "share": row["effect"] / total}
                for row in model["importance"]
                if row["effect"] >= 0.005 * total
            ],
            "pairs": model["pairs"],
            "edges": edges,
        },
        "slices": {name: _in_its_terms(band, units) for name, band in model["slices"].items()},
    }


def _in_its_terms(band: dict[str, list[Any]], units: Units) -> dict[str, list[Any]]:
    """A slice of the model, whose capacities become the user's numbers."""
    numbers = {
        key: [units.rounded(units.of(peak)) for peak in band[key]]
        for key in ("mean", "low", "high")
    }
    return {**band, **numbers}


def percentile_curves(view: StudyView) -> dict[str, dict[str, list[float | None]]]:
    """For the baseline and the best: rates, requests behind each point, each percentile in ms.

    A percentile is of *intended* requests; ``None`` where too few were answered right at all.
    Readings that the generator limited, and those cut short, say nothing here.
    """
    return {label: _curve(readings) for label, readings in view.readings().items()}


def _curve(readings: Iterable[Mapping[str, Any]]) -> dict[str, list[float | None]]:
    steps = [step for step in load_curve(readings) if step.complete]
    curve: dict[str, list[float | None]] = {
        "rate": [round(step.pooled.rate, 1) for step in steps],
        "requests": [step.pooled.intended for step in steps],
    }
    for percent in PERCENTILES:
        curve[f"p{percent:g}"] = [step.percentile(percent) for step in steps]
    return curve


def columns(view: StudyView) -> dict[str, Any]:
    """Trials that the budget counts, their capacities with 90 % intervals, every setting that varied.

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
        "peaks": [interval["peak"] for interval in capacities],
        "lows": [interval["low"] for interval in capacities],
        "highs": [interval["high"] for interval in capacities],
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
