from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autotune.cli import app
from autotune.report.numbers import metrics, table
from autotune.report.progress import WithPage
from autotune.report.studies import Study, open_study
from autotune.report.view import study_view
from tests.report.test_progress import Plain

STUDIES = Path(__file__).with_name("studies")
NAMES = sorted(path.name for path in STUDIES.iterdir())
SAMPLE = re.compile(r'[a-z_]+\{(?:[a-z]+="(?:[^"\\\n]|\\[n"\\])*",?)+\} -?[0-9.e+-]+')


def rows(study: Study, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(table(study_view(study), name))))


@pytest.mark.parametrize("name", NAMES)
def test_every_trial_and_reading_is_a_row(name: str, study: Callable[[str], Study]) -> None:
    opened = study(name)
    trials, readings = rows(opened, "trials"), rows(opened, "readings")
    assert [int(row["trial"]) for row in trials] == [trial.number for trial in opened.state.trials]
    assert [float(row["rate"]) for row in readings] == [r["rate"] for r in opened.readings]


def test_a_row_has_the_settings_and_the_capacity(study: Callable[[str], Study]) -> None:
    best = rows(study("improved"), "trials")[1]
    assert best["web.php_fpm.max_children"] == "16"
    assert float(best["low"]) < float(best["capacity"]) < float(best["high"])
    assert best["failure"] == ""


@pytest.mark.parametrize("name", NAMES)
def test_metrics_are_well_formed(name: str, study: Callable[[str], Study]) -> None:
    *lines, last, end = metrics(study_view(study(name))).split("\n")
    assert (last, end) == ("# EOF", "")
    typed = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(typed) == len(set(typed))
    samples = [line for line in lines if not line.startswith("#")]
    assert all(SAMPLE.fullmatch(line) for line in samples), samples
    assert {re.split("[{]", line)[0] for line in samples} == set(typed)


def test_metrics_say_what_the_status_does(study: Callable[[str], Study]) -> None:
    text = metrics(study_view(study("improved")))
    assert 'autotune_finished{study="improved"} 1\n' in text
    assert 'autotune_trials{study="improved",outcome="screened"} 4\n' in text
    assert 'autotune_capacity{study="improved",side="best",value="peak"} 21' in text
    assert "left_seconds" not in text


def test_metrics_are_written_after_each_trial(
    copied: Callable[[str], Path], tmp_path: Path
) -> None:
    directory, path = copied("killed"), tmp_path / "out" / "autotune.prom"
    opened = open_study(directory)
    display = Plain(opened.target, lambda: opened.state, io.StringIO())
    WithPage(display, directory, path).trial_ends(opened.state.trials[0])
    assert path.read_text() == metrics(study_view(opened))


def test_a_table_there_is_not() -> None:
    result = CliRunner().invoke(app, ["report", str(STUDIES / "aa"), "--csv", "trails"])
    assert result.exit_code != 0
    assert "no table 'trails'" in str(result.exception)
