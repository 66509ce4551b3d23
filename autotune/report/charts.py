"""Data for the report page's script, which draws the charts and the table of trials."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autotune.errors import AutotuneError
from autotune.optimize.model_view import ModelSlice, ModelView, ParameterEffect
from autotune.report import format as fmt
from autotune.report import timeline
from autotune.report.capacity import build_trial_capacity
from autotune.report.ceilings import encode_ceilings
from autotune.report.chart_data import (
    ChartColumns,
    ChartData,
    ChartSlo,
    EffectRow,
    FittedCurve,
    Importance,
    ParameterColumn,
    ParameterColumns,
    SliceBand,
    Today,
    TrialRow,
)
from autotune.report.diff import read_rendered_files
from autotune.report.importance import build_importance_rows, encode_pair, format_edge
from autotune.report.latency import LatencyCurve, TodayLatency, fit_latency_curves
from autotune.report.load_curve import average_host_usage, build_load_curve, list_percentiles
from autotune.report.parameters import (
    DeclaredParameters,
    find_declared_parameters,
    find_parameter,
    has_effect,
    list_active_parameters,
    list_setting_changes,
)
from autotune.report.studies import Study
from autotune.report.trial_outcomes import VERDICT_TEXTS, describe_bottleneck, format_outcome
from autotune.report.units import RequestUnits, Units
from autotune.report.view import StudyView
from autotune.services.base import Value
from autotune.study.ranking import MIN_CONFIGURATIONS, list_measured_trials
from autotune.study.reading_records import RecordedReading
from autotune.study.study_state import COUNTED_PHASES, State, Trial
from autotune.target.slo import Slo
from autotune.unified_diff import FileContents, format_file_diff

MAX_TABLE_COLUMNS = 24  # maximum number of settings with a column in the table of trials


def _build_chart_slo(slo: Slo) -> ChartSlo:
    return {
        "percentile": fmt.format_percentile(slo),
        "limit": 1000 * slo.limit,
        "allowed": 100 * slo.allowed_violations,
        "text": fmt.format_objective(slo),
    }


def build_chart_data(view: StudyView) -> ChartData:
    """Return the data of all charts."""
    slo, units = view.target.slo.objective, view.units
    sides, readings = view.conclusion.sides, view.readings_by_side()
    time_axis, parameter_columns = timeline.select_time_axis(view), _build_parameter_columns(view)
    # A side has no host figures if none of its readings met the SLO.
    hosts = {side: average_host_usage(records, slo) for side, records in readings.items()}
    shown_names = [column["name"] for column in parameter_columns["parameters"][:MAX_TABLE_COLUMNS]]
    chart_data: ChartData = {
        "slo": _build_chart_slo(slo),
        "baseline": sides["baseline"].trial.number if "baseline" in sides else None,
        "best": sides["best"].trial.number if "best" in sides else None,
        "proven": view.verdict == "improved",
        "time": time_axis.label,
        "unit": {
            "name": units.unit,
            "suffix": units.unit_suffix,
            "from_zero": isinstance(units, RequestUnits),
        },
        "quantity": units.quantity_name,
        "counted": sorted(map(str, COUNTED_PHASES)),
        "peaks": timeline.list_peaks(view, time_axis),
        "steps": timeline.list_best_steps(view, time_axis),
        "readings": timeline.build_reading_columns(view, time_axis),
        "latency": {side: _build_percentile_curve(r, slo) for side, r in readings.items()},
        "fitted": {
            side: _build_fitted_curve(curve) for side, curve in fit_latency_curves(view).items()
        },
        "today": _build_today_latencies(view.latency),
        "columns": shown_names,
        "hosts": {side: host_means for side, host_means in hosts.items() if host_means},
        "parameters": parameter_columns,
        "trials": _build_trial_rows(view, shown_names),
        "ceilings": list(map(encode_ceilings, view.state.ceilings)),
    }
    model = view.state.model
    if model is not None and len(list_measured_trials(view.state)) >= MIN_CONFIGURATIONS:
        chart_data["importance"] = _build_importance(view, model)
        slices = model.slices.items()
        chart_data["slices"] = {name: _build_slice(band, view.units) for name, band in slices}
    return chart_data


def _build_percentile_curve(readings: Iterable[RecordedReading], slo: Slo) -> ChartColumns:
    """Return the columns of the load steps: rate, number of requests, and each percentile in ms.

    The page draws the column of the SLO's percentile. A percentile refers to *intended* requests; it is
    ``None`` if too few got a correct response. Readings that were limited by the generator or cut
    short are omitted.
    """
    steps = [step for step in build_load_curve(readings) if step.is_complete]
    return {
        "rate": [_round_rate(step.pooled_reading.rate) for step in steps],
        "requests": [step.pooled_reading.intended for step in steps],
        **{
            f"p{percent:g}": [step.percentile_milliseconds(percent) for step in steps]
            for percent in list_percentiles(slo)
        },
    }


def _round_rate(rate: float) -> float:
    """Return the rate with five significant digits, because rates of slow stacks are below 1/s."""
    return float(f"{rate:.5g}")


def _build_fitted_curve(curve: LatencyCurve) -> FittedCurve:
    """Return a fitted latency curve for the report page, with latencies in milliseconds."""
    median, low_milliseconds, high_milliseconds = (
        [float(f"{1000 * latency_seconds:.4g}") for latency_seconds in band]
        for band in (curve.median, curve.low, curve.high)
    )
    peak = curve.capacity
    return {
        "rate": [_round_rate(rate) for rate in curve.rates],
        "middle": median,
        "low": low_milliseconds,
        "high": high_milliseconds,
        "capacity": [_round_rate(rate) for rate in (peak.peak, peak.low, peak.high)]
        if peak
        else None,
    }


def _build_today_latencies(latency: TodayLatency | None) -> Today | None:
    if latency is None:
        return None
    latency_texts = {
        label: f"{side_latency} ({side_latency.why})" if side_latency.why else str(side_latency)
        for label, side_latency in latency.sides.items()
    }
    return {"rate": latency.rate, "answers": latency_texts}


def _build_importance(view: StudyView, model: ModelView) -> Importance:
    return {
        "rows": _build_effect_rows(view, model.importance),
        "pairs": list(map(encode_pair, model.pairs)),
        "edges": list(map(format_edge, model.edges)),
    }


def _build_slice(band: ModelSlice, units: Units) -> SliceBand:
    """Return a slice in the user's units, converted from the peaks that the model predicts."""
    mean_values, low_values, high_values = (
        [units.round_value(units.from_peak(peak)) for peak in peaks]
        for peaks in (band.mean, band.low, band.high)
    )
    return {"x": band.x, "mean": mean_values, "low": low_values, "high": high_values}


def _build_effect_rows(view: StudyView, effects: Iterable[ParameterEffect]) -> list[EffectRow]:
    """Return effects in per cent with their 90 % intervals (``null`` if no interval was recorded)."""
    baseline_side = view.conclusion.baseline
    importance_rows = build_importance_rows(
        effects, list_measured_trials(view.state), baseline_side.trial if baseline_side else None
    )
    return [
        {
            "names": list(importance_row.names),
            "effect": round(100 * importance_row.effect, 2),
            "half": None
            if importance_row.half_width is None
            else round(100 * importance_row.half_width, 2),
        }
        for importance_row in importance_rows
    ]


def _build_parameter_columns(view: StudyView) -> ParameterColumns:
    """Return the trials in the budget, their capacities, and every setting that varied."""
    trials = list_measured_trials(view.state)
    setting_names = dict.fromkeys(
        setting_name for trial in trials for setting_name in trial.effective_settings
    )
    declared_parameters = find_declared_parameters(view.target)
    active_names = [
        list_active_parameters(trial.effective_settings, declared_parameters) for trial in trials
    ]
    capacities = [build_trial_capacity(trial, view.units) for trial in trials]
    columns = []
    for setting_name in setting_names:
        column_values = [
            trial.effective_settings.get(setting_name) if setting_name in active_in_trial else None
            for trial, active_in_trial in zip(trials, active_names, strict=True)
        ]
        if len({value for value in column_values if value is not None}) > 1:
            columns.append(
                _build_parameter_column(setting_name, column_values, declared_parameters)
            )
    ranks = _rank_settings(view)
    columns.sort(key=lambda column: ranks.get(column["name"], (1, len(ranks))))
    return {
        "trials": [trial.number for trial in trials],
        "peaks": [capacity.peak for capacity in capacities],
        "lows": [capacity.low for capacity in capacities],
        "highs": [capacity.high for capacity in capacities],
        "parameters": columns,
    }


def _rank_settings(view: StudyView) -> dict[str, tuple[int, int]]:
    """Return the rank of each setting: first the changes of the best configuration by the cost of
    reverting them, then other settings by importance.
    """
    changed_names = [change.name for change in view.changes]
    ranked_names = [*view.reversal_costs]
    ranked_names += (
        [effect.parameter for effect in view.state.model.importance] if view.state.model else []
    )
    all_names = dict.fromkeys([*ranked_names, *changed_names])
    return {
        setting_name: (int(setting_name not in changed_names), rank)
        for rank, setting_name in enumerate(all_names)
    }


def _build_parameter_column(
    setting_name: str, setting_values: list[Value | None], declared_parameters: DeclaredParameters
) -> ParameterColumn:
    """Return the column of a setting; ``choices`` lists the values of a setting that is not numeric."""
    parameter = find_parameter(setting_name, declared_parameters=declared_parameters)
    is_numeric = all(
        value is None or (isinstance(value, int | float) and not isinstance(value, bool))
        for value in setting_values
    )
    value_texts = [None if v is None else fmt.format_setting(v) for v in setting_values]
    return {
        "name": setting_name,
        "unit": parameter.unit if parameter else "",
        "log": bool(parameter and parameter.log),
        "values": setting_values if is_numeric else value_texts,
        "choices": None
        if is_numeric
        else sorted({text for text in value_texts if text is not None}),
    }


def _build_trial_rows(view: StudyView, columns: Sequence[str]) -> list[TrialRow]:
    """Return the rows of the table of trials; a repeat refers to the trial that it repeats.

    ``values`` contains a value for each of the settings in ``columns``, or ``null`` if the setting has
    no effect.
    """
    baseline_trial = view.conclusion.baseline.trial if view.conclusion.baseline else None
    baseline_files = _read_trial_files(view.study, baseline_trial) if baseline_trial else {}
    declared_parameters = find_declared_parameters(view.target)
    trial_rows = []
    for trial in view.state.trials:
        capacity, finding = (
            build_trial_capacity(trial, view.units),
            view.state.bottlenecks.get(trial.number),
        )
        trial_row: TrialRow = {
            "trial": trial.number,
            "phase": str(trial.phase),
            "of": trial.source_trial,
            "bed": trial.bed,
            "peak": capacity.peak,
            "low": capacity.low,
            "high": capacity.high,
            "outcome": format_outcome(trial, view.units) if trial.is_finished else "in progress",
            "verdict": "failed" if trial.failure else _format_verdict(trial),
            "bottleneck": describe_bottleneck(finding) if finding else "",
            "limit": describe_bottleneck(finding, with_evidence=False) if finding else "",
            "values": _list_setting_values(trial, columns, declared_parameters),
            "rules": list(trial.bindings),
            "differences": list(trial.differences),
        }
        if baseline_trial is not None and _has_own_settings(view.state, trial, baseline_trial):
            changes = list_setting_changes(
                baseline_trial.effective_settings, trial.effective_settings, declared_parameters
            )
            trial_row["changes"] = [[change.name, *change.value_texts] for change in changes]
            trial_files = _read_trial_files(view.study, trial)
            trial_row["diff"] = format_file_diff(
                baseline_files, trial_files, "baseline", f"trial-{trial.number}"
            )
        trial_rows.append(trial_row)
    return trial_rows


def _has_own_settings(state: State, trial: Trial, baseline_trial: Trial) -> bool:
    """True if the trial is neither the baseline nor a repeat with the settings of its source trial."""
    if trial.number == baseline_trial.number:
        return False
    return (
        trial.source_trial is None
        or trial.settings != state.find_trial(trial.source_trial).settings
    )


def _list_setting_values(
    trial: Trial, columns: Sequence[str], declared_parameters: DeclaredParameters
) -> list[Value | None]:
    settings = trial.effective_settings
    column_values = [
        settings[setting_name]
        if setting_name in settings and has_effect(setting_name, settings, declared_parameters)
        else None
        for setting_name in columns
    ]
    return [
        fmt.format_setting(value) if isinstance(value, bool) else value for value in column_values
    ]


def _format_verdict(trial: Trial) -> str:
    verdict = trial.peak.verdict if trial.peak else ""
    return VERDICT_TEXTS.get(verdict) or verdict


def _read_trial_files(study: Study, trial: Trial) -> FileContents:
    try:
        return read_rendered_files(study.directory, trial)
    except AutotuneError:  # a trial that was never deployed has no files
        return {}
