"""Who holds a host, and when nobody does any more."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from autotune.deploy import host_lock
from autotune.deploy.host_commands import Command, run_commands
from autotune.deploy.host_lock import (
    LEASE_SECONDS,
    HostLock,
    ObservedLock,
    current_holder,
    find_stale_reason,
    renew_locks,
)
from autotune.errors import LOCKED_EXIT_CODE, AutotuneError, LockedError
from autotune.transports.base import CommandResult
from tests.deploy.doubles import Here

ME = current_holder("study")
ELSEWHERE = replace(ME, place="another machine", host="tuner2", pid=42, boot="first")


def seen(holder: object, *, boot: str = "first", renewed: float | None = 1000.0) -> ObservedLock:
    return ObservedLock(boot, 1000.0 + LEASE_SECONDS / 2, renewed, json.dumps(holder))


@pytest.mark.parametrize(
    ("lock", "why"),
    [
        (seen(asdict(ELSEWHERE)), None),
        (seen(asdict(ELSEWHERE), boot="second"), "booted after"),
        (seen(asdict(ELSEWHERE), renewed=999.0 - LEASE_SECONDS / 2), "not renewed for 180 s"),
        (seen(asdict(ELSEWHERE), renewed=None), "not renewed"),
        (seen(asdict(ME)), None),
        (seen(asdict(ME), boot="second", renewed=None), None),  # it lives: nothing else counts
        (seen(asdict(replace(ME, ticks=ME.ticks - 100))), "exited"),
        (seen(asdict(replace(ME, pid=2**22 + 1))), "exited"),
        # Another version's: with a field more, with one less, and one that cannot be read at all.
        (seen({**asdict(ELSEWHERE), "more": 1}), None),
        (seen({**asdict(ELSEWHERE), "more": 1}, boot="second"), "booted after"),
        (seen({**asdict(ME), "more": 1}), None),
        (seen({k: v for k, v in asdict(ELSEWHERE).items() if k != "study"}), None),
        (seen({k: v for k, v in asdict(ME).items() if k != "ticks"}), None),
        (seen({k: v for k, v in asdict(ME).items() if k != "ticks"}, renewed=0.0), "not renewed"),
        (seen({"pid": "?"}), None),
        (seen({"pid": "?"}, renewed=None), None),
        (seen({"pid": "?"}, renewed=999.0 - LEASE_SECONDS / 2), "not renewed for 180 s"),
        (seen([], renewed=2000.0), "not renewed"),  # the host's uptime began again
    ],
)
def test_a_stale_lock_is_recognised_by_what_is_known(lock: ObservedLock, why: str | None) -> None:
    found = find_stale_reason(lock, ME.place)
    assert (found is None) == (why is None)
    assert why is None or why in (found or "")


def test_an_account_without_a_name_holds_a_host_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    lock = HostLock(Here(tmp_path), "one")
    assert lock.lock() is None
    lock.unlock()
    assert host_lock.current_holder("one").holder == "account 54321"


def test_a_held_host_is_refused_with_who_holds_it(tmp_path: Path) -> None:
    here = Here(tmp_path)
    first, second = HostLock(here, "one"), HostLock(here, "two")
    assert first.lock() is None
    with pytest.raises(LockedError) as raised:
        second.lock()
    for word in (ME.holder, ME.host, f"process {ME.pid}", "study one"):
        assert word in raised.value.message
    since = re.search("since ([^ ]+)", raised.value.message)
    assert since is not None
    assert since[1] >= ME.since
    assert raised.value.exit_code == LOCKED_EXIT_CODE
    first.unlock()
    assert second.lock() is None
    second.unlock()
    assert list(tmp_path.iterdir()) == []


def test_two_entries_of_one_machine_are_named(tmp_path: Path) -> None:
    class Entry(Here):
        def __init__(self, name: str) -> None:
            super().__init__(tmp_path)
            self.name = name

    first = HostLock(Entry("web1"), "one")
    first.lock()
    with pytest.raises(
        LockedError, match="web2 and web1 of `hosts:` are the same machine"
    ) as raised:
        HostLock(Entry("web2"), "one").lock()
    assert "keep one of the entries" in str(raised.value.hint)
    first.unlock()


def test_a_lock_of_a_process_that_ended_is_taken_over(tmp_path: Path) -> None:
    here = Here(tmp_path)
    lock = HostLock(here, "killed")
    lock.lock()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        ticks = host_lock.read_start_ticks(process.pid)
        record = json.loads(lock.record) | {"pid": process.pid, "ticks": ticks}
        run_commands(here, [Command(("claim", lock.record, json.dumps(record)))])
        with pytest.raises(LockedError):
            HostLock(here, "next").lock()
        process.kill()
        process.wait()
        stale = HostLock(here, "next").lock()
    assert f"process {process.pid} exited" in (stale or "")


def test_a_step_of_the_wall_clock_takes_no_lock_from_a_living_tuner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Here(tmp_path)
    lock = HostLock(here, "living")
    lock.lock()
    started = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: started(self) + 90.0)
    with pytest.raises(LockedError):
        HostLock(here, "next").lock()
    lock.unlock()


def test_another_versions_lock_is_not_taken_over(tmp_path: Path) -> None:
    here = Here(tmp_path)
    lock = HostLock(here, "living")
    lock.lock()
    for other in (json.dumps({**json.loads(lock.record), "version": 2}), "no JSON"):
        run_commands(here, [Command(("claim", host_lock.read_lock(here).record, other))])
        with pytest.raises(LockedError):
            HostLock(here, "next").lock()
        assert host_lock.read_lock(here).record == other


class Waiting(Here):
    """A host that does not answer until ``until`` is set; whether that was within a minute."""

    until: threading.Event | None = None
    in_time = True

    def run(self, *argv: Any, **how: Any) -> CommandResult:
        if self.until:
            self.in_time = self.until.wait(60.0)
        return super().run(*argv, **how)


class Telling(Here):
    """A host that tells that it was asked."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self.asked = threading.Event()

    def run(self, *argv: Any, **how: Any) -> CommandResult:
        self.asked.set()
        return super().run(*argv, **how)


def test_a_host_that_does_not_answer_costs_no_other_its_lease(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    silent, other = Waiting(tmp_path / "a"), Telling(tmp_path / "b")
    locks = [HostLock(host, "study") for host in (silent, other)]
    for lock in locks:
        lock.lock()
    other.asked.clear()
    silent.until = other.asked
    renew_locks(locks)
    assert other.asked.is_set()
    assert silent.in_time
    for lock in locks:
        lock.unlock()


def test_each_holding_has_a_token_of_its_own(tmp_path: Path) -> None:
    here = Here(tmp_path)
    lock = HostLock(here, "study")
    lock.lock()
    late = lock.assert_command  # of an exchange that is still on its way when the lock is released
    lock.unlock()
    lock.lock()
    assert not run_commands(here, [late], exclusive=True)[0].ok
    assert run_commands(here, [lock.assert_command], exclusive=True)[0].ok
    lock.unlock()


@pytest.mark.parametrize("late", ["fence", "unlock", "claim"])
def test_what_arrives_after_the_lock_was_released_leaves_nothing(tmp_path: Path, late: str) -> None:
    here = Here(tmp_path)
    lock = HostLock(here, "study")
    lock.lock()
    commands = {
        "fence": lock.assert_command,
        "unlock": Command(("unlock", lock.record)),
        "claim": Command(("claim", lock.record, "another")),
    }
    lock.unlock()
    (done,) = run_commands(here, [commands[late]], exclusive=late == "fence")
    assert done.ok == (late == "unlock")
    assert not (tmp_path / "autotune").exists()


def test_a_lease_that_a_power_cut_left_empty_keeps_nobody_from_the_host(tmp_path: Path) -> None:
    here = Here(tmp_path)
    lock = HostLock(here, "killed")
    lock.lock()
    ended = json.dumps({**json.loads(lock.record), "pid": 2**22 + 1})
    run_commands(here, [Command(("claim", lock.record, ended))])
    (tmp_path / "autotune" / "lease").write_text("")
    assert host_lock.read_lock(here).record == ended
    after = HostLock(here, "next")
    assert "exited" in (after.lock() or "")
    after.unlock()


def test_a_record_contains_its_holder(tmp_path: Path) -> None:
    lock = HostLock(Here(tmp_path), "living")
    lock.lock()
    holder = host_lock.read_lock(Here(tmp_path)).holder
    assert holder is not None
    assert asdict(holder) == json.loads(lock.record)
    assert holder == replace(
        current_holder("living"), since=holder.since, boot=holder.boot, token=holder.token,
        entry=holder.entry,
    )  # fmt: skip
    assert (holder.boot, holder.entry, holder.ticks) == (lock.boot_id, lock.name, ME.ticks)
    lock.unlock()


def test_another_account_cannot_hold_up_what_is_done_on_a_host(tmp_path: Path) -> None:
    here = Here(tmp_path)
    lock = HostLock(here, "study")
    lock.lock()
    # `tmp_path` stands for /var/lib, which every account can open and so lock.
    (tmp_path / "autotune").chmod(0o755)  # as the labs of the same machine have it
    assert (tmp_path / "autotune" / "mutex").stat().st_mode & 0o777 == 0o600
    with subprocess.Popen(["flock", str(tmp_path), "sh", "-c", "echo held; read line"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:  # fmt: skip
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        assert run_commands(here, [lock.assert_command], exclusive=True, timeout=60.0)[0].ok
        lock.unlock()
        other.communicate(b"\n")
    assert list(tmp_path.iterdir()) == []


def test_commands_that_wait_too_long_for_others_name_the_reason(tmp_path: Path) -> None:
    class Impatient(Here):
        def rewritten(self, script: bytes) -> bytes:
            return super().rewritten(script.replace(b"flock -w 100", b"flock -w 0.1"))

    mutex = tmp_path / "autotune" / "mutex"
    mutex.parent.mkdir()
    with subprocess.Popen(["flock", str(mutex), "sh", "-c", "echo held; read line"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:  # fmt: skip
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(AutotuneError, match="other commands have been changing this host"):
            run_commands(Impatient(tmp_path), [Command(("true",))], exclusive=True)
        other.communicate(b"\n")


def test_the_mutex_outlives_the_removal_of_its_directory(tmp_path: Path) -> None:
    here = Here(tmp_path)
    home = tmp_path / "autotune"
    home.mkdir()
    mutex = home / "mutex"
    with subprocess.Popen(["flock", str(mutex), "sh", "-c", "echo held; read line"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:  # fmt: skip
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        until_told = Command(("sh", "-c", f"until [ -e {tmp_path}/go ]; do sleep 0.02; done"))
        waiting = threading.Thread(
            target=run_commands, args=(here, [until_told]), kwargs={"exclusive": True}
        )
        waiting.start()
        time.sleep(0.3)
        mutex.unlink()
        home.rmdir()
        other.communicate(b"\n")
    deadline = time.monotonic() + 60
    while (
        not mutex.exists()
        or run_commands(here, [Command(("flock", "-n", str(mutex), "true"))])[0].ok
    ):
        assert waiting.is_alive()
        assert time.monotonic() < deadline
    (tmp_path / "go").touch()
    waiting.join()


@pytest.mark.parametrize(("times", "locked"), [(1, True), (9, False)])
def test_a_directory_that_others_remove_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int, locked: bool
) -> None:
    """As by a tuner that leaves the host at that very moment."""
    (tmp_path / "bin").mkdir()
    removed = tmp_path / "removed"
    mkdir = tmp_path / "bin" / "mkdir"
    mkdir.write_text(
        f'#!/bin/sh\n/bin/mkdir "$@"\necho >>{removed}\n'
        f'[ "$(wc -l <{removed})" -gt {times} ] || rmdir {tmp_path}/autotune\n'
    )
    mkdir.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    (claimed,) = run_commands(Here(tmp_path), [Command(("claim", "", "mine"))])
    assert claimed.ok == locked, claimed.stderr


def test_of_two_that_are_after_the_same_stale_lock_one_gets_it(tmp_path: Path) -> None:
    here = Here(tmp_path)
    (first,) = run_commands(here, [Command(("claim", "", "stale"))])
    (second,) = run_commands(here, [Command(("claim", "stale", "mine"))])
    (third,) = run_commands(here, [Command(("claim", "stale", "yours"))])
    assert [first.returncode, second.returncode, third.returncode] == [0, 0, 3]
    assert third.stdout == "mine"


def test_nothing_is_done_on_a_host_that_was_taken_over(tmp_path: Path) -> None:
    here = Here(tmp_path)
    lock = HostLock(here, "study")
    lock.lock()
    lock.renew()
    run_commands(here, [Command(("claim", lock.record, "somebody else"))])
    touch = Command(("touch", str(tmp_path / "changed")))
    assert not run_commands(here, [lock.assert_command, touch])[0].ok
    assert not (tmp_path / "changed").exists()
    with pytest.raises(LockedError, match="no longer holds"):
        lock.renew()
    lock.unlock()
    assert host_lock.read_lock(here).record == "somebody else"


def test_a_process_that_proc_hides_keeps_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/proc may be mounted with `hidepid`, which hides the processes of other accounts."""
    here = Here(tmp_path)
    HostLock(here, "hidden").lock()
    monkeypatch.setattr(host_lock, "read_start_ticks", lambda pid: None)
    with pytest.raises(LockedError):
        HostLock(here, "next").lock()
