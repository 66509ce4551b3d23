"""Directories that another account can change: nothing outside of them is read or changed."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from autotune.deploy.backup import BackupStore
from autotune.deploy.desired_state import plan_host
from autotune.deploy.host import ManagedHost
from autotune.deploy.host_state import FileState, HostState
from autotune.errors import AutotuneError
from autotune.transports.base import Argv, CommandResult
from tests.deploy.doubles import (
    LONG_ACCESS_LIST,
    LONG_ACCESS_TEXT,
    Here,
    restore_host,
    set_access_list,
)

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
SECRET = b"a secret that only root can read\n"
OURS, ORIGINAL = b"tuned\n", b"original\n"
ACCOUNT = 65534
# Owner and mode of a directory that one account can exchange for another's, and the refusal.
SWAPPABLE = [
    (0, 0o755, "belongs to account 0, and a directory above it to account 65534"),
    (1, 0o755, "belongs to account 1, and a directory above it to account 65534"),
    (ACCOUNT, 0o777, "more than one account can write to"),
]
Attack = Callable[["Scene"], None]


class Attacked(Here):
    """Another account acts ahead of a step of an exchange: ``before`` is step → shell words.

    ``inside`` are the words that run a program on the host.
    """

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self.name = "here"
        self.before: dict[str, str] = {}
        self.inside: tuple[str, ...] = ()

    def run(self, argv: Argv, **options: Any) -> CommandResult:
        return super().run((*self.inside, *argv), **options)

    def rewritten(self, script: bytes) -> bytes:
        script = super().rewritten(script)
        # Whatever is kept aside is kept in the same second.
        script = script.replace(b"$(date -u +%Y%m%dT%H%M%SZ)", b"20260101T000000Z")
        for step, attack in self.before.items():
            at = f"    step {step} ".encode()
            script = script.replace(at, f"    {{ {attack}; }} >/dev/null 2>&1\n".encode() + at, 1)
        return script


@dataclass
class Scene:
    """``top`` belongs to root; ``app`` below it and all that is in it to another account."""

    top: Path
    app: Path
    conf: Path
    outside: Path
    here: Attacked
    host: ManagedHost

    def desired(self, content: bytes = OURS) -> HostState:
        return HostState({str(self.conf): FileState(content)})

    def deploy(self, content: bytes = OURS) -> None:
        desired = self.desired(content)
        self.host.back_up(desired)
        plan = plan_host(desired, self.host.observe(desired), {})
        self.host.stage(desired, plan)
        self.host.apply(desired, plan)
        if wrong := [path for path, file in self.host.observe(desired).files.items()
                     if not file.matches(desired.files[path])]:  # fmt: skip
            raise AutotuneError(f"{wrong} is not as deployed")

    def intact(self) -> None:
        """Nothing outside was changed, and no secret is where the account can read it."""
        secret = self.outside / "secret"
        assert secret.read_bytes() == SECRET
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
        assert secret.stat().st_uid == os.geteuid()
        assert sorted(path.name for path in self.outside.iterdir()) == ["puma.rb", "secret"]
        assert (self.outside / "puma.rb").read_bytes() == SECRET
        for path in self.app.parent.rglob("*"):
            if path.is_file() and not path.is_symlink() and path.stat().st_mode & 0o044:
                assert SECRET not in path.read_bytes(), path


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    top, outside = tmp_path / "srv", tmp_path / "outside"
    app = top / "app"
    app.mkdir(parents=True)
    outside.mkdir(mode=0o700)
    for name in ("secret", "puma.rb"):
        (outside / name).write_bytes(SECRET)
        (outside / name).chmod(0o600)
    (app / "config").mkdir()
    conf = app / "config" / "puma.rb"
    conf.write_bytes(ORIGINAL)
    conf.chmod(0o644)
    conf.parent.chmod(0o777)  # exposed, also where tests do not run as root
    if os.geteuid() == 0:
        conf.parent.chmod(0o755)
        for path in (app, conf.parent, conf):
            os.chown(path, ACCOUNT, ACCOUNT)
    here = Attacked(tmp_path)
    host = ManagedHost("here", here, BackupStore(tmp_path / "study"), "study")
    host.lock.lock()
    yield Scene(top, app, conf, outside, here, host)
    host.lock.unlock()


def test_a_file_in_an_exposed_directory_is_deployed_and_restored(scene: Scene) -> None:
    before = scene.conf.stat()
    scene.deploy()
    assert scene.conf.read_bytes() == OURS
    now = scene.conf.stat()
    assert (now.st_mode, now.st_uid, now.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert not list(scene.top.rglob("*autotune*"))
    scene.deploy(b"better\n")
    restore_host(scene.host)
    assert scene.conf.read_bytes() == ORIGINAL
    assert scene.conf.stat().st_mtime_ns == before.st_mtime_ns
    assert [path for path in scene.top.rglob("*") if path.is_file()] == [scene.conf]
    assert not list(scene.top.rglob("*autotune*"))


def test_a_long_access_list_in_an_exposed_directory_is_recorded_completely(scene: Scene) -> None:
    set_access_list(scene.conf, LONG_ACCESS_LIST)
    scene.deploy()
    assert scene.host.original_state.files[str(scene.conf)].acl == LONG_ACCESS_TEXT


# What the account may do at any moment: `$c` is the file, `$d` its directory, `$o` a directory of root.
ATTACKS = {
    "link at the real name": 'ln -sfn "$o/secret" "$c"',
    "link at the staged name": 'ln -sfn "$o/secret" "$d/.puma.rb.autotune-new"',
    "hard link to a file of root": 'ln -f "$o/secret" "$c"',
    "hard link at the staged name": 'ln -f "$o/secret" "$d/.puma.rb.autotune-new"',
    "FIFO": 'rm -f "$c"; mkfifo "$c"',
    "FIFO at the staged name": 'mkfifo "$d/.puma.rb.autotune-new"',
    "directory": 'rm -f "$c"; mkdir "$c"',
    "another file": 'echo theirs >"$d/new"; mv -f "$d/new" "$c"',
    "directory of root": 'mv "$d" "$d.gone"; ln -s "$o" "$d"',
    "directory that is moved": 'mv "$d" "$d.gone"; mkdir "$d"; echo theirs >"$c"',
    "directory that becomes a loop": 'mv "$d" "$d.gone"; ln -s "$d" "$d"',
    "parent": 'mv "$d/.." "$d/../../app2"; mkdir -p "$d"; ln -s "$o/puma.rb" "$c"',
    "nothing": 'rm -f "$c"',
    "large file": 'truncate -s 20M "$c"',
}
STEPS = ("look", "contents", "stage", "swap", "unstage")


# A third of them in `make test`, each attack among them.
CASES = [
    pytest.param(
        attack, step, marks=[pytest.mark.soak, pytest.mark.long] if (first + second) % 3 else []
    )
    for first, attack in enumerate(ATTACKS)
    for second, step in enumerate(STEPS)
]


@pytest.mark.parametrize(("attack", "step"), CASES)
def test_an_attack_at_any_step_changes_nothing_outside(
    scene: Scene, attack: str, step: str
) -> None:
    names = f"c={scene.conf} d={scene.conf.parent} o={scene.outside}"
    scene.here.before = {step: f"{names}; {ATTACKS[attack]}"}
    for work in (scene.deploy, lambda: restore_host(scene.host)):
        with suppress(AutotuneError):
            work()
        scene.intact()


@AS_ROOT
@pytest.mark.parametrize(
    ("owner", "mode", "reason"),
    SWAPPABLE,
)
def test_a_directory_that_one_account_can_swap_for_another_s_is_refused(
    scene: Scene, owner: int, mode: int, reason: str
) -> None:
    os.chown(scene.conf.parent, owner, owner)
    scene.conf.parent.chmod(mode)
    with pytest.raises(AutotuneError, match=reason) as raised:
        scene.deploy()
    assert "let root own" in str(raised.value)
    assert scene.conf.read_bytes() == ORIGINAL
    assert not scene.host.is_changed


def require_mounts() -> None:
    """Skip the test if this account cannot mount file systems that a single program sees."""
    if subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        pytest.skip("this account cannot mount file systems")


# Covers a directory by a copy of it on a file system of its own, for a single program.
ON_ITS_OWN = """
mount -t tmpfs tmpfs "$2"
cp -a -- "$1/." "$2"
mount --bind "$2" "$1"
shift 2
exec "$@"
"""


@AS_ROOT
@pytest.mark.parametrize("depth", [0, 1])
def test_a_directory_on_its_own_file_system_is_refused_before_anything_is_changed(
    scene: Scene, tmp_path: Path, depth: int
) -> None:
    """A new file could not be renamed into it."""
    require_mounts()
    mounted = (scene.app, scene.conf.parent)[depth]
    (tmp_path / "copy").mkdir()
    words = ("unshare", "--mount", "sh", "-ec", ON_ITS_OWN, "sh", mounted, tmp_path / "copy")
    scene.here.inside = tuple(map(str, words))
    with pytest.raises(
        AutotuneError, match="is on a file system without a directory that only root"
    ):
        scene.deploy()
    assert scene.conf.read_bytes() == ORIGINAL
    assert not scene.host.is_changed


# Stands for a `stat` on a host whose /mnt, or whose root directory, is on a FUSE file system.
STAT = """#!/bin/sh
[ "$1" = -f ] || exec REAL "$@"
format=$3
shift 4
for path; do
    case $path in SERVED*) type=fuseblk ;; *) type=tmpfs ;; esac
    case $format in %T) echo "$type" ;; *) printf '%s\\t%s\\n' "$type" "$path" ;; esac
done
"""


@AS_ROOT
@pytest.mark.parametrize(
    ("conf", "served", "reason"),
    [
        ("/mnt/puma.rb", "/mnt", "is on a file system without a directory that only root"),
        ("/mnt/config/puma.rb", "/mnt", "/mnt is on a FUSE file system"),
        ("/mnt/config/puma.rb", "/", None),
        ("/mnt/config/puma.rb", "/nowhere", None),
    ],
)
def test_directories_on_a_fuse_file_system_are_not_trusted(
    scene: Scene, tmp_path: Path, conf: str, served: str, reason: str | None
) -> None:
    """Its server can show any owner. Without FUSE, only root can write to these directories."""
    require_mounts()
    stat_program = tmp_path / "programs" / "stat"
    stat_program.parent.mkdir()
    real = str(shutil.which("stat"))
    stat_program.write_text(STAT.replace("REAL", real).replace("SERVED", served))
    stat_program.chmod(0o755)
    make = f"mount -t tmpfs -o mode=755 tmpfs /mnt; mkdir -p {Path(conf).parent}; echo a >{conf}"
    path = f"PATH={stat_program.parent}:{os.environ['PATH']}"
    scene.here.inside = ("unshare", "--mount", "env", path, "sh", "-ec", f'{make}; exec "$@"', "sh")
    desired = HostState({conf: FileState(OURS)})
    if reason is None:
        scene.host.back_up(desired)
        assert scene.host.original_state.files[conf].content == b"a\n"
        return
    with pytest.raises(AutotuneError, match=reason):
        scene.host.back_up(desired)
    assert not scene.host.is_changed


# What the account may have there at the start, and the refusal.
REFUSED = {
    "hard link": ('ln "$c" "$d/other"', "is one of several hard links to a file"),
    "set-user-ID": ('chmod 4755 "$c"', "has mode 4755, and other accounts can replace it"),
    "large file": ('truncate -s 16777217 "$c"', "is larger than 16777216 bytes"),
    "FIFO": ('rm "$c"; mkfifo "$c"', "is neither a file nor a link"),
}


def identify(path: Path) -> tuple[int, ...]:
    now = path.lstat()
    return now.st_ino, now.st_mode, now.st_size, now.st_mtime_ns


@pytest.mark.parametrize(("place", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_replaced_safely_is_refused_before_anything_is_changed(
    scene: Scene, place: str, reason: str
) -> None:
    names = f"c={scene.conf} d={scene.conf.parent}"
    subprocess.run(["sh", "-ec", f"{names}; {place}"], check=True)
    before = identify(scene.conf)
    with pytest.raises(AutotuneError, match=reason):
        scene.deploy()
    assert identify(scene.conf) == before
    assert not scene.host.is_changed


def test_a_host_without_perl_and_python_is_refused_before_anything_is_changed(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for place in reversed(os.environ["PATH"].split(os.pathsep)):
        for program in Path(place).iterdir():
            if not program.name.startswith(("perl", "python")):
                (programs / program.name).unlink(missing_ok=True)
                (programs / program.name).symlink_to(program)
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(AutotuneError, match="needs perl or python3 on the host"):
        scene.deploy()
    assert scene.conf.read_bytes() == ORIGINAL
    assert not scene.host.is_changed


def test_a_link_in_an_exposed_directory_is_refused_before_anything_is_changed(scene: Scene) -> None:
    scene.conf.unlink()
    scene.conf.symlink_to(scene.outside / "secret")
    with pytest.raises(AutotuneError, match="is a link in a directory to which other accounts"):
        scene.deploy()
    assert not scene.host.is_changed
    scene.intact()


@pytest.mark.parametrize("planted", ["link", "directory that others can write to"])
def test_a_planted_home_is_refused(tmp_path: Path, planted: str) -> None:
    home = tmp_path / "autotune"
    (tmp_path / "elsewhere").mkdir()
    if planted == "link":
        home.symlink_to(tmp_path / "elsewhere")
    else:
        home.mkdir()
        home.chmod(0o777)
    host = ManagedHost("here", Attacked(tmp_path), BackupStore(tmp_path / "study"), "study")
    with pytest.raises(AutotuneError, match="cannot be locked"):
        host.lock.lock()
    assert list((tmp_path / "elsewhere").iterdir()) == []


@AS_ROOT
def test_secrets_are_not_given_to_a_file_that_the_account_put_in_place(scene: Scene) -> None:
    os.chown(scene.conf, 0, 0)
    scene.conf.chmod(0o600)
    theirs = f"rm -f {scene.conf}; echo theirs >{scene.conf}; chown {ACCOUNT} {scene.conf}"
    scene.here.before = {"stage": theirs}
    scene.deploy(b"password\n")
    now = scene.conf.stat()
    assert (now.st_uid, stat.S_IMODE(now.st_mode)) == (0, 0o600)


def test_what_is_kept_aside_in_the_same_second_is_not_written_through_a_link(scene: Scene) -> None:
    scene.deploy()
    for number, theirs in enumerate(("link", "file", "link")):
        scene.conf.unlink()
        if theirs == "link":
            scene.conf.symlink_to(scene.outside / "secret")
        else:
            scene.conf.write_bytes(b"theirs\n")
        scene.deploy(f"better {number}\n".encode())
        scene.intact()
    kept = sorted((scene.here.place / "autotune" / "overwritten").rglob("puma.rb*"))
    assert [path.is_symlink() for path in kept] == [True, False, True]
    assert len(scene.host.notes) == 3
