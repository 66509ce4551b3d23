"""The exported script in a directory of another account, which acts at any step of it."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.deploy.test_exposed import ACCOUNT, ATTACKS, SECRET, SWAPPABLE
from tests.export.exposed import Runner, of_file

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
ORIGINAL, NEW = "first\noriginal\n", "first\ntuned\n"
STEPS = ("examine() {", "read_old() {", "stage_file() {", "keep_file() {", "copy_of() (", "swap_file() {",
         "verify_file() {")  # fmt: skip
RESTORING = ("check_place() {", "restore_file() {", "reinstate() (", "is_as_kept() {")


@dataclass
class Scene:
    """``app`` and everything below it belong to an account; ``outside`` belongs to root."""

    runner: Runner
    app: Path
    conf: Path
    outside: Path

    def attacked(self, text: str, step: str, attack: str) -> str:
        names = f"c={self.conf} d={self.conf.parent} o={self.outside}"
        assert text.count(f"\n{step}") == 1, step
        return text.replace(
            f"\n{step}", f"\n{step}\n  {{ {names}; {ATTACKS[attack]}; }} >/dev/null 2>&1\n", 1
        )

    def intact(self) -> None:
        secret = self.outside / "secret"
        for path in (secret, self.outside / "puma.rb"):
            assert path.read_bytes() == SECRET
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert path.stat().st_uid == 0
        assert sorted(path.name for path in self.outside.iterdir()) == ["puma.rb", "secret"]
        for path in self.app.parent.rglob("*"):
            with suppress(OSError):
                if stat.S_ISREG(path.lstat().st_mode) and path.stat().st_mode & 0o044:
                    assert SECRET not in path.read_bytes(), path


@pytest.fixture
def scene() -> Iterator[Scene]:
    # Other accounts can pass through this directory, unlike through pytest's own.
    with tempfile.TemporaryDirectory(prefix="autotune-export-") as name:
        place = Path(name)
        place.chmod(0o755)
        app, outside = place / "srv" / "app", place / "outside"
        conf = app / "config" / "puma.rb"
        conf.parent.mkdir(parents=True)
        outside.mkdir(mode=0o700)
        for secret in (outside / "secret", outside / "puma.rb"):
            secret.write_bytes(SECRET)
            secret.chmod(0o600)
        conf.write_text(ORIGINAL)
        for path in (app, conf.parent, conf):
            os.chown(path, ACCOUNT, ACCOUNT)
        yield Scene(Runner(place), app, conf, outside)


@pytest.mark.parametrize("old", [None, ORIGINAL])
def test_a_file_there_is_written_and_restored(scene: Scene, old: str | None) -> None:
    before = scene.conf.stat()
    text = of_file(str(scene.conf), NEW, old)
    done = scene.runner.run(text)
    assert done.returncode == 0, done.stderr
    now = scene.conf.stat()
    assert scene.conf.read_text() == NEW
    assert (now.st_mode, now.st_uid, now.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert not list(scene.app.parent.rglob("*autotune*"))
    assert scene.runner.run(text).stdout == "nothing to change\n"
    restored = scene.runner.run(text, "--restore", scene.runner.newest())
    assert restored.returncode == 0, restored.stderr
    assert scene.conf.read_text() == ORIGINAL
    assert scene.conf.stat().st_mtime_ns == before.st_mtime_ns
    assert [path for path in scene.app.parent.rglob("*") if path.is_file()] == [scene.conf]


@pytest.mark.parametrize(
    ("account", "mode", "why"),
    SWAPPABLE,
)
def test_a_place_without_a_safe_way_is_refused(
    scene: Scene, account: int, mode: int, why: str
) -> None:
    os.chown(scene.conf.parent, account, account)
    scene.conf.parent.chmod(mode)
    for options in ((), ("--check",), ("--force",)):
        done = scene.runner.run(of_file(str(scene.conf), NEW), *options)
        assert done.returncode == 1
        assert why in done.stderr
        assert "let root own" in done.stderr
    assert scene.conf.read_text() == ORIGINAL
    assert not scene.runner.newest()


def cases(steps: tuple[str, ...]) -> list[object]:
    """A sixth of them in `make test`, each attack among them."""
    return [
        pytest.param(
            attack, step, marks=[pytest.mark.soak, pytest.mark.long] if (a + s) % 6 else []
        )
        for a, attack in enumerate(ATTACKS)
        for s, step in enumerate(steps)
    ]


@pytest.mark.parametrize(("attack", "step"), cases(STEPS))
def test_an_attack_at_any_step_changes_nothing_outside(
    scene: Scene, attack: str, step: str
) -> None:
    text = of_file(str(scene.conf), NEW, ORIGINAL)
    done = scene.runner.run(scene.attacked(text, step, attack))
    scene.intact()
    if done.returncode == 0:
        assert scene.conf.read_text() == NEW
        assert not scene.conf.is_symlink()
    else:
        assert done.stderr.strip()


@pytest.mark.parametrize(("attack", "step"), cases(RESTORING))
def test_an_attack_at_any_step_of_restoring_changes_nothing_outside(
    scene: Scene, attack: str, step: str
) -> None:
    text = of_file(str(scene.conf), NEW, ORIGINAL)
    assert scene.runner.run(text).returncode == 0
    backup = scene.runner.newest()
    done = scene.runner.run(scene.attacked(text, step, attack), "--restore", backup)
    scene.intact()
    if done.returncode == 0:
        assert scene.conf.read_text() == ORIGINAL
        assert not scene.conf.is_symlink()
    else:
        assert "restored: " not in done.stdout or "NOT restored" in done.stderr
        assert done.stderr.strip()
