"""Results of `autotune measure` as one JSON object and as text: capacities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from autotune.environments.peak import Peak
from autotune.report import format as fmt
from autotune.report.load_curve import PERCENTILES, LoadStep, hosts_at_capacity, load_curve
from autotune.report.objective import Requests, Units, units_of
from autotune.report.studies import Study
from autotune.report.trials import VERDICTS, describe_finding
from autotune.report.view import capacity
from autotune.space.dimension import BASELINE
from autotune.study.measuring import Measurement
from autotune.study.records import Trial

SCHEMA = 1


def measurement_json(
    measurement: Measurement, study: Study, least: float | None = None
) -> dict[str, Any]:
    """Return ``peaks`` and the ``spread`` of repeats; for a comparison, both sides and the ``gain``.

    ``at_least`` is the requested minimum capacity, if any, and whether it is ``met``. With a ``limit``
    (``load.max_rate``, or a limit that the generator reported), ``peak`` is a lower bound. ``against``
    is the name of the other side. Its measurements are under ``baseline`` for the baseline, and under
    ``other`` for a preset or an export.

    Peaks are in requests/s or a benchmark's values; ``sd`` belongs to a peak's logarithm. Each peak has
    a ``ladder``, ``hosts``, a ``bottleneck`` (``null`` if none was found) and ``bindings``, the settings
    that were changed to satisfy a rule. A step of the ladder is in requests, requests/s and seconds.
    Its percentiles are in seconds, and ``null`` beyond all answers or if the reading did not record
    them. The top-level ``ladder`` sums the ladders of all repeats. For ``hosts``, see
    ``load_curve.hosts_at_capacity``.
    """
    units = units_of(study.target, study.state)
    measured = [_measurement(trial, study, units) for trial in measurement.measured]
    envelope: dict[str, Any] = {"schema": SCHEMA, "study": measurement.study}
    if least is not None:
        envelope["at_least"] = {"rate": least, "met": measurement.reaches(least)}
    if measurement.gain is not None and measurement.against is not None:
        other = BASELINE if measurement.against.name == BASELINE else "other"
        return {
            **envelope,
            "against": measurement.against.name,
            other: [_measurement(trial, study, units) for trial in measurement.other],
            "configuration": measured,
            "gain": units.gain(measurement.gain, _peaks(measurement.other)[0].peak),
        }
    return {
        **envelope,
        "peaks": measured,
        "peak": units.of(measurement.peak) if measurement.peak else 0.0,
        "limit": measurement.limit,
        "spread": measurement.spread,
        "ladder": _load_curve(measurement.measured, study),
    }


def _measurement(trial: Trial, study: Study, units: Units) -> dict[str, Any]:
    assert trial.peak is not None  # the command exits if a measurement has no peak
    finding = study.state.bottlenecks.get(trial.number)
    return {
        **asdict(trial.peak),
        **(capacity(trial.peak, units) if trial.peak.peak else {}),
        "trial": trial.number,
        "bindings": list(trial.bindings),
        "ladder": _load_curve([trial], study),
        "hosts": hosts_at_capacity(_readings([trial], study), study.target.slo.slo),
        "bottleneck": {k: v for k, v in finding.items() if k not in ("event", "trial")}
        if finding
        else None,
    }


def _load_curve(trials: Iterable[Trial], study: Study) -> list[dict[str, Any]]:
    slo = study.target.slo.slo
    return [
        {
            "rate": round(step.pooled.rate, 2),
            "readings": step.readings,
            "seconds": round(step.pooled.seconds, 3),
            "intended": step.pooled.intended,
            "violations": step.pooled.violations,
            "errors": _errors(step),
            "looked_at": step.pooled.looked_at,
            "wrong": step.pooled.wrong,
            "example": step.pooled.example or None,
            "goodput": None if step.goodput is None else round(step.goodput, 2),
            **{f"p{percent:g}": _seconds(step, percent) for percent in PERCENTILES},
            "met": slo.met(step.pooled),
            "cut_short": step.pooled.truncated,
            "limited": step.limited,
        }
        for step in load_curve(_readings(trials, study))
    ]


def measurement_text(measurement: Measurement, study: Study, least: float | None = None) -> str:
    """Return the result as text."""
    parts = [*_result(measurement, units_of(study.target, study.state))]
    if least is not None:
        outcome = "reached" if measurement.reaches(least) else "not reached"
        parts.append(f"at least {fmt.rate(least)}/s: {outcome}")
    sides = {"configuration": measurement.measured}
    if measurement.against:
        sides = {measurement.against.name: measurement.other, **sides}
    for name, trials in sides.items():
        if lines := list(_side(trials, study)):
            parts += ["", *([name] if measurement.against else []), *lines]
    return "\n".join([*parts, "", f"all readings are stored in study {measurement.study}"])


def _result(measurement: Measurement, units: Units) -> Iterator[str]:
    gain, against = measurement.gain, measurement.against
    if gain is not None and against is not None:
        gained = units.gained(units.gain(gain, _peaks(measurement.other)[0].peak))
        yield f"{gained}{units.at} against {against.called}, {gain.pairs} alternating pairs"
        return
    for peak in _peaks(measurement.measured):
        if peak.limited:
            yield f"capacity {units.at_least(peak.peak)} (limited by {peak.limit})"
            continue
        if not peak.feasible and isinstance(units, Requests):
            yield f"{units.nothing} ({units.objective})"
            continue
        interval = units.interval(units.of(peak.low), units.of(peak.high))
        verdict = VERDICTS.get(peak.verdict) or peak.verdict
        yield f"{units.amount(units.of(peak.peak))} {interval}, {verdict}"
    if measurement.spread is not None:
        yield f"spread between repeats: {100 * measurement.spread:.1f} %"


def _side(trials: tuple[Trial, ...], study: Study) -> Iterator[str]:
    """Yield a line per load step and host for all measurements of one configuration."""
    slo = study.target.slo.slo
    readings = _readings(trials, study)
    steps = load_curve(readings)
    if steps:
        heads = "".join(f"{f'p{percent:g}':>9}" for percent in PERCENTILES)
        yield f"{'offered':>9}{'goodput':>11}{heads}  late or failed"
    for step in steps:
        mark = "✓" if slo.met(step.pooled) else "?" if step.limited else "✗"
        yield _step_line(step, mark)
    for binding in dict.fromkeys(line for trial in trials for line in trial.bindings):
        yield f"changed to satisfy a rule: {binding}"
    for host, usage in hosts_at_capacity(readings, slo).items():
        yield f"{host}: CPU {100 * usage['cpu']:.0f} %, load average {usage['load']:.2f}"
    findings = (study.state.bottlenecks.get(trial.number) for trial in reversed(trials))
    if (finding := next(filter(None, findings), None)) is not None:
        yield f"limited by {describe_finding(finding)}"


def _step_line(step: LoadStep, mark: str) -> str:
    rate = f"{fmt.rate(step.pooled.rate)}/s"
    goodput = "–" if step.goodput is None else f"{fmt.rate(step.goodput)}/s"
    columns = "".join(f"{fmt.latency(_seconds(step, percent)):>9}" for percent in PERCENTILES)
    violations = 100 * step.pooled.violations / step.pooled.intended
    remarks = ["cut short"] if step.pooled.truncated else []
    if errors := ", ".join(f"{count} {kind}" for kind, count in _errors(step).items()):
        remarks.append(errors)
    if step.pooled.example:
        remarks.append(step.pooled.example)
    if step.limited:
        remarks = [f"invalid sample: {step.limited}"]
    line = f"{rate:>9}{goodput:>11}{columns}  {violations:.2f} % {mark}"
    return "  ".join([line, *remarks])


def _errors(step: LoadStep) -> dict[str, int]:
    return {kind: count for kind, count in sorted(step.pooled.errors.items()) if count}


def _readings(trials: Iterable[Trial], study: Study) -> list[Any]:
    numbers = {trial.number for trial in trials}
    return [reading for reading in study.readings if reading["trial"] in numbers]


def _peaks(trials: Iterable[Trial]) -> list[Peak]:
    return [trial.peak for trial in trials if trial.peak is not None]


def _seconds(step: LoadStep, percent: float) -> float | None:
    milliseconds = step.percentile(percent)
    return None if milliseconds is None else round(milliseconds / 1000, 6)
