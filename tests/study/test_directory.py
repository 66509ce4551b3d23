from __future__ import annotations

import multiprocessing
import os
import pwd
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from autotune import durable_files
from autotune.errors import LOCKED_EXIT_CODE, AutotuneError, LockedError
from autotune.foreign_files import ForeignFileError
from autotune.study.directory import (
    StudyLock,
    describe_lock_holder,
    find_study,
    is_locked,
    list_study_names,
    list_unreadable_directories,
)

HOLD = """
import sys, time
from collections.abc import Callable
from pathlib import Path
from autotune.study.directory import StudyLock
with StudyLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_tuner_hears_who_holds_the_study(tmp_path: Path) -> None:
    path = tmp_path / "study" / "lock"
    with StudyLock(path):
        assert is_locked(path)
        with pytest.raises(LockedError) as caught:
            StudyLock(path).acquire()
    assert caught.value.exit_code == LOCKED_EXIT_CODE
    assert f"process {os.getpid()}" in caught.value.message
    assert "since" in caught.value.message
    assert not is_locked(path)
    assert describe_lock_holder(path) is None


def test_the_lock_of_a_killed_tuner_is_free(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "held\n"
    assert is_locked(path)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdin.close()
    process.stdout.close()
    assert not is_locked(path)
    with StudyLock(path):
        assert is_locked(path)


def test_looking_whether_a_study_is_tuned_refuses_no_tuner(tmp_path: Path) -> None:
    path, done = tmp_path / "lock", threading.Event()
    path.touch()

    def look() -> None:
        while not done.is_set():
            is_locked(path)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for _ in range(100):
            with StudyLock(path):
                pass
    finally:
        done.set()
        looking.join()


def test_a_lock_that_cannot_be_opened_counts_as_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("autotune.foreign_files.open_file", refuse)
    assert is_locked(tmp_path / "lock")


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_a_lock_that_is_no_file_is_refused_at_once(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "lock")
    with pytest.raises(ForeignFileError, match="not a file"):
        is_locked(tmp_path / "lock")


def test_the_name_of_a_new_study_survives_a_loss_of_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(durable_files, "sync_directory", synced.append)
    with StudyLock(tmp_path / "studies" / "shop" / "lock"):
        assert synced == [tmp_path, tmp_path / "studies"]


def call_as_nobody(call: Callable[[], object]) -> tuple[str, str | None]:
    """Return the message and the hint of the error in a process of an account without privileges."""
    received, sent = multiprocessing.Pipe(duplex=False)
    if os.fork() == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            call()
            sent.send(("no error", None))
        except AutotuneError as error:
            sent.send((error.message, error.hint))
        finally:
            os._exit(0)
    sent.close()
    os.wait()
    outcome: tuple[str, str | None] = received.recv()
    return outcome


def name_unreadable(root: Path) -> None:
    """Raise AutotuneError with the directories below ``root`` that this account cannot read."""
    raise AutotuneError(" and ".join(map(": ".join, list_unreadable_directories(root))))


def test_a_directory_of_studies_that_this_account_cannot_list_is_named() -> None:
    owner = pwd.getpwuid(os.geteuid()).pw_name
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        studies = Path(place) / "studies"
        studies.mkdir()
        studies.chmod(0)
        for call in (partial(list_study_names, studies), partial(find_study, "shop", studies)):
            message, hint = call_as_nobody(call)
            assert message == f"{studies} cannot be read: it belongs to {owner} and has mode 0000"
            assert hint
        studies.chmod(0o700)


def test_a_study_that_this_account_cannot_read_is_not_unknown() -> None:
    owner = pwd.getpwuid(os.geteuid()).pw_name
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        directory = Path(place) / "shop"
        directory.mkdir()
        (directory / "events.jsonl").touch()
        directory.chmod(0)
        for name, root in (("shop", Path(place)), (str(directory), Path(place, "none"))):
            message, hint = call_as_nobody(partial(find_study, name, root))
            assert message == f"{directory} cannot be read: it belongs to {owner} and has mode 0000"
            assert hint
        message, _ = call_as_nobody(partial(find_study, "shop/inner", Path(place)))
        assert message.startswith(f"{directory} cannot be read")
        message, _ = call_as_nobody(partial(find_study, "other", Path(place)))
        assert message == "unknown study 'other'"
        Path(place, "readable").mkdir()
        message, _ = call_as_nobody(partial(name_unreadable, Path(place)))
        assert message.startswith(f"shop: {directory} cannot be read")
        directory.chmod(0o700)
