"""One host, looked at and asked: this machine, with nothing on it changed."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from autotune.deploy.backup import BackupStore
from autotune.deploy.host import (
    ManagedHost,
    build_staged_check,
    compute_action_timeout,
    read_contents,
    staged_path,
)
from autotune.deploy.host_commands import Command, CommandFailed
from autotune.deploy.host_state import FileState, HostPlan, HostState
from autotune.errors import AutotuneError
from autotune.services.base import Action, TrialStart
from autotune.transports.base import CommandResult
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


def test_files_that_are_absent_have_no_content(here: Here, tmp_path: Path) -> None:
    names = ("gone", "some", "b", "c", "d")
    (tmp_path / "some").write_bytes(b"\xff\n\n")
    contents = read_contents(here, [str(tmp_path / name) for name in names])
    assert [*contents.values()] == [b"", b"\xff\n\n", b"", b"", b""]


@pytest.mark.parametrize("printed", ["A", "\u00e9", "eA==\neA==", "eA"])
def test_contents_that_a_host_garbles_are_an_error_of_that_host(
    here: Here, printed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "autotune.deploy.host.run_required",
        lambda *_, **__: [CommandResult(("contents", "/a"), 0, printed, "")],
    )
    with pytest.raises(AutotuneError, match=r"unexpected output from the host .* \(not shown\)"):
        read_contents(here, ["/a"])


def test_the_limit_of_a_change_has_the_time_that_its_units_take_to_stop() -> None:
    plan = HostPlan(units_to_stop=("web.service",), unit_actions={"db.service": Action.RESTART})
    usual = compute_action_timeout(HostState(), plan, {})
    stopping = {"db.service": 900.0, "web.service": 90.0, "other.service": 3600.0}
    assert compute_action_timeout(HostState(), plan, stopping) - usual == 900.0 - 90.0


def test_only_processes_that_survive_a_reload_need_no_replacement(host: ManagedHost) -> None:
    units = ("caddy.service", "nginx.service")
    desired = HostState(in_process_reloads=frozenset(units[:1]))
    plan = HostPlan(unit_actions=dict.fromkeys(units, Action.RELOAD))
    steps = [words for words in host._list_steps(desired, plan) if words[0] == "reload"]
    assert steps == [("reload", "caddy.service", "rereading"), ("reload", "nginx.service")]


CONF, SITE = "/etc/nginx/nginx.conf", "/etc/nginx/sites-available/default"
NEW_CONF = "/etc/nginx/.nginx.conf.autotune-new"
NEW_SITE = "/etc/nginx/sites-available/.default.autotune-new"
ASK = ("nginx", "-c", CONF, "-t")
LIMIT = ("timeout", "10")


@pytest.mark.parametrize(
    ("files", "how", "words"),
    [
        ((CONF,), ASK, ("nginx", "-c", NEW_CONF, "-t")),
        ((SITE,), ASK, ("with_files", "1", NEW_SITE, SITE, *ASK)),
        ((CONF, SITE), ASK, ("with_files", "2", NEW_CONF, CONF, NEW_SITE, SITE, *ASK)),
        ((CONF,), TrialStart(("x", CONF), "s"), ("trial", "/run/x", "s", *LIMIT, "x", NEW_CONF)),
    ],
)
def test_software_is_asked_about_new_files_by_their_paths_or_over_the_real_ones(
    files: tuple[str, ...], how: tuple[str, ...] | TrialStart, words: tuple[str, ...]
) -> None:
    assert build_staged_check(how, "/run/x", {path: staged_path(path) for path in files}) == words


def test_a_file_that_is_staged_apart_is_mounted_for_its_software_alone() -> None:
    apart = "/srv/.autotune/app/conf"
    words = build_staged_check(("check", "/srv/app/conf"), "/run/x", {"/srv/app/conf": apart})
    assert words == ("with_files", "1", apart, "/srv/app/conf", "check", "/srv/app/conf")
    words = build_staged_check(TrialStart(("x",), "s"), "/run/x", {"/srv/app/conf": apart})
    mounted = ("with_files", "1", apart, "/srv/app/conf")
    assert words == ("trial", "/run/x", "s", *mounted, *LIMIT, "x")
