"""Data for the page's script: the charts and the table of trials."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from autotune.errors import AutotuneError
from autotune.estimate import WITHIN_90
from autotune.report import format as fmt
from autotune.report import timeline
from autotune.report.diff import rendered
from autotune.report.latency import LatencyCurve, latency_curves
from autotune.report.load_curve import PERCENTILES, hosts_at_capacity, load_curve
from autotune.report.objective import Requests
from autotune.report.parameters import Declared, active, acts, changes, declared, described
from autotune.report.studies import Study
from autotune.report.trials import VERDICTS, describe_finding, outcome
from autotune.report.view import StudyView, capacity_of
from autotune.services.base import Value
from autotune.study.ranking import LEAST_MEASURED, measured
from autotune.study.records import COUNTED, Trial
from autotune.unified_diff import Files, file_diff

Curve = dict[str, list[float | None]]
LEAST_EFFECT = 0.002  # smallest effect drawn, as a log ratio
MATRIX = 24  # settings with a column in the table of trials


def data(view: StudyView) -> dict[str, Any]:
    """Return the data of all charts."""
    slo, units = view.target.slo.slo, view.units
    sides, readings = view.conclusion.sides, view.readings()
    time, columns = timeline.time_of(view), _columns(view)
    # A side without a reading that met the SLO has no figures.
    hosts = {side: hosts_at_capacity(records, slo) for side, records in readings.items()}
    return {
        "slo": {
            "percentile": fmt.percentile(slo),
            "limit": 1000 * slo.limit,
            "allowed": 100 * slo.allowed,
            "said": fmt.objective(slo),
        },
        "baseline": sides["baseline"].trial.number if "baseline" in sides else None,
        "best": sides["best"].trial.number if "best" in sides else None,
        "proven": view.verdict == "improved",
        "time": time.axis,
        "unit": {
            "name": units.unit, "suffix": units.suffix, "from_zero": isinstance(units, Requests)
        },
        "quantity": units.quantity,
        "counted": sorted(map(str, COUNTED)),
        "peaks": timeline.peaks(view, time),
        "steps": timeline.best_so_far(view, time),
        "readings": timeline.readings(view, time),
        "latency": {side: _percentile_curve(records) for side, records in readings.items()},
        "fitted": {side: _fitted(curve) for side, curve in latency_curves(view).items()},
        "columns": [column["name"] for column in columns["parameters"][:MATRIX]],
        "hosts": {side: means for side, means in hosts.items() if means},
        "parameters": columns,
        "trials": _rows(view, [column["name"] for column in columns["parameters"][:MATRIX]]),
        "ceilings": [dict(record) for record in view.state.ceilings],
        **_model(view),
    }  # fmt: skip


def _percentile_curve(readings: Iterable[Mapping[str, Any]]) -> Curve:
    """Return the rates, the requests behind each point, and each percentile in ms.

    A percentile covers *intended* requests; ``None`` if too few were answered correctly. Readings that
    were limited by the generator or cut short are omitted.
    """
    steps = [step for step in load_curve(readings) if step.complete]
    return {
        "rate": [round(step.pooled.rate, 1) for step in steps],
        "requests": [step.pooled.intended for step in steps],
        **{
            f"p{percent:g}": [step.percentile(percent) for step in steps] for percent in PERCENTILES
        },
    }


def _fitted(curve: LatencyCurve) -> dict[str, Any]:
    """Return the fitted curve for the page: rates, milliseconds with their band, the capacity."""
    bands = {"middle": curve.middle, "low": curve.low, "high": curve.high}
    peak = curve.capacity
    return {
        "rate": [round(rate, 1) for rate in curve.rates],
        **{name: [float(f"{1000 * ms:.4g}") for ms in band] for name, band in bands.items()},
        "capacity": [round(rate, 1) for rate in (peak.peak, peak.low, peak.high)] if peak else None,
    }


def _model(view: StudyView) -> dict[str, Any]:
    """Return importance, interactions, ranges to widen and slices; empty without enough trials."""
    model, units = view.state.model, view.units
    if model is None or len(measured(view.state)) < LEAST_MEASURED:
        return {}
    return {
        "importance": {
            "rows": _importance(view, model["importance"]),
            "pairs": model["pairs"],
            "edges": [
                f"{edge['parameter']} is best at the {edge['end']} end of its range "
                f"({edge['value']}): try {edge['try_range'][0]} to {edge['try_range'][1]}"
                for edge in model["edges"]
            ],
        },
        # The model predicts peaks; the page shows the user's units.
        "slices": {
            name: band | {key: [units.rounded(units.of(peak)) for peak in band[key]]
                          for key in ("mean", "low", "high")}
            for name, band in model["slices"].items()
        },
    }  # fmt: skip


def _importance(view: StudyView, effects: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return effects in per cent with their 90 % intervals (``null`` if none was recorded).

    Settings that always changed together cannot be separated: they form one row with summed effects.
    """
    groups: dict[tuple[int, ...], list[Mapping[str, Any]]] = {}
    for row in effects:
        values = [trial.in_effect.get(row["parameter"]) for trial in measured(view.state)]
        groups.setdefault(tuple(map(values.index, values)), []).append(row)
    rows = []
    for group in groups.values():
        effect = sum(row["effect"] for row in group)
        sds = [row.get("sd") for row in group]
        half = None if None in sds else WITHIN_90 * sum(sd for sd in sds if sd is not None)
        if effect >= LEAST_EFFECT:
            rows.append({
                "names": [row["parameter"] for row in group], "effect": round(100 * effect, 2),
                "half": None if half is None else round(100 * half, 2),
            })  # fmt: skip
    return sorted(rows, key=lambda row: -float(row["effect"]))


def _columns(view: StudyView) -> dict[str, Any]:
    """Return the trials in the budget, their capacities, and every setting that varied.

    ``parameters`` contains ``name``, ``unit``, ``log`` and one value per trial, ``None`` without
    effect. ``choices`` lists the values of a setting that is not numeric. Capacities come with 90 %
    intervals.
    """
    trials = measured(view.state)
    names = dict.fromkeys(name for trial in trials for name in trial.in_effect)
    own = declared(view.target)
    acting = [active(trial.in_effect, own) for trial in trials]
    capacities = [capacity_of(trial, view.units) for trial in trials]
    varied = []
    for name in names:
        values = [trial.in_effect.get(name) if name in names_acting else None
                  for trial, names_acting in zip(trials, acting, strict=True)]  # fmt: skip
        if len({value for value in values if value is not None}) > 1:
            varied.append(_column(name, values, own))
    place = _places(view)
    varied.sort(key=lambda column: place.get(column["name"], (1, len(place))))
    return {
        "trials": [trial.number for trial in trials],
        "peaks": [capacity["peak"] for capacity in capacities],
        "lows": [capacity["low"] for capacity in capacities],
        "highs": [capacity["high"] for capacity in capacities],
        "parameters": varied,
    }


def _places(view: StudyView) -> dict[str, tuple[int, int]]:
    """Return the order of settings: changes of the best first, then the rest, by importance."""
    changed = {change.name for change in view.changes}
    ranked = [row["parameter"] for row in (view.state.model or {}).get("importance", ())]
    names = dict.fromkeys([*ranked, *changed])
    return {name: (int(name not in changed), place) for place, name in enumerate(names)}


def _column(name: str, values: list[Value | None], own: Declared) -> dict[str, Any]:
    parameter = described(name, own=own)
    numeric = all(
        value is None or (isinstance(value, int | float) and not isinstance(value, bool))
        for value in values
    )
    words = [None if v is None else fmt.setting(v) for v in values]
    return {
        "name": name,
        "unit": parameter.unit if parameter else "",
        "log": bool(parameter and parameter.log),
        "values": values if numeric else words,
        "choices": None if numeric else sorted({word for word in words if word is not None}),
    }


def _rows(view: StudyView, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return the table of trials; a repeat refers to the trial that it repeats.

    ``values`` belong to the settings in ``columns``; ``null`` means no effect.
    """
    baseline = view.conclusion.baseline.trial if view.conclusion.baseline else None
    before = _files(view.study, baseline) if baseline else {}
    own = declared(view.target)
    rows = []
    for trial in view.state.trials:
        row: dict[str, Any] = {
            "trial": trial.number,
            "phase": str(trial.phase),
            "of": trial.of,
            "bed": trial.bed,
            **capacity_of(trial, view.units),
            "outcome": outcome(trial, view.units) if trial.over else "in progress",
            "verdict": "failed" if trial.failure else _verdict(trial),
            "bottleneck": describe_finding(view.state.bottlenecks.get(trial.number, {})),
            "limit": _limit(view.state.bottlenecks.get(trial.number, {})),
            "values": _values(trial, columns, own),
            "rules": list(trial.bindings),
            "differences": list(trial.differences),
        }
        if trial.of is None and baseline is not None and trial.number != baseline.number:
            changed = changes(baseline.in_effect, trial.in_effect, own)
            row["changes"] = [[change.name, *change.texts] for change in changed]
            after = _files(view.study, trial)
            row["diff"] = file_diff(before, after, "baseline", f"trial-{trial.number}")
        rows.append(row)
    return rows


def _limit(finding: Mapping[str, Any]) -> str:
    """Return what limited a trial, without the evidence."""
    return describe_finding({key: finding.get(key) for key in ("tier", "service", "resource")})


def _values(trial: Trial, columns: Sequence[str], own: Declared) -> list[Value | None]:
    in_place = trial.in_effect
    values = [
        in_place[name] if name in in_place and acts(name, in_place, own) else None
        for name in columns
    ]
    return [fmt.setting(value) if isinstance(value, bool) else value for value in values]


def _verdict(trial: Trial) -> str:
    verdict = trial.peak.verdict if trial.peak else ""
    return VERDICTS.get(verdict) or verdict


def _files(study: Study, trial: Trial) -> Files:
    try:
        return rendered(study.directory, trial)
    except AutotuneError:  # a trial that was never deployed has no files
        return {}
