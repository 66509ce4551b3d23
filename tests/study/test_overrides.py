"""What `run` is told in place of its target is on record: `resume` keeps it. `measure` as a gate."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from autotune import errors
from autotune.cli import app
from autotune.study import start
from autotune.target.read_target import read_target
from tests.printed import printed

PAPER = (Path(__file__).parents[2] / "targets" / "paper.yaml").read_text()
SET = "web.php_fpm.max_children=40"


def test_a_study_keeps_what_its_run_was_told(tmp_path: Path) -> None:
    target, studies = tmp_path / "t.yaml", tmp_path / "studies"
    target.write_text(PAPER)
    words = ["run", str(target), "--yes", "--name", "quick", "--time", "1m", "--trials", "3"]
    done = CliRunner().invoke(app, [*words, "--set", SET, "--studies", str(studies)])
    assert done.exit_code == 0, done.output
    study = studies / "quick"
    first = json.loads((study / "events.jsonl").read_text().splitlines()[0])
    assert ["--set", SET] in first["overrides"]
    # From the target as it is today, and from the study's own where that is gone.
    for source in (target, None):
        if source is None:
            target.unlink()
        environment = start.prepare_existing(study)
        assert environment.space.baseline["web.php_fpm.max_children"] == 40
        assert "web.php_fpm.max_children" not in {
            d.name for d in environment.space.tunable_dimensions
        }
        assert environment.file.target.budget.trials == 3
        assert environment.file.target.budget.time == 60
    assert read_target(study / "target.yaml").target.name == "quick"


def test_a_capacity_below_the_one_asked_for_has_an_exit_code(tmp_path: Path) -> None:
    target = tmp_path / "t.yaml"
    target.write_text(PAPER)
    for rate, code, met in (("100/s", 0, True), ("15000/s", errors.NOT_IMPROVED_EXIT_CODE, False)):
        words = ["measure", str(target), "--yes", "--json", "--studies", str(tmp_path / "studies")]
        done = CliRunner().invoke(app, [*words, "--at-least", rate, "--exit-code"])
        assert done.exit_code == code, done.output
        assert printed("measurement", done.stdout)["at_least"]["met"] is met
