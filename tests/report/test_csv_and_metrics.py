from __future__ import annotations

import csv
import io
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus
from typer.testing import CliRunner

from autotune.cli import app
from autotune.report.csv_and_metrics import format_csv, format_metrics
from autotune.report.page import write_atomically
from autotune.report.progress import PageWriter
from autotune.report.studies import Study, open_study
from autotune.report.view import build_study_view
from autotune.study.reading_records import RecordedCall
from autotune.terminal import make_printable
from tests.report.test_progress import PlainProgress

STUDIES = Path(__file__).with_name("studies")
NAMES = sorted(path.name for path in STUDIES.iterdir())
SAMPLE = re.compile(r'[a-z_]+\{(?:[a-z]+="(?:[^"\\\n]|\\[n"\\])*",?)+\} -?[0-9.e+-]+')


def rows(study: Study, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(format_csv(build_study_view(study), name))))


@pytest.mark.parametrize("name", NAMES)
def test_every_trial_and_reading_is_a_row(name: str, study: Callable[[str], Study]) -> None:
    opened = study(name)
    trials, readings = rows(opened, "trials"), rows(opened, "readings")
    assert [int(row["trial"]) for row in trials] == [trial.number for trial in opened.state.trials]
    assert [float(row["rate"]) for row in readings] == [r.rate for r in opened.readings]


def test_calls_of_a_command_are_rows(study: Callable[[str], Study]) -> None:
    opened = replace(study("improved"))
    calls = (RecordedCall(0, "2026-01-01", 1.5, value=12.5, sd=0.5),
             RecordedCall(1, "2026-01-02", 0.5, why="exit status 1", said="no disk"))  # fmt: skip
    vars(opened)["_all_readings"] = calls
    measured, failed = rows(opened, "readings")
    assert measured == {"trial": "0", "at": "2026-01-01", "seconds": "1.5", "value": "12.5",
                        "sd": "0.5", "why": "", "said": ""}  # fmt: skip
    assert (failed["value"], failed["why"], failed["said"]) == ("", "exit status 1", "no disk")


FORMULAS = ["=1+1", "+1", "-x", "@SUM(A1)", "\t=1"]
HIDDEN = [f"{hidden}=1+1" for hidden in ("\r", "\x00", "\x1b[0m", "\x1b]0;title\x07", "\u200e")]


def with_failure(opened: Study, text: str) -> Study:
    first = replace(opened.state.trials[0], failure=text)
    trials = (first, *opened.state.trials[1:])
    return replace(opened, state=replace(opened.state, trials=trials))


@pytest.mark.parametrize("text", [*FORMULAS, *HIDDEN])
def test_text_is_no_formula_of_a_spreadsheet(text: str, study: Callable[[str], Study]) -> None:
    changed = with_failure(study("improved"), text)
    assert rows(changed, "trials")[0]["failure"] == f"'{make_printable(text)}"


def test_no_cell_hides_the_cells_behind_it(study: Callable[[str], Study]) -> None:
    changed = with_failure(study("improved"), "no disk\x1b]0;")
    printed = make_printable(format_csv(build_study_view(changed), "trials"))
    first, *_ = csv.DictReader(io.StringIO(printed))
    assert first == rows(changed, "trials")[0]
    assert first["failure"] == "no disk"


def test_a_row_has_the_settings_and_the_capacity(study: Callable[[str], Study]) -> None:
    best = rows(study("improved"), "trials")[1]
    assert best["web.php_fpm.max_children"] == "16"
    assert float(best["low"]) < float(best["capacity"]) < float(best["high"])
    assert best["failure"] == ""


def test_a_parameter_with_the_name_of_a_column_has_its_own(study: Callable[[str], Study]) -> None:
    opened = study("improved")
    names = {"low": 7, "p99": 8, "trial": 9, "workers": 10}
    trials = tuple(replace(trial, settings=names, effective={}) for trial in opened.state.trials)
    changed = replace(opened, state=replace(opened.state, trials=trials))
    for row, kept in zip(rows(changed, "trials"), rows(opened, "trials"), strict=True):
        assert [row[f"setting.{name}"] for name in ("low", "p99", "trial")] == ["7", "8", "9"]
        assert row["workers"] == "10"
        assert [row[name] for name in ("low", "p99", "trial")] == [
            kept[name] for name in ("low", "p99", "trial")
        ]


def test_a_reading_has_the_percentile_of_the_slo(copied: Callable[[str], Path]) -> None:
    directory = copied("improved")
    target = directory / "target.yaml"
    target.write_text(target.read_text().replace("p99: 50ms", "p98: 50ms"))
    known = [row for row in rows(open_study(directory), "readings") if row["p99"]]
    assert known
    assert all(float(row["p95"]) <= float(row["p98"]) <= float(row["p99"]) for row in known)


@pytest.mark.parametrize("name", NAMES)
def test_metrics_are_well_formed(name: str, study: Callable[[str], Study]) -> None:
    text = format_metrics(build_study_view(study(name)))
    *lines, last, end = text.split("\n")
    assert (last, end) == ("# EOF", "")
    samples = [line for line in lines if not line.startswith("#")]
    assert all(SAMPLE.fullmatch(line) for line in samples), samples
    for parse in (openmetrics, prometheus):
        families = {family.name: family for family in parse(text)}
        assert sum(len(family.samples) for family in families.values()) == len(samples)
        assert all(family.type == "gauge" and family.documentation for family in families.values())


def test_the_name_of_a_study_is_one_label(tmp_path: Path) -> None:
    directory = shutil.copytree(STUDIES / "improved", tmp_path / 'a\x1b[2J\udcff"b')
    text = format_metrics(build_study_view(open_study(Path(directory))))
    assert all('study="a\ufffd\\"b"' in line for line in text.splitlines() if line[0] != "#")


def test_each_trial_says_when_it_began(study: Callable[[str], Study]) -> None:
    opened = study("improved")
    families = {
        family.name: family for family in openmetrics(format_metrics(build_study_view(opened)))
    }
    begun = families["autotune_trial_begun_timestamp_seconds"].samples
    assert [int(sample.labels["trial"]) for sample in begun] == [
        t.number for t in opened.state.trials
    ]
    assert begun[0].labels["phase"] == "baseline"
    assert (
        datetime.fromtimestamp(begun[1].value, UTC).isoformat()
        == "2026-03-02T09:00:36.600000+00:00"
    )


def test_the_dashboard_asks_for_metrics_there_are(study: Callable[[str], Study]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "grafana-dashboard.json").read_text()
    asked = set(re.findall(r"autotune_[a-z_]+", text))
    studies = [format_metrics(build_study_view(study(name))) for name in NAMES]
    answered = {family.name for each in studies for family in openmetrics(each)}
    assert answered == asked
    assert all(panel["targets"] for panel in json.loads(text)["panels"])


def test_metrics_say_what_the_status_does(study: Callable[[str], Study]) -> None:
    text = format_metrics(build_study_view(study("improved")))
    assert 'autotune_finished{study="improved"} 1\n' in text
    assert 'autotune_trials{study="improved",outcome="screened"} 4\n' in text
    assert 'autotune_capacity{study="improved",side="best",value="peak"} 21' in text
    assert "left_seconds" not in text


def test_metrics_are_written_after_each_trial(
    copied: Callable[[str], Path], tmp_path: Path
) -> None:
    directory, path = copied("killed"), tmp_path / "out" / "autotune.prom"
    opened = open_study(directory)
    display = PlainProgress(opened.target, lambda: opened.state, io.StringIO())
    publish = partial(write_atomically, path)
    for when in ("on_trial_start", "on_trial_end"):
        getattr(PageWriter(display, directory, publish), when)(opened.state.trials[0])
        assert path.read_text() == format_metrics(build_study_view(opened))
        path.unlink()


def test_a_table_there_is_not() -> None:
    result = CliRunner().invoke(app, ["report", str(STUDIES / "aa"), "--csv", "trails"])
    assert result.exit_code != 0
    assert "unknown table 'trails'" in str(result.exception)
