"""The directories of private stacks: removed and searched only if a record outside of studies says so."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from autotune.account_key import find_state_directory
from autotune.deploy import private_servers, run_directories
from autotune.deploy.private_servers import PID_SUFFIX, stop_orphaned
from autotune.deploy.run_directories import RunDirectory
from autotune.study.restore import RestoreReport, restore_target
from autotune.study.trial_context import stop_orphaned_servers


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "studies" / "shop").mkdir(parents=True)
    return tmp_path / "studies" / "shop"


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of somebody: the leader of a session, at work in a directory of its own."""
    (tmp_path / "precious" / "web").mkdir(parents=True)
    with subprocess.Popen(
        ["sleep", "600"], cwd=tmp_path / "precious" / "web", start_new_session=True
    ) as process:
        yield process
        process.kill()


def test_a_run_directory_is_there_for_one_study_and_gone_after_it(study: Path) -> None:
    path = run_directories.make_run_directory(study, is_shared=False)
    assert path.is_dir()
    assert list(study.iterdir()) == []
    assert run_directories.find_run_directory(study) == RunDirectory(study, path)
    assert list(run_directories.list_run_directories(study.parent)) == [RunDirectory(study, path)]
    assert list(run_directories.list_run_directories(study.parent / "other")) == []
    again = run_directories.make_run_directory(study, is_shared=True)
    assert not path.exists()
    assert again.stat().st_mode & 0o777 == 0o755
    run_directories.remove_run_directory(study)
    assert not again.exists()
    assert stop_orphaned(RunDirectory(study, again)) == ()
    assert run_directories.find_run_directory(study) is None
    assert list((find_state_directory() / "runs").iterdir()) == []


@pytest.mark.parametrize("link", ["run", "beds/one/run"])
def test_a_link_in_a_study_leads_to_nothing_that_is_removed_or_ended(
    study: Path, tmp_path: Path, sleeper: subprocess.Popen[bytes], link: str
) -> None:
    """The record of the process is right in all that a study can say."""
    record = tmp_path / "precious" / "web" / f"sleep{PID_SUFFIX}"
    record.write_text(Path(f"/proc/{sleeper.pid}/stat").read_text())
    (study / link).parent.mkdir(parents=True, exist_ok=True)
    (study / link).symlink_to(tmp_path / "precious")
    target = tmp_path / "shop.yaml"
    target.write_text("name: shop\nhosts: {here: {address: 127.0.0.1, transport: local}}\n")
    assert stop_orphaned_servers(study.parent) == ()
    report = RestoreReport()
    restore_target(target, study.parent, report)
    report.unwrap()
    assert record.exists()
    assert sleeper.poll() is None
    assert psutil.Process(sleeper.pid).status() != psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("lies", ["a link", "another directory", "nothing"])
def test_what_lies_where_a_run_directory_was_is_not_removed(
    study: Path, tmp_path: Path, lies: str
) -> None:
    path = run_directories.make_run_directory(study, is_shared=False)
    path.rename(tmp_path / "moved")
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    if lies == "a link":
        path.symlink_to(tmp_path / "precious")
    elif lies == "another directory":
        (tmp_path / "precious").rename(path)
    run_directories.remove_run_directory(study)
    assert run_directories.find_run_directory(study) is None
    place = path if lies == "another directory" else tmp_path / "precious"
    assert (place / "file").exists()


def test_one_that_was_killed_before_it_marked_its_directory_is_cleared(study: Path) -> None:
    path = run_directories.make_run_directory(study, is_shared=False)
    (path / run_directories.MARKER_FILE).unlink()
    run_directories.remove_run_directory(study)
    assert not path.exists()


@pytest.mark.parametrize("record", ["{}", "[", '{"study": 5, "directory": []}', ""])
def test_a_record_that_makes_no_sense_is_passed_over(study: Path, record: str) -> None:
    run_directories.make_run_directory(study, is_shared=False)
    (each,) = (find_state_directory() / "runs").iterdir()
    each.write_text(record)
    assert run_directories.find_run_directory(study) is None
    assert list(run_directories.list_run_directories(study.parent)) == []


def test_a_process_that_has_the_id_of_a_server_by_now_is_not_ended(
    study: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    path = run_directories.make_run_directory(study, is_shared=False)
    running = private_servers.start_server("sleep", ["sleep", "600"], _part(path))
    record = running.directory / f"sleep{PID_SUFFIX}"
    private_servers.wait_until(record.exists, running, 60.0, "recording itself")
    true = _recorded(record)
    record.write_text(true.replace(str(running.pid), str(sleeper.pid), 1))
    assert stop_orphaned(RunDirectory(study, path)) == ()  # it works elsewhere
    record.write_text(f"{true.rpartition(')')[0]}) S" + " 1" * 40)
    assert stop_orphaned(RunDirectory(study, path)) == ()  # it started at another time
    os.mkfifo(running.directory / f"pipe{PID_SUFFIX}")
    assert running.is_alive
    record.write_text(true)
    assert stop_orphaned(RunDirectory(study, path)) == ("sleep",)
    running.process.wait(60)
    assert sleeper.poll() is None


def _part(path: Path) -> Path:
    (path / "part").mkdir()
    return path / "part"


def _recorded(record: Path) -> str:
    while not (text := record.read_text()):
        pass
    return text
