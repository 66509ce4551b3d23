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
pytestmark = pytest.mark.usefixtures("beside_studies")


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


@pytest.mark.parametrize(
    ("studies", "option"),
    [("studies", ""), ("elsewhere", " --studies elsewhere"), ("a b", " --studies 'a b'")],
)
def test_installed_services_are_changed_and_restored(
    studies: str, option: str, copied: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = copied("improved").parents[1]
    monkeypatch.chdir(home)
    directory = (home / "studies").rename(home / studies) / "improved"
    opened = open_study(directory.relative_to(home))
    installed = read_target(TARGETS / "lab.yaml").target.tiers
    steps = build_next_steps(build_study_view(with_target(opened, tiers=installed)))
    target = shlex.quote(str(opened.target_path))
    assert steps.apply == (
        f"autotune export improved{option} --out improved-best",
        f"autotune apply improved-best {target}{option}",
    )
    assert steps.undo == (f"autotune restore {target}{option}",)


def test_a_kept_winner_is_neither_applied_nor_removed(study: Opened) -> None:
    """`apply` and `explain --measure` refuse hosts with a kept winner."""
    installed = read_target(TARGETS / "lab.yaml").target.tiers
    opened = with_target(study("improved"), tiers=installed)
    opened = replace(opened, state=replace(opened.state, keeps_winner=True, kept_trial=9))
    steps = build_next_steps(build_study_view(opened))
    assert steps.apply == ("autotune export improved --out improved-best",)
    assert steps.undo == (f"autotune restore {shlex.quote(str(opened.target_path))}",)
    assert steps.note.startswith("`--keep` left this configuration on the hosts.")
    assert "autotune explain improved" in steps.commands


def test_a_winner_that_a_killed_study_could_not_keep_is_applied(study: Opened) -> None:
    """As if the tuner was killed after the verdict, or if the winner could not be deployed again."""
    installed = read_target(TARGETS / "lab.yaml").target.tiers
    opened = with_target(study("improved"), tiers=installed)
    opened = replace(opened, state=replace(opened.state, keeps_winner=True))
    steps = build_next_steps(build_study_view(opened))
    assert steps.apply[1].startswith("autotune apply improved-best ")
    assert steps.note == ""


def test_no_command_applies_files_to_hosts_whose_addresses_depend_on_the_bed(
    study: Opened,
) -> None:
    lab = read_target(TARGETS / "lab.yaml").target
    hosts = {
        name: host.model_copy(update={"address": f"{name}.{{bed}}.example"})
        for name, host in lab.hosts.items()
    }
    opened = with_target(study("improved"), tiers=lab.tiers, hosts=hosts)
    steps = build_next_steps(build_study_view(opened))
    assert steps.apply == ("autotune export improved --out improved-best",)
    assert steps.undo == ()
    assert "`autotune apply` needs a target without test beds" in steps.note
    assert not [command for command in steps.commands if command.startswith("autotune apply")]


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


def test_a_shared_study_is_continued_in_its_database(
    copied: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
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
