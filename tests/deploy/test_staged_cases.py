"""Configurations that a host's software is asked about, by several tuners at once."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.deploy.staged_cases import validate_cases
from autotune.errors import AutotuneError
from autotune.services.base import AdoptedConfig, ConfigFile
from autotune.transports.base import Argv, CommandResult
from tests.deploy.doubles import Here


def part(place: Path, script: str, content: bytes = b"right\n") -> Any:
    """A part whose software is a line of shell, which is given the path of its one file."""
    conf = str(place / "conf")
    service = SimpleNamespace(
        build_validation=lambda site, files: ("sh", "-c", script, "sh", conf),
        list_config_files=lambda site: (ConfigFile(conf, "", 0o600),),
    )
    site = SimpleNamespace(
        directory=str(place / "run" / "web.web1.server"), adopted=None, host="web1"
    )
    return SimpleNamespace(name="web.web1.server", service=service, placement=site), {conf: content}


def test_a_file_on_trial_is_as_secret_as_the_real_one(tmp_path: Path) -> None:
    (tmp_path / "conf").write_text("password\n")
    (tmp_path / "conf").chmod(0o640)
    said = validate_cases(Here(tmp_path), [part(tmp_path, 'stat -c "bits %a" "$1"; exit 1')])
    assert said == ["bits 640"]
    assert list((tmp_path / "run").iterdir()) == []


def test_a_new_file_on_trial_is_as_secret_as_its_service_wants(tmp_path: Path) -> None:
    said = validate_cases(Here(tmp_path), [part(tmp_path, 'stat -c "bits %a" "$1"; exit 1')])
    assert said == ["bits 600"]


def test_no_secret_of_a_file_is_repeated(tmp_path: Path) -> None:
    (tmp_path / "conf").write_text("requirepass hunter2hunter2\n")
    masked = b"requirepass autotune-masked-1-of-1\n"
    case = part(tmp_path, 'sed "s/.* /wrong: /" "$1"; exit 1', masked)
    assert validate_cases(Here(tmp_path), [case]) == ["wrong: (masked)"]


def test_software_is_not_asked_about_a_file_that_could_not_be_staged(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file instead of a directory\n")
    with pytest.raises(AutotuneError, match=r"^here: .*Not a directory|File exists"):
        validate_cases(Here(tmp_path), [part(tmp_path, "true")])


@pytest.mark.long
def test_two_at_once_do_not_meet(tmp_path: Path) -> None:
    def ask_about(_: int) -> list[str | None]:
        cases = [part(tmp_path, 'sleep 0.02; grep right "$1"') for _ in range(10)]
        return validate_cases(Here(tmp_path), cases)

    with ThreadPoolExecutor(4) as pool:
        said = [refusal for refusals in pool.map(ask_about, range(4)) for refusal in refusals]
    assert said == [None] * 40


def test_a_file_that_is_not_there_is_so_for_its_software_alone(tmp_path: Path) -> None:
    for present in ("conf.d/10-first", "conf.d/.hidden", "conf.d/more/second"):
        (tmp_path / present).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / present).write_text(f"{present}\n")
    (tmp_path / "conf.d" / "link").symlink_to("10-first")
    (tmp_path / "conf.d").chmod(0o750)
    before = shown(tmp_path)
    cases = []
    for new in ("conf.d/zz-last", "drop.in.d/deeper/zz-last"):
        path = str(tmp_path / new)
        script = f'cd {tmp_path}; cat "$1" conf.d/link conf.d/*/second; stat -c %a conf.d; exit 1'
        service = SimpleNamespace(
            build_validation=lambda _, files, script=script: ("sh", "-c", script, "sh", *files)
        )
        site = SimpleNamespace(directory=str(tmp_path / "run" / "web"), adopted=AdoptedConfig())
        cases.append(
            (SimpleNamespace(name="web", service=service, placement=site), {path: b"new\n"})
        )
    (tmp_path / "run").mkdir()
    refusals = validate_cases(Here(tmp_path), cases)
    assert refusals == ["new\nconf.d/10-first\nconf.d/more/second\n750"] * 2
    (tmp_path / "run").rmdir()
    assert shown(tmp_path) == before


def shown(place: Path) -> list[str]:
    """Everything below it, with bits and contents."""
    return [f"{path} {path.lstat().st_mode} {path.read_text() if path.is_file() else ''}"
            for path in sorted(place.rglob("*"))]  # fmt: skip


class Deaf(Here):
    """A tuner that was killed: the script goes on, and nobody reads what it prints."""

    def run(self, argv: Argv, *, input: bytes | None = None, **_: Any) -> CommandResult:
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdout.close()
            process.stdin.write(self.rewritten(input or b""))
            process.stdin.close()
        return CommandResult(tuple(argv), 0, "", "")


def test_what_was_staged_is_taken_away_though_the_tuner_was_killed(tmp_path: Path) -> None:
    cases = [part(tmp_path, f'echo asked >>{tmp_path}/asked; cat "$1"') for _ in range(2)]
    with pytest.raises(AutotuneError, match="stopped early"):
        validate_cases(Deaf(tmp_path), cases)
    assert (tmp_path / "asked").read_text() == "asked\n" * 2
    assert list((tmp_path / "run").iterdir()) == []
