"""What `autotune measure` found, as one JSON object and in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from autotune.environments.peak import Peak
from autotune.report import format as fmt
from autotune.report.load_curve import PERCENTILES, LoadStep, hosts_at_capacity, load_curve
from autotune.report.objective import Requests, Units, units_of
from autotune.report.studies import Study
from autotune.report.text import describe_finding
from autotune.report.trials import VERDICTS
from autotune.report.view import capacity
from autotune.space.dimension import BASELINE
from autotune.study.measuring import Measurement
from autotune.study.records import Trial

SCHEMA = 1


def as_json(found: Measurement, study: Study) -> dict[str, Any]:
    """``peaks`` and ``spread`` of repeats; with another side, both sides' and the ``gain``.

    ``against`` names the other side; its measurements are under ``baseline`` where it is that, and
    under ``other`` where it is a preset or an export.

    Peaks are in requests/s (or a benchmark's values), ``sd`` is that of a peak's logarithm. With
    each come its ``ladder``, ``hosts``, ``bottleneck`` (``null`` where none was found) and
    ``bindings``, what had to be changed of its settings to keep a rule. A step of the ladder is in
    requests, requests/s and seconds, its percentiles among them; a percentile is ``null`` where it
    is beyond all answers, or the reading says nothing of it. The ``ladder`` beside ``peaks`` sums
    those of all repeats. See ``load_curve.hosts_at_capacity`` for the hosts.
    """
    units = units_of(study.target, study.state)
    said: dict[str, Any] = {"schema": SCHEMA, "study": found.study}
    if found.gain is not None and found.against is not None:
        other = BASELINE if found.against.name == BASELINE else "other"
        return {
            **said,
            "against": found.against.name,
            other: [_measurement(trial, study, units) for trial in found.other],
            "configuration": [_measurement(trial, study, units) for trial in found.measured],
            "gain": units.gain(found.gain, _first_peak(found)),
        }
    return {
        **said,
        "peaks": [_measurement(trial, study, units) for trial in found.measured],
        "peak": units.of(found.peak) if found.peak else 0.0,
        "spread": found.spread,
        "ladder": _load_curve(found.measured, study),
    }


def text(found: Measurement, study: Study) -> str:
    """The result for a person."""
    units = units_of(study.target, study.state)
    parts = [*_lines(found, units)]
    other = {found.against.name: found.other} if found.against else {}
    sides = {**other, "configuration": found.measured}
    for label, measured in sides.items():
        if of_side := list(_side(measured, study)):
            parts += ["", *([label] if other else []), *of_side]
    return "\n".join([*parts, "", f"every reading is in study {found.study}"])


def _lines(found: Measurement, units: Units) -> Iterator[str]:
    if found.gain is not None and found.against is not None:
        gain = units.gained(units.gain(found.gain, _first_peak(found)))
        yield f"{gain}{units.at} against {found.against.called}, {found.gain.pairs} alternating pairs"
        return
    for peak in _peaks(found.measured):
        if not peak.feasible and isinstance(units, Requests):
            yield f"{units.nothing} ({units.objective})"
            continue
        interval = units.interval(units.of(peak.low), units.of(peak.high))
        verdict = VERDICTS.get(peak.verdict) or peak.verdict
        yield f"{units.amount(units.of(peak.peak))} {interval}, {verdict}"
    if found.spread is not None:
        yield f"spread between repeats: {100 * found.spread:.1f} %"


def _side(measured: Iterable[Trial], study: Study) -> Iterator[str]:
    """One configuration's readings, all its measurements together: a line each step and host."""
    trials = list(measured)
    readings = _readings(trials, study)
    steps = load_curve(readings)
    slo = study.target.slo.slo
    if steps:
        heads = "".join(f"{_name(percent):>9}" for percent in PERCENTILES)
        yield f"{'offered':>9}{'goodput':>11}{heads}  late or failed"
    for step in steps:
        mark = "✓" if slo.met(step.pooled) else "?" if step.limited else "✗"
        yield f"{_step_line(step)} {mark}{_remark(step)}"
    for bent in dict.fromkeys(line for trial in trials for line in trial.bindings):
        yield f"changed to keep a rule: {bent}"
    for host, did in hosts_at_capacity(readings, slo).items():
        yield f"{host}: CPU {100 * did['cpu']:.0f} %, load average {did['load']:.2f}"
    findings = (study.state.bottlenecks.get(trial.number) for trial in reversed(trials))
    if (finding := next(filter(None, findings), None)) is not None:
        yield f"limited by {describe_finding(finding)}"


def _step_line(step: LoadStep) -> str:
    rate = f"{fmt.rate(step.pooled.rate)}/s"
    good = "–" if step.goodput is None else f"{fmt.rate(step.goodput)}/s"
    latencies = [_seconds(step.percentile(percent)) for percent in PERCENTILES]
    columns = "".join(f"{fmt.latency(latency):>9}" for latency in latencies)
    bad = 100 * step.pooled.violations / step.pooled.intended
    return f"{rate:>9}{good:>11}{columns}  {bad:.2f} %"


def _remark(step: LoadStep) -> str:
    if step.limited:
        return f"  invalid sample: {step.limited}"
    errors = ", ".join(f"{count} {kind}" for kind, count in _errors(step).items())
    return ("  cut short" if step.pooled.truncated else "") + (f"  {errors}" if errors else "")


def _errors(step: LoadStep) -> dict[str, int]:
    return {kind: count for kind, count in sorted(step.pooled.errors.items()) if count}


def _measurement(trial: Trial, study: Study, units: Units) -> dict[str, Any]:
    assert trial.peak is not None  # a measurement without one has ended the command
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
            "goodput": None if step.goodput is None else round(step.goodput, 2),
            **{_name(percent): _seconds(step.percentile(percent)) for percent in PERCENTILES},
            "met": slo.met(step.pooled),
            "cut_short": step.pooled.truncated,
            "limited": step.limited,
        }
        for step in load_curve(_readings(trials, study))
    ]


def _readings(trials: Iterable[Trial], study: Study) -> list[Any]:
    numbers_ = {trial.number for trial in trials}
    return [reading for reading in study.readings if reading["trial"] in numbers_]


def _peaks(trials: Iterable[Trial]) -> list[Peak]:
    return [trial.peak for trial in trials if trial.peak is not None]


def _first_peak(found: Measurement) -> float:
    return _peaks(found.other)[0].peak


def _name(percent: float) -> str:
    return f"p{percent:g}"


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else round(milliseconds / 1000, 6)
