"""`--keep` of `run` and `resume`: when a proven winner may stay on the hosts."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from autotune.cli import app
from autotune.environments import multi_bed
from autotune.environments.preparation import prepare
from autotune.errors import UsageError
from autotune.study import start
from autotune.study.study_store import load_state
from autotune.target.read_target import read_target
from tests.modelled import noisy
from tests.sweep.modelled import Silent

BEDS = "beds:\n  a: {simulated: {seed: 3}}\n  b: {simulated: {seed: 4}}\n"


def interrupt_study(directory: Path, *, keeps_winner: bool) -> Path:
    """Return the directory with the study `modelled`, which was interrupted."""
    target, studies = directory / "modelled.yaml", directory / "studies"
    target.write_text(noisy("budget: {trials: 3, time: 10m}\n"))
    environment = prepare(read_target(target))
    with pytest.raises(KeyboardInterrupt):
        start.start_study(environment, studies / "modelled", Silent(1), keeps_winner=keeps_winner)
    return studies


def test_a_resumed_study_refuses_to_keep_a_winner_like_a_new_one(tmp_path: Path) -> None:
    studies = interrupt_study(tmp_path, keeps_winner=False)
    words = ["resume", "modelled", "--keep", "--yes", "--studies", str(studies)]
    error = CliRunner().invoke(app, words).exception
    assert isinstance(error, UsageError)
    assert "a model has no hosts" in str(error)
    assert load_state(studies / "modelled").verdict is None


@pytest.mark.parametrize("options", [[], ["--keep"]])
def test_a_resumed_study_keeps_its_winner_with_an_option(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.study.trial_context.check_can_keep", lambda _: None)
    studies = interrupt_study(tmp_path, keeps_winner=False)
    words = ["resume", "modelled", *options, "--yes", "--studies", str(studies)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert ("stays on the hosts" in done.output) is bool(options)


@pytest.mark.parametrize(
    ("keeps_winner", "options", "is_noted"),
    [(False, [], False), (True, [], True), (True, ["--quiet"], False)],
)
def test_a_notice_tells_that_the_hosts_are_restored_unlike_before(
    keeps_winner: bool, options: list[str], is_noted: bool, tmp_path: Path
) -> None:
    studies = interrupt_study(tmp_path, keeps_winner=keeps_winner)
    words = ["resume", "modelled", *options, "--studies", str(studies)]
    done = CliRunner().invoke(app, words)
    assert "without confirmation" in str(done.exception)
    assert ("the last session of study modelled used --keep" in done.output) is is_noted


@pytest.mark.parametrize("command", ["run", "resume"])
def test_no_winner_is_kept_on_test_beds(command: str, tmp_path: Path) -> None:
    target, studies = tmp_path / "modelled.yaml", tmp_path / "studies"
    target.write_text(noisy(f"budget: {{trials: 3, time: 10m}}\n{BEDS}"))
    words = [str(target), "--beds", "all"]
    if command == "resume":
        environment = multi_bed.prepare(read_target(target), ("a", "b"))
        with pytest.raises(KeyboardInterrupt):
            start.start_study(environment, studies / "modelled", Silent(1))
        words = ["modelled"]
    error = (
        CliRunner().invoke(app, [command, *words, "--keep", "--studies", str(studies)]).exception
    )
    assert isinstance(error, UsageError)
    assert "--keep does not apply to studies on test beds" in str(error)
