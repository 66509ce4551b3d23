"""What the load may be raised to is no property of the stack, and no command exceeds it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from autotune.cli import app
from autotune.cli.measure import _exit_below
from autotune.environments.peak import Peak
from autotune.study.measure_capacity import Measurement
from autotune.study.reading_records import load_readings
from autotune.study.study_state import Phase, Trial
from tests.modelled import noisy

CAP = 100.0  # requests/s; the model carries several times as many
LIMITED = "capacity at least 100 requests/s (limited by load.max_rate)"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "modelled.yaml"
    path.write_text(noisy("").replace("max_rate: 20000/s", f"max_rate: {CAP:g}/s"))
    return path


def autotune(*words: object) -> Result:
    return CliRunner().invoke(app, [*map(str, words)])


def test_a_capacity_beyond_the_limit_meets_what_the_limit_shows(
    target: Path, tmp_path: Path
) -> None:
    studies = ("--yes", "--studies", tmp_path / "studies")
    done = autotune("measure", target, "--at-least", "100/s", "--exit-code", *studies)
    assert done.exit_code == 0, done.output
    assert LIMITED in done.stdout
    assert "at least 100/s: reached" in done.stdout
    assert "not attainable" not in done.output
    again = json.loads(autotune("measure", target, "--repeat", 2, "--json", *studies).stdout)
    assert (again["peak"], again["limit"]) == (pytest.approx(CAP), "load.max_rate")
    assert {(one["verdict"], one["limit"]) for one in again["peaks"]} == {
        ("limited", "load.max_rate")
    }
    for directory in (tmp_path / "studies").iterdir():
        assert max(r.rate for r in load_readings(directory)) == CAP


@pytest.mark.parametrize(("verdict", "code"), [("limited", 1), ("measured", 4)])
def test_a_load_below_the_required_rate_does_not_show_that_the_capacity_is_lower(
    verdict: str, code: int
) -> None:
    limit = "the load generator fell behind" if verdict == "limited" else None
    peak = Peak(80.0, 75.0, 85.0, 0.03, verdict, limit=limit)
    measurement = Measurement("shop", (Trial(0, Phase.MEASURE, {}, peak=peak),))
    with pytest.raises(typer.Exit) as stop:
        _exit_below(CAP, measurement)
    assert stop.value.exit_code == code
    _exit_below(80.0, measurement)


def test_no_gain_is_made_of_two_lower_bounds(target: Path, tmp_path: Path) -> None:
    done = autotune("measure", target, "--config", _export(tmp_path), "--against", "baseline",
                    "--yes", "--studies", tmp_path / "studies")  # fmt: skip
    assert done.exit_code == 1
    assert "the capacity is at least 100 requests/s (limited by load.max_rate)" in str(
        done.exception
    )


def _export(directory: Path) -> Path:
    manifest = directory / "manifest.json"
    manifest.write_text(json.dumps({"parameters": {"web.php_fpm.max_children": 30}, "rss": {}}))
    return manifest


def test_a_sweep_of_capacities_has_lower_bounds(target: Path, tmp_path: Path) -> None:
    done = autotune("sweep", target, "--over", "web.php_fpm.max_children=20,40", "--peak",
                    "--repeat", 1, "--json", "--yes", "--studies", tmp_path / "studies")  # fmt: skip
    assert done.exit_code == 0, done.output
    swept = json.loads(done.stdout)
    assert [(p["limit"], p["failure"]) for p in swept["points"]] == [("load.max_rate", None)] * 2
    assert LIMITED.replace(" requests", "") in done.stderr
    said = autotune("report", "modelled-sweep", "--studies", tmp_path / "studies").stdout
    assert "at least 100 requests/s (limited by load.max_rate)" in said


def test_a_study_that_is_limited_says_so_everywhere(target: Path, tmp_path: Path) -> None:
    studies = ("--studies", tmp_path / "studies")
    done = autotune("run", target, "--trials", 3, "--yes", *studies)
    assert done.exit_code == 1
    assert "its capacity is at least 100 requests/s (limited by load.max_rate)" in str(
        done.exception
    )
    status = autotune("status", "modelled", *studies).stdout
    assert "baseline  at least 100 requests/s (limited by load.max_rate)" in status
    shown = json.loads(autotune("status", "modelled", "--json", *studies).stdout)
    assert shown["studies"][0]["baseline"]["limit"] == "load.max_rate"
    assert "at least 100 requests/s (limited by load.max_rate)" in (
        autotune("report", "modelled", *studies).stdout
    )


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("sweep", "TARGET", "--over", "web.php_fpm.max_children=20,40", "--rate", 2500), 2),
        (("sweep", "TARGET", "--over", "web.php_fpm.max_children=20,40", "--rate", 50, "--rate",
          500_000), 2),
        (("sweep", "SWEEP"), 3),
        (("measure", "TARGET", "--at-least", "2500/s"), 2),
    ],
)  # fmt: skip
def test_a_higher_rate_is_refused_before_anything_starts(
    target: Path, tmp_path: Path, words: tuple[object, ...], code: int
) -> None:
    sweep = tmp_path / "sweep.yaml"
    sweep.write_text(
        f"target: {target.name}\nover: {{web.php_fpm.max_children: [20, 40]}}\nrates: [50/s, 2500/s]\n"
    )
    places = {"TARGET": target, "SWEEP": sweep}
    studies = tmp_path / "studies"
    done = autotune(*(places.get(str(w), w) for w in words), "--yes", "--studies", studies)
    error = done.exception
    assert getattr(error, "exit_code", None) == code, done.output
    assert "requests/s exceed load.max_rate (100/s)" in str(error)
    assert "max_rate" in (getattr(error, "hint", None) or "")
    assert not studies.exists()
