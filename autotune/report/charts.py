"""What the page's script draws: the charts, and the table of trials, as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from autotune.errors import AutotuneError
from autotune.report import format as fmt
from autotune.report import timeline
from autotune.report.diff import rendered
from autotune.report.load_curve import PERCENTILES, hosts_at_capacity, load_curve
from autotune.report.objective import Requests
from autotune.report.parameters import Declared, active, changes, declared, described
from autotune.report.studies import Study
from autotune.report.trials import VERDICTS, describe_finding, outcome
from autotune.report.view import StudyView, capacity_of
from autotune.services.base import Value
from autotune.study.records import COUNTED, Trial
from autotune.unified_diff import Files, file_diff

Curve = dict[str, list[float | None]]


def data(view: StudyView) -> dict[str, Any]:
    """Everything the charts are drawn from."""
    slo, units = view.target.slo.slo, view.units
    sides, readings = view.conclusion.sides, view.readings()
    time = timeline.time_of(view)
    # Neither side is there without a reading that met the SLO.
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
        "hosts": {side: means for side, means in hosts.items() if means},
        "parameters": _columns(view),
        "trials": _rows(view),
        "ceilings": [dict(record) for record in view.state.ceilings],
        **_model(view),
    }  # fmt: skip


def _percentile_curve(readings: Iterable[Mapping[str, Any]]) -> Curve:
    """Rates, requests behind each point, each percentile in ms.

    A percentile is of *intended* requests; ``None`` where too few were answered right at all.
    Readings that the generator limited, and those cut short, are left out.
    """
    steps = [step for step in load_curve(readings) if step.complete]
    return {
        "rate": [round(step.pooled.rate, 1) for step in steps],
        "requests": [step.pooled.intended for step in steps],
        **{
            f"p{percent:g}": [step.percentile(percent) for step in steps] for percent in PERCENTILES
        },
    }


def _model(view: StudyView) -> dict[str, Any]:
    """Importance, pairs that interact, ranges to widen and slices, by the model; or nothing yet."""
    model, units = view.state.model, view.units
    if model is None:
        return {}
    total = sum(row["effect"] for row in model["importance"]) or 1.0
    return {
        "importance": {
            "rows": [
                {"name": row["parameter"], "share": row["effect"] / total}
                for row in model["importance"]
                if row["effect"] >= 0.005 * total
            ],
            "pairs": model["pairs"],
            "edges": [
                f"{edge['parameter']} is best at the {edge['end']} end of its range "
                f"({edge['value']}): try {edge['try_range'][0]} to {edge['try_range'][1]}"
                for edge in model["edges"]
            ],
        },
        # Capacities become the user's numbers.
        "slices": {
            name: band | {key: [units.rounded(units.of(peak)) for peak in band[key]]
                          for key in ("mean", "low", "high")}
            for name, band in model["slices"].items()
        },
    }  # fmt: skip


def _columns(view: StudyView) -> dict[str, Any]:
    """Trials that the budget counts, their capacities with 90 % intervals, every setting that varied.

    ``parameters`` are ``name``, ``unit``, ``log`` and one value per trial: ``None`` where it had no
    effect. ``choices`` lists the values of anything but numbers, by which they are numbered.
    """
    trials = [t for t in view.state.finished(*COUNTED) if t.peak and t.peak.feasible]
    names = dict.fromkeys(name for trial in trials for name in trial.settings)
    own = declared(view.target)
    acting = [active(trial.settings, own) for trial in trials]
    capacities = [capacity_of(trial, view.units) for trial in trials]
    varied = []
    for name in names:
        values = [t.settings.get(name) if name in acts else None
                  for t, acts in zip(trials, acting, strict=True)]  # fmt: skip
        if len({value for value in values if value is not None}) > 1:
            varied.append(_column(name, values, own))
    return {
        "trials": [trial.number for trial in trials],
        "peaks": [capacity["peak"] for capacity in capacities],
        "lows": [capacity["low"] for capacity in capacities],
        "highs": [capacity["high"] for capacity in capacities],
        "parameters": varied,
    }


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


def _rows(view: StudyView) -> list[dict[str, Any]]:
    """The table of trials; a repeat refers to the trial it repeats instead of showing it again."""
    baseline = view.conclusion.baseline.trial if view.conclusion.baseline else None
    before = _files(view.study, baseline) if baseline else {}
    own = declared(view.target)
    rows = []
    for trial in view.state.trials:
        row: dict[str, Any] = {
            "trial": trial.number,
            "phase": str(trial.phase),
            "of": trial.of,
            **capacity_of(trial, view.units),
            "outcome": outcome(trial, view.units) if trial.over else "under way",
            "verdict": "failed" if trial.failure else _verdict(trial),
            "bottleneck": describe_finding(view.state.bottlenecks.get(trial.number, {})),
            "rules": list(trial.bindings),
            "differences": list(trial.differences),
        }
        if trial.of is None and baseline is not None and trial.number != baseline.number:
            changed = changes(baseline.settings, trial.settings, own)
            row["changes"] = [[change.name, *change.texts] for change in changed]
            after = _files(view.study, trial)
            row["diff"] = file_diff(before, after, "baseline", f"trial-{trial.number}")
        rows.append(row)
    return rows


def _verdict(trial: Trial) -> str:
    verdict = trial.peak.verdict if trial.peak else ""
    return VERDICTS.get(verdict) or verdict


def _files(study: Study, trial: Trial) -> Files:
    try:
        return rendered(study.directory, trial)
    except AutotuneError:  # never deployed: there are none
        return {}
