"""The command line itself: what it loads, and how it ends."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autotune import errors, exit_handling
from autotune.cli import app
from autotune.errors import AutotuneError, LockedError, TargetError
from tests.printed import printed

ROOT = Path(__file__).parents[1]
HEAVY = ("optuna", "fabric", "scipy", "sklearn", "skopt", "numpy", "pydantic", "jinja2")


@pytest.mark.parametrize(
    ("words", "says", "heavy"),
    [
        (["--help"], "Usage: autotune", HEAVY),
        (
            ["plan", "targets/paper.yaml"],
            "The stack is a model",
            ("optuna", "scipy", "sklearn", "skopt"),
        ),
    ],
)
def test_nothing_heavy_is_loaded_for_nothing(
    words: list[str], says: str, heavy: tuple[str, ...]
) -> None:
    code = (
        f"import sys; sys.argv = ['autotune', *{words!r}]\n"
        "from autotune.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        f"print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert says in done.stdout
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    "command", [c.name or c.callback.__name__ for c in app.registered_commands]
)  # type: ignore[union-attr]
def test_every_command_and_option_says_what_it_is(command: str) -> None:
    done = CliRunner().invoke(app, [command, "--help"])
    assert done.exit_code == 0
    lines = [line for line in done.output.splitlines() if line.strip().startswith("-")]
    assert lines
    _, _, rest = done.output.partition("\n\n")
    assert rest.strip()
    for line in lines:
        assert len(line.split("  ")) > 1 or line.startswith("  --"), line


def _raise(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (AutotuneError("no", hint="yes"), errors.OPERATIONAL_EXIT_CODE),
        (TargetError("x.yaml:1:2: no"), errors.INVALID_TARGET_EXIT_CODE),
        (LockedError("held"), errors.LOCKED_EXIT_CODE),
        (KeyboardInterrupt(), errors.INTERRUPTED_EXIT_CODE),
        (OSError(errno.ENOSPC, "No space left on device"), errors.OPERATIONAL_EXIT_CODE),
        (
            PermissionError(errno.EACCES, "Permission denied", "studies/x"),
            errors.OPERATIONAL_EXIT_CODE,
        ),
        (RuntimeError("unforeseen"), errors.BUG_EXIT_CODE),
        (OSError("RuntimeError: unforeseen"), errors.BUG_EXIT_CODE),
    ],
)
def test_every_ending_has_a_message_and_a_code(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_handling.run_command(_raise(error), as_json=True) == code
    streams = capsys.readouterr()
    assert streams.err.startswith("autotune: ")
    assert "Traceback" not in streams.err
    found = printed("error", streams.out)
    assert found["schema"] == 1
    assert found["error"]["code"] == code
    if code == errors.BUG_EXIT_CODE:
        log = Path(found["error"]["hint"].split()[-1])
        assert "RuntimeError: unforeseen" in log.read_text()
        log.unlink()


@pytest.mark.parametrize(
    "number", [errno.ENFILE, errno.EFBIG, errno.EAGAIN, errno.ENOMEM, errno.ESTALE]
)
def test_a_limit_of_the_machine_is_not_a_bug(
    number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    error = OSError(number, "a limit", "studies/x")
    assert exit_handling.run_command(_raise(error), as_json=False) == errors.OPERATIONAL_EXIT_CODE
    assert capsys.readouterr().err.startswith("autotune: studies/x: a limit\n  hint: ")


def test_nonsense_on_the_command_line_is_a_usage_error() -> None:
    argv = [sys.executable, "-m", "autotune", "run", "--nonsense"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == errors.USAGE_EXIT_CODE
    assert "No such option" in done.stderr
    assert "Traceback" not in done.stderr


def test_json_is_one_object_also_where_the_command_line_makes_no_sense(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["report", "--json"]
    assert (
        exit_handling.run_command(lambda: app(words, standalone_mode=False), as_json=True)
        == errors.USAGE_EXIT_CODE
    )
    found = printed("error", capsys.readouterr().out)
    assert found["error"]["code"] == errors.USAGE_EXIT_CODE
    assert "study" in found["error"]["message"]


def test_a_damaged_study_does_not_hide_the_others(tmp_path: Path) -> None:
    recorded = Path(__file__).parent / "report" / "studies" / "improved"
    shutil.copytree(recorded, tmp_path / "improved")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "events.jsonl").write_text("{nonsense\n")
    done = CliRunner().invoke(app, ["status", "--json", "--studies", str(tmp_path)])
    assert done.exit_code == 0
    assert [study["study"] for study in printed("status", done.stdout)["studies"]] == ["improved"]
    assert "broken: " in done.stderr
    assert "damaged" in done.stderr


def test_load_is_not_sent_without_leave(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", str(tmp_path / "none.yaml")]
    code = exit_handling.run_command(lambda: app(words, standalone_mode=False), as_json=False)
    assert code == errors.INVALID_TARGET_EXIT_CODE
    assert "no such file" in capsys.readouterr().err
