"""One host, looked at and asked: this machine, with nothing on it changed."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from autotune.deploy.backup import BackupStore
from autotune.deploy.host import ManagedHost
from autotune.deploy.host_commands import Command, CommandFailed
from autotune.deploy.host_state import FileState, HostState
from autotune.errors import AutotuneError
from tests.deploy.doubles import Here


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


@pytest.fixture
def host(here: Here, tmp_path: Path) -> ManagedHost:
    return ManagedHost("here", here, BackupStore(tmp_path / "study"), "study")


def test_what_is_there_and_what_is_said_are_one_exchange(
    host: ManagedHost, here: Here, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"some\n")
    there, gone = str(tmp_path / "file"), str(tmp_path / "gone")
    wanted = HostState({there: FileState(), gone: FileState()}, {}, {"kernel.ostype": "Linux"})
    asked = [Command(("echo", "one word; two")), Command(("false",)), Command(("echo", "three"))]
    seen, answers = host.observe_and_run(wanted, asked)
    assert here.exchanges == 1
    assert seen.files[there].detail == hashlib.sha256(b"some\n").hexdigest()
    assert seen.files[gone].kind == "absent"
    assert seen.sysctls == {"kernel.ostype": "Linux"}
    assert [(done.ok, done.stdout.strip()) for done in answers] == [
        (True, "one word; two"),
        (False, ""),
        (True, "three"),
    ]
    assert host.observe(wanted) == seen


class Rebooted(Here):
    """This machine, after a reboot if the file `boot_id` exists."""

    def rewritten(self, script: bytes) -> bytes:
        boot_id = self.place / "boot_id"
        if boot_id.exists():
            script = script.replace(b"/proc/sys/kernel/random/boot_id", str(boot_id).encode())
        return super().rewritten(script)


def test_a_reboot_of_a_locked_host_is_an_error(tmp_path: Path) -> None:
    host = ManagedHost("here", Rebooted(tmp_path), BackupStore(tmp_path / "study"), "study")
    host.lock.lock()
    host.assert_locked()
    (tmp_path / "boot_id").write_text("another boot\n")
    with pytest.raises(AutotuneError, match="here was rebooted during the trial") as rebooted:
        host.assert_locked()
    assert "repeats the trial" in (rebooted.value.hint or "")
    host.lock.unlock()


def test_a_vital_question_that_fails_is_no_answer(host: ManagedHost) -> None:
    with pytest.raises(CommandFailed, match=r"here: .*no such thing"):
        host.observe_and_run(HostState(), [Command(("ls", "/no such thing"), required=True)])
