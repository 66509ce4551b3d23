"""An account that owns an application's directory and replaces names in it until it is stopped.

`python adversary.py UID SEED TOP OUTSIDE`: ``TOP/app/config/puma.rb`` is the file that is tuned. It
acts only with the permissions of its account. Refused operations are tried again later.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


class Adversary:
    def __init__(self, top: Path, outside: Path, chance: random.Random) -> None:
        self.app, self.outside, self.chance = top / "app", outside, chance
        self.directory = self.app / "config"
        self.conf = self.directory / "puma.rb"
        self.staged = self.directory / ".puma.rb.autotune-new"
        self.acts: tuple[Callable[[], None], ...] = (
            self.link, self.hard_link, self.fifo, self.replace, self.swap, self.link_directory,
            self.link_staged, self.move_app, self.write, self.make_directory,
        )  # fmt: skip

    def act(self) -> None:
        with suppress(OSError):
            self.chance.choice(self.acts)()
        time.sleep(self.chance.uniform(0, 0.004))
        if self.chance.random() < 0.7:
            self.repair()
            # Some deployments succeed, so that the time after them is attacked as well.
            time.sleep(self.chance.choice([0.0, 0.002, 0.02, 0.2, 1.0]))

    def link(self) -> None:
        self._over(lambda new: new.symlink_to(self.outside / "secret"))

    def hard_link(self) -> None:
        secret = self.chance.choice([self.outside / "secret", self.app / "of-root"])
        self._over(lambda new: os.link(secret, new))

    def fifo(self) -> None:
        self._over(os.mkfifo)

    def write(self) -> None:
        self._over(lambda new: new.write_bytes(b"theirs\n"))

    def replace(self) -> None:
        """Replace the file by a file of root in the account's directory."""
        aside = self.app / "aside"
        self.conf.rename(aside)
        (self.app / "of-root").rename(self.conf)
        time.sleep(self.chance.uniform(0, 0.004))
        self.conf.rename(self.app / "of-root")
        aside.rename(self.conf)

    def make_directory(self) -> None:
        self.conf.unlink()
        self.conf.mkdir()

    def swap(self) -> None:
        self.directory.rename(self.app / "gone")
        self.directory.mkdir()
        self.conf.write_bytes(b"theirs\n")

    def link_directory(self) -> None:
        self.directory.rename(self.app / "gone")
        self.directory.symlink_to(self.outside)

    def link_staged(self) -> None:
        self.staged.symlink_to(self.outside / "secret")

    def move_app(self) -> None:
        """Replace the file's directory by a directory of root in the account's directory."""
        self.directory.rename(self.app / "gone")
        (self.app / "roots").rename(self.directory)
        time.sleep(self.chance.uniform(0, 0.004))
        self.directory.rename(self.app / "roots")
        (self.app / "gone").rename(self.directory)

    def _over(self, make: Callable[[Path], object]) -> None:
        new = self.directory / "new"
        with suppress(OSError):
            new.unlink()
        make(new)
        new.rename(self.conf)

    def repair(self) -> None:
        """Restore the file and its directory to the state that a deployment expects."""
        with suppress(OSError):
            gone, roots = self.app / "gone", self.app / "roots"
            if self.directory.is_symlink():
                self.directory.unlink()
            for moved in (self.directory, gone):
                if (moved / ".of-root").exists():
                    moved.rename(roots)
            if gone.is_dir():
                shutil.rmtree(self.directory, ignore_errors=True)
                gone.rename(self.directory)
            self.directory.mkdir(exist_ok=True)
            self.staged.unlink(missing_ok=True)
            if self.conf.is_dir() and not self.conf.is_symlink():
                shutil.rmtree(self.conf)
            if self.conf.is_file() and not self.conf.is_symlink() and self.conf.stat().st_uid == 0:
                self.conf.rename(self.app / "of-root")
            if not self.conf.is_file() or self.conf.is_symlink():
                self._over(lambda new: new.write_bytes(b"original\n"))


def main(uid: int, seed: int, top: Path, outside: Path) -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    os.umask(0o022)
    adversary = Adversary(top, outside, random.Random(seed))
    print("ready", flush=True)
    parent = os.getppid()
    while os.getppid() == parent:
        adversary.act()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]))
