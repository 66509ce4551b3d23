"""The commands that a report prints fit the verdict and the runtime, and they work."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autotune.cli import app
from autotune.report.next_steps import build_next_steps
from autotune.report.studies import Study, open_study
from autotune.report.view import build_study_view
from autotune.target.model import Simulated
from autotune.target.read_target import read_target

Opened = Callable[[str], Study]
TARGETS = Path(__file__).parents[2] / "targets"


def with_target(study: Study, **changes: object) -> Study:
    return replace(study, target=study.target.model_copy(update=changes))


def test_private_servers_have_no_command_that_applies_the_files(study: Opened) -> None:
    steps = build_next_steps(build_study_view(study("improved")))
    assert steps.apply == ("autotune export improved --out improved-best",)
    assert steps.undo == ()
    assert "improved-best/README.md" in steps.note


def test_a_model_is_exported_as_a_model(study: Opened) -> None:
    steps = build_next_steps(
        build_study_view(with_target(study("improved"), simulated=Simulated()))
    )
    assert steps.apply == ("autotune export improved --out improved-best --of-a-model",)
    assert steps.undo == ()


def test_installed_services_are_changed_and_restored(
    study: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = study("improved")
    installed = read_target(TARGETS / "lab.yaml").target.tiers
    view = build_study_view(with_target(opened, tiers=installed))
    monkeypatch.chdir(opened.target_path.parent if opened.target_path.parent.exists() else "/")
    steps = build_next_steps(view)
    target = steps.undo[0].removeprefix("autotune restore ")
    assert steps.apply[1] == f"autotune apply improved-best {target}"
    assert Path(target).name == opened.target_path.name


@pytest.mark.parametrize(
    ("name", "resume"), [("killed", True), ("aa", False), ("unmeetable", False)]
)
def test_only_a_stopped_study_is_resumed(name: str, resume: bool, study: Opened) -> None:
    steps = build_next_steps(build_study_view(study(name)))
    assert steps.resume == ((f"autotune resume {name}",) if resume else ())
    assert steps.apply == ()


def test_a_study_that_stopped_before_its_first_measurement_is_resumed(study: Opened) -> None:
    opened = study("killed")
    state = replace(opened.state, trials=(), verdict=None)
    steps = build_next_steps(build_study_view(replace(opened, state=state)))
    assert steps.resume == ("autotune resume killed",)
    assert steps.commands[0] == steps.status_command == "autotune resume killed"


def test_a_shared_study_is_continued_in_its_database(copied: Callable[[str], Path]) -> None:
    for name, command in (("killed", "resume killed"), ("improved", "explain improved")):
        opened = open_study(copied(name))
        shared = replace(opened, state=replace(opened.state, is_shared=True))
        steps = build_next_steps(build_study_view(shared))
        option = " --storage URL" if name == "killed" else ""
        assert f"autotune {command}{option}" in steps.commands
        (opened.directory / "workers.json").write_text("[]")
        steps = build_next_steps(build_study_view(shared))
        assert f"autotune {command} --storage URL" in steps.commands
        assert f"autotune report {name} --storage URL --json" == steps.commands[-1]


def test_the_printed_export_runs_and_writes_the_guide_of_the_note(
    copied: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = copied("improved")
    monkeypatch.chdir(directory.parents[1])
    steps = build_next_steps(build_study_view(open_study(directory)))
    done = CliRunner().invoke(app, shlex.split(steps.apply[0])[1:])
    assert done.exit_code == 0, done.output
    guide = Path("improved-best", "README.md").read_text(encoding="utf-8")
    assert "Trial 1 of study improved" in guide
