"""A study's numbers for other programs: CSV for spreadsheets, metrics for Prometheus."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from autotune.report.capacity import build_trial_capacity
from autotune.report.documents import StudyStatus
from autotune.report.load_curve import list_percentiles
from autotune.report.status import build_status
from autotune.report.view import StudyView
from autotune.services.base import Value
from autotune.study.reading_records import describe_command_call
from autotune.terminal import make_printable

# the labels and the value of each sample
MetricSamples = Iterable[tuple[Mapping[str, str], float | None]]

TABLE_NAMES = ("trials", "readings")
METRIC_PREFIX = "autotune_"
# Number of newest trials in the metrics. Prometheus scrapes more often than once every 20 trials.
MAX_METRIC_TRIALS = 20
SETTING_PREFIX = "setting."
_FORMULA_STARTS = ("=", "+", "-", "@", "\t")
CsvRow = Mapping[str, Value | None]


def format_csv(view: StudyView, table_name: str) -> str:
    """Return the table ``trials`` or ``readings`` of a study as CSV (RFC 4180). Raises AutotuneError
    for damaged readings.

    The first row contains the headings. Rates are in requests/s, times in seconds. A field without a
    value is empty. An apostrophe precedes text that a spreadsheet would read as a formula.
    """
    rows = list(_list_trial_rows(view) if table_name == "trials" else _list_reading_rows(view))
    headings = dict.fromkeys(heading for row in rows for heading in row)
    csv_buffer = io.StringIO()
    writer = csv.DictWriter(csv_buffer, list(headings), restval="")
    writer.writerow({heading: _escape_formula(heading) for heading in headings})
    writer.writerows({h: _escape_formula(value) for h, value in row.items()} for row in rows)
    return csv_buffer.getvalue()


def _escape_formula(value: Value | None) -> Value | None:
    """Return a cell without control characters that no spreadsheet reads as a formula. Numbers do not
    change.
    """
    if not isinstance(value, str):
        return value
    # Without a control character before it, the rest of a text may be a formula.
    cell_text = make_printable(value)
    return f"'{cell_text}" if cell_text.startswith(_FORMULA_STARTS) else cell_text


def _list_trial_rows(view: StudyView) -> Iterator[CsvRow]:
    for trial in view.state.trials:
        capacity = build_trial_capacity(trial, view.units)
        row: dict[str, Value | None] = {
            "trial": trial.number,
            "phase": str(trial.phase),
            "of": trial.source_trial,
            "capacity": capacity.peak,
            "low": capacity.low,
            "high": capacity.high,
            "p99": trial.peak.p99 if trial.peak else None,
            "verdict": trial.peak.verdict if trial.peak else None,
            "failure": trial.failure,
        }
        # A parameter of a command may have the name of another column.
        yield row | {
            f"{SETTING_PREFIX}{name}" if name in row else name: value
            for name, value in trial.effective_settings.items()
        }


def _list_reading_rows(view: StudyView) -> Iterator[CsvRow]:
    """Yield a row for each reading of load or, in a study of a command, for each call of the command."""
    for call in view.study.command_calls:
        yield {"trial": call.trial, "at": call.at, **describe_command_call(call)}
    slo = view.target.slo.objective
    percentiles = list_percentiles(slo)
    for recorded_reading in view.study.readings:
        reading = recorded_reading.reading
        yield {
            "trial": recorded_reading.trial,
            "at": recorded_reading.at,
            "purpose": recorded_reading.purpose,
            "rate": reading.rate,
            "seconds": reading.seconds,
            "intended": reading.intended,
            "violations": reading.violations,
            "errors": reading.error_count,
            **{f"p{percent:g}": reading.percentile(percent / 100) for percent in percentiles},
            "met": slo.is_met(reading),
            "truncated": reading.truncated,
            "limited": reading.limited,
            "stolen": reading.stolen,
            "looked_at": reading.looked_at,
            "wrong": reading.wrong,
        }


def format_metrics(view: StudyView) -> str:
    """Return the metrics of a study in OpenMetrics text format.

    The node exporter's textfile collector also reads this format. Capacities are in requests/s, or in
    the unit of a command's value.
    """
    metric_lines = [
        line
        for family in _list_metric_families(view)
        for line in _format_metric_family(view.name, *family)
    ]
    return "\n".join([*metric_lines, "# EOF", ""])


def _list_metric_families(view: StudyView) -> list[tuple[str, str, MetricSamples]]:
    """Return the name, the description and the samples of each metric."""
    status = build_status(view)
    is_running, is_finished = (float(status["state"] == s) for s in ("running", "finished"))
    return [
        ("running", "1 if a process is running the study.", [({}, is_running)]),
        ("finished", "1 if the study reached a verdict.", [({}, is_finished)]),
        (
            "trials",
            "Finished trials in the budget.",
            [
                ({"outcome": outcome}, trial_count)
                for outcome, trial_count in view.trial_counts.items()
            ],
        ),
        ("trials_budget", "Trials in the budget.", [({}, status["trials"]["budget"])]),
        (
            "capacity",
            "Capacity within the SLO, with its 90 % interval.",
            _list_capacity_samples(status),
        ),
        (
            "ratio",
            "Best capacity divided by the baseline's: an estimate, unless the verdict is `improved`.",
            [({}, status["ratio"])],
        ),
        (
            "latency_seconds",
            "Latency at the rate of today's users, with its 90 % interval.",
            _list_latency_samples(status),
        ),
        (
            "trial_begun_timestamp_seconds",
            "Start of the latest trials, as Unix time.",
            _list_start_samples(view),
        ),
        ("trial_capacity", "Capacity measured by the latest trials.", _list_trial_samples(view)),
        ("elapsed_seconds", "Time spent.", [({}, status["seconds"]["elapsed"])]),
        ("left_seconds", "Time left, estimated.", [({}, status["seconds"]["left"])]),
    ]


def _list_capacity_samples(
    status_document: StudyStatus,
) -> Iterator[tuple[Mapping[str, str], float | None]]:
    status_by_side = {"baseline": status_document["baseline"], "best": status_document["best"]}
    for side_name, side_status in status_by_side.items():
        if side_status is not None:
            yield {"side": side_name, "value": "peak"}, side_status["peak"]
            yield {"side": side_name, "value": "low"}, side_status["low"]
            yield {"side": side_name, "value": "high"}, side_status["high"]


def _list_latency_samples(
    status_document: StudyStatus,
) -> Iterator[tuple[Mapping[str, str], float | None]]:
    """Yield the measured latencies. Latencies that are only bounds are omitted."""
    latency = status_document["latency"]
    latency_by_side = {"baseline": latency["baseline"], "best": latency["best"]} if latency else {}
    for side_name, side_latency in latency_by_side.items():
        if side_latency is not None and side_latency["measured"]:
            yield {"side": side_name, "value": "latency"}, side_latency["latency"]
            yield {"side": side_name, "value": "low"}, side_latency["low"]
            yield {"side": side_name, "value": "high"}, side_latency["high"]


def _list_start_samples(view: StudyView) -> Iterator[tuple[Mapping[str, str], float | None]]:
    for trial in view.state.trials[-MAX_METRIC_TRIALS:]:
        if trial.started_at:
            labels = {"trial": str(trial.number), "phase": str(trial.phase)}
            yield labels, datetime.fromisoformat(trial.started_at).timestamp()


def _list_trial_samples(view: StudyView) -> Iterator[tuple[Mapping[str, str], float | None]]:
    for trial in view.state.trials[-MAX_METRIC_TRIALS:]:
        labels = {"trial": str(trial.number), "phase": str(trial.phase)}
        yield labels, build_trial_capacity(trial, view.units).peak


def _format_metric_family(
    study: str, metric_name: str, meaning: str, samples: MetricSamples
) -> Iterator[str]:
    """Yield the lines of a metric, or no line if the metric has no value."""
    known_samples = [(labels, value) for labels, value in samples if value is not None]
    if not known_samples:
        return
    yield f"# HELP {METRIC_PREFIX}{metric_name} {meaning}"
    yield f"# TYPE {METRIC_PREFIX}{metric_name} gauge"
    for labels, value in known_samples:
        label_text = ",".join(
            f'{k}="{_escape_label(v)}"' for k, v in {"study": study, **labels}.items()
        )
        yield f"{METRIC_PREFIX}{metric_name}{{{label_text}}} {value:.13g}"


def _escape_label(label_value: str) -> str:
    label_value = make_printable(label_value)
    return label_value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
