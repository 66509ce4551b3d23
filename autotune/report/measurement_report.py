"""Results of `autotune measure`: capacities as one JSON object and as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from autotune.environments.peak import Peak
from autotune.report import documents
from autotune.report import format as fmt
from autotune.report.capacity import CapacityFigures, build_capacity
from autotune.report.deciding_readings import sum_deciding_readings
from autotune.report.latency import (
    UNMEASURED_TEXT,
    LatencyEstimate,
    find_today_rate,
    measure_latency,
)
from autotune.report.load_curve import (
    LoadStep,
    average_host_usage,
    build_load_curve,
    list_percentiles,
)
from autotune.report.studies import Study
from autotune.report.summary import encode_finding, encode_gain, encode_latency
from autotune.report.trial_outcomes import UNMET_TEXT, VERDICT_TEXTS, describe_bottleneck
from autotune.report.units import RequestUnits, Units, select_units
from autotune.space.dimension import BASELINE_NAME
from autotune.study.journal_records import RecordedBottleneck
from autotune.study.measure_capacity import Measurement
from autotune.study.reading_records import RecordedReading
from autotune.study.study_state import Trial
from autotune.target.messages import format_count


def build_measurement_json(
    measurement: Measurement, study: Study, required_rate: float | None = None
) -> documents.MeasurementObject:
    """Return the result of a measurement: ``peaks`` and their mean ``peak``. ``low`` and ``high`` are the
    ends of the mean's 90 % interval, and ``spread`` is the spread of repeats. A comparison returns both
    sides and the ``gain`` instead.

    ``at_least`` contains the requested minimum capacity, if any, and whether it is ``met``. With a
    ``limit`` (``load.max_rate``, or a limit that the generator reported), ``peak`` is a lower bound.
    ``against`` is the name of the other side. The measurements of the other side are under ``baseline``
    for the baseline, and under ``other`` for a preset or an export. If the target declares today's
    request rate, ``latency`` is the latency at this rate.

    Peaks are in requests/s or a benchmark's values; ``sd`` is the sd of a peak's logarithm. Each peak
    has a ``ladder``, ``hosts``, a ``bottleneck`` (``null`` if none was found) and ``bindings``, the
    settings that were changed to satisfy a rule. The ladder's rates are in requests/s. Percentiles are
    in seconds, or ``null`` if too few responses arrived or the reading did not record percentiles. The
    top-level ``ladder`` sums the ladders of all repeats. ``load_curve.average_host_usage`` describes
    ``hosts``.
    """
    units = select_units(study.target, study.state)
    configuration_trials = [_build_trial_json(trial, study, units) for trial in measurement.trials]
    envelope: documents.MeasurementObject = {"schema": 1, "study": measurement.study}
    if required_rate is not None:
        envelope["at_least"] = {
            "rate": required_rate,
            "met": measurement.reaches_rate(required_rate),
        }
    if latency := _build_latency_json(measurement, study):
        envelope["latency"] = latency
    if measurement.gain is not None and measurement.against is not None:
        comparison_trials = [
            _build_trial_json(trial, study, units) for trial in measurement.comparison_trials
        ]
        envelope["against"] = measurement.against.name
        if measurement.against.name == BASELINE_NAME:
            envelope["baseline"] = comparison_trials
        else:
            envelope["other"] = comparison_trials
        gain = units.build_gain(
            measurement.gain, _list_peaks(measurement.comparison_trials)[0].peak
        )
        return {**envelope, "configuration": configuration_trials, "gain": encode_gain(gain)}
    return {
        **envelope,
        "peaks": configuration_trials,
        "peak": units.from_peak(measurement.peak) if measurement.peak else 0.0,
        **_build_interval_json(measurement, units),
        "limit": measurement.limit,
        "spread": measurement.spread,
        "ladder": _build_load_curve_json(measurement.trials, study),
    }


def _build_interval_json(measurement: Measurement, units: Units) -> documents.Interval:
    if measurement.interval is None:
        return {"low": None, "high": None}
    interval_low, interval_high = sorted(map(units.from_peak, measurement.interval))
    return {"low": units.round_value(interval_low), "high": units.round_value(interval_high)}


def _build_latency_json(measurement: Measurement, study: Study) -> documents.MeasuredLatency | None:
    rate = _find_today_rate(study)
    if rate is None:
        return None
    return {
        "rate": rate,
        "configuration": encode_latency(_measure_latency(measurement.trials, study)),
        "comparison": encode_latency(_measure_latency(measurement.comparison_trials, study)),
    }


def _find_today_rate(study: Study) -> float | None:
    declared_rate = study.target.load.today
    return None if declared_rate is None else find_today_rate(study.readings, declared_rate)


def _measure_latency(trials: Iterable[Trial], study: Study) -> LatencyEstimate | None:
    rate, slo = _find_today_rate(study), study.target.slo.objective
    if rate is None:
        return None
    return measure_latency(_select_readings(trials, study), rate, slo, study.target.request_timeout)


def _build_trial_json(trial: Trial, study: Study, units: Units) -> documents.MeasuredSide:
    assert trial.peak is not None  # the command exits if a measurement has no peak
    finding = study.state.bottlenecks.get(trial.number)
    peak = trial.peak
    capacity = (
        build_capacity(peak, units)
        if peak.peak
        else CapacityFigures(peak.peak, peak.low, peak.high)
    )
    return {
        "peak": capacity.peak,
        "low": capacity.low,
        "high": capacity.high,
        "sd": peak.sd,
        "verdict": peak.verdict,
        "p99": peak.p99,
        "limit": peak.limit,
        "requests": sum_deciding_readings(study.readings, [trial.number]).requests,
        "trial": trial.number,
        "bindings": list(trial.bindings),
        "ladder": _build_load_curve_json([trial], study),
        "hosts": average_host_usage(_select_readings([trial], study), study.target.slo.objective),
        "bottleneck": _encode_finding(finding) if finding else None,
    }


def _encode_finding(finding: RecordedBottleneck) -> documents.Finding:
    """Return a finding as JSON without its trial, which the measurement already contains."""
    finding_document = encode_finding(finding)
    del finding_document["trial"]
    return finding_document


def _build_load_curve_json(
    trials: Iterable[Trial], study: Study
) -> list[documents.MeasuredLoadStep]:
    slo = study.target.slo.objective
    return [
        _build_step_json(step, met_slo=slo.is_met(step.pooled_reading))
        for step in build_load_curve(_select_readings(trials, study))
    ]


def _build_step_json(step: LoadStep, *, met_slo: bool) -> documents.MeasuredLoadStep:
    reading = step.pooled_reading
    return {
        "rate": round(reading.rate, 2),
        "readings": step.reading_count,
        "seconds": round(reading.seconds, 3),
        "intended": reading.intended,
        "violations": reading.violations,
        "errors": _list_errors(step),
        "looked_at": reading.looked_at,
        "wrong": reading.wrong,
        "example": reading.example or None,
        "goodput": None if step.goodput is None else round(step.goodput, 2),
        "p50": _round_percentile_seconds(step, 50),
        "p90": _round_percentile_seconds(step, 90),
        "p95": _round_percentile_seconds(step, 95),
        "p99": _round_percentile_seconds(step, 99),
        "p99.9": _round_percentile_seconds(step, 99.9),
        "met": met_slo,
        "cut_short": reading.truncated,
        "limited": step.invalid_reason,
    }


def format_measurement(
    measurement: Measurement, study: Study, required_rate: float | None = None
) -> str:
    """Return the result of `autotune measure` as text."""
    units = select_units(study.target, study.state)
    report_lines = [*_format_result(measurement, study, units)]
    report_lines += _format_latency(measurement, study)
    if required_rate is not None:
        outcome = "reached" if measurement.reaches_rate(required_rate) else "not reached"
        if measurement.is_rate_unknown(required_rate):
            outcome = "unknown, because the load was limited"
        report_lines.append(f"at least {fmt.format_rate(required_rate)}/s: {outcome}")
    sides = {"configuration": measurement.trials}
    if measurement.against:
        sides = {measurement.against.name: measurement.comparison_trials, **sides}
    for side_name, trials in sides.items():
        if side_lines := list(_format_side(trials, study)):
            report_lines += ["", *([side_name] if measurement.against else []), *side_lines]
    return "\n".join([*report_lines, "", f"all readings are stored in study {measurement.study}"])


def _format_latency(measurement: Measurement, study: Study) -> Iterator[str]:
    """Yield the latency at today's request rate; for a comparison, the latency of both sides."""
    sides = [
        _measure_latency(trials, study)
        for trials in (measurement.comparison_trials, measurement.trials)
        if trials
    ]
    latencies = [str(latency) if latency else UNMEASURED_TEXT for latency in sides]
    if any(sides):
        percentile = fmt.format_percentile(study.target.slo.objective)
        rate_text = fmt.format_rate(_find_today_rate(study))
        yield f"{percentile} {' → '.join(latencies)} at today's {rate_text}/s"


def _format_result(measurement: Measurement, study: Study, units: Units) -> Iterator[str]:
    gain, other_side = measurement.gain, measurement.against
    if gain is not None and other_side is not None:
        comparison_peak = _list_peaks(measurement.comparison_trials)[0].peak
        gain_text = units.build_gain(gain, comparison_peak).text
        pairs_text = format_count(gain.pairs, "alternating pair")
        yield f"{gain_text}{units.objective_suffix} against {other_side.name_in_sentence}, {pairs_text}"
        return
    for trial in measurement.trials:
        if trial.peak is not None:
            yield _format_capacity(trial.number, trial.peak, study, units)
    if measurement.interval is not None:
        mean = units.format_amount(units.from_peak(measurement.peak))
        interval_text = units.format_interval(*map(units.from_peak, measurement.interval))
        count_text = format_count(len(measurement.trials), "measurement")
        yield f"mean of {count_text}: {mean} {interval_text}"
    if measurement.spread is not None:
        yield f"spread between repeats: {100 * measurement.spread:.1f} %"


def _format_capacity(trial_number: int, peak: Peak, study: Study, units: Units) -> str:
    """Return a capacity as text, with the number of requests behind it."""
    readings = sum_deciding_readings(study.readings, [trial_number])
    evidence = f", {readings.text}" if readings.text else ""
    if peak.is_load_limited:
        return f"capacity {units.format_lower_bound(peak.peak)} (limited by {peak.limit}){evidence}"
    if not peak.met_slo and isinstance(units, RequestUnits):
        evidence = f": {readings.failure_text}" if readings.requests else ""
        outcome = UNMET_TEXT if peak.is_unmet else units.no_result_text
        return f"{outcome} ({units.objective}){evidence}"
    interval_text = units.format_interval(units.from_peak(peak.low), units.from_peak(peak.high))
    verdict = VERDICT_TEXTS.get(peak.verdict) or peak.verdict
    return f"{units.format_amount(units.from_peak(peak.peak))} {interval_text}, {verdict}{evidence}"


def _format_side(trials: tuple[Trial, ...], study: Study) -> Iterator[str]:
    """Yield a line for each load step and host, over all measurements of one configuration."""
    slo = study.target.slo.objective
    readings = _select_readings(trials, study)
    steps, percentiles = build_load_curve(readings), list_percentiles(slo)
    if steps:
        heading_text = "".join(f"{f'p{percent:g}':>9}" for percent in percentiles)
        yield f"{'offered':>9}{'goodput':>11}{heading_text}  late or failed"
    for step in steps:
        verdict_mark = (
            "✓" if slo.is_met(step.pooled_reading) else "?" if step.invalid_reason else "✗"
        )
        yield _format_step(step, verdict_mark, percentiles)
    for binding in dict.fromkeys(line for trial in trials for line in trial.bindings):
        yield f"changed to satisfy a rule: {binding}"
    for host, usage in average_host_usage(readings, slo).items():
        yield f"{host}: CPU {100 * usage['cpu']:.0f} %, load average {usage['load']:.2f}"
    findings = (study.state.bottlenecks.get(trial.number) for trial in reversed(trials))
    if (finding := next(filter(None, findings), None)) is not None:
        yield f"limited by {describe_bottleneck(finding)}"


def _format_step(step: LoadStep, verdict_mark: str, percentiles: Iterable[float]) -> str:
    rate_text = f"{fmt.format_rate(step.pooled_reading.rate)}/s"
    goodput = "–" if step.goodput is None else f"{fmt.format_rate(step.goodput)}/s"
    percentile_columns = "".join(
        f"{fmt.format_latency(_round_percentile_seconds(step, percent)):>9}"
        for percent in percentiles
    )
    violations = 100 * step.pooled_reading.violations / step.pooled_reading.intended
    remarks = ["cut short"] if step.pooled_reading.truncated else []
    if errors := ", ".join(
        f"{error_count} {error_kind}" for error_kind, error_count in _list_errors(step).items()
    ):
        remarks.append(errors)
    if step.pooled_reading.example:
        remarks.append(step.pooled_reading.example)
    if step.invalid_reason:
        remarks = [f"invalid reading: {step.invalid_reason}"]
    line = f"{rate_text:>9}{goodput:>11}{percentile_columns}  {violations:.2f} % {verdict_mark}"
    return "  ".join([line, *remarks])


def _list_errors(step: LoadStep) -> dict[str, int]:
    return {
        error_kind: error_count
        for error_kind, error_count in sorted(step.pooled_reading.errors.items())
        if error_count
    }


def _select_readings(trials: Iterable[Trial], study: Study) -> list[RecordedReading]:
    trial_numbers = {trial.number for trial in trials}
    return [reading for reading in study.readings if reading.trial in trial_numbers]


def _list_peaks(trials: Iterable[Trial]) -> list[Peak]:
    return [trial.peak for trial in trials if trial.peak is not None]


def _round_percentile_seconds(step: LoadStep, percent: float) -> float | None:
    latency_milliseconds = step.percentile_milliseconds(percent)
    return None if latency_milliseconds is None else round(latency_milliseconds / 1000, 6)
