"""The exported script in directories that other accounts can change: refused before anything happens."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.export.test_script import AFTER, Machine, made, of_host

OTHER = 65_534  # an account without files of its own


def shared_directory(machine: Machine) -> None:
    machine.conf.parent.chmod(0o775)


def shared_above(machine: Machine) -> None:
    machine.conf.parent.parent.chmod(0o757)


def foreign_directory(machine: Machine) -> None:
    os.chown(machine.conf.parent, OTHER, OTHER)


def link(machine: Machine) -> None:
    precious = machine.top / "precious"
    precious.write_text("workers 1;\n")
    machine.conf.unlink()
    machine.conf.symlink_to(precious)


def linked_through_shared(machine: Machine) -> None:
    """A link in a safe directory that leads, through another link, to a safe one."""
    shared, real = machine.top / "shared", machine.conf.parent.with_name("real")
    machine.conf.parent.rename(real)
    shared.mkdir()
    (shared / "hop").symlink_to(real)
    shared.chmod(0o777)
    machine.conf.parent.symlink_to(shared / "hop")


def fifo(machine: Machine) -> None:
    machine.conf.unlink()
    os.mkfifo(machine.conf)


def hard_link(machine: Machine) -> None:
    (machine.top / "other-name").hardlink_to(machine.conf)


def circle(machine: Machine) -> None:
    machine.conf.parent.rename(machine.conf.parent.with_name("real"))
    machine.conf.parent.symlink_to("nginx")


def backups(machine: Machine) -> None:
    place = machine.top / "root/var/backups"
    place.mkdir(parents=True)
    place.chmod(0o777)


def kernel_directory(machine: Machine) -> None:
    machine.kernel_file.parent.chmod(0o777)


# What is refused, why, and what to do.
REFUSED: tuple[tuple[Callable[[Machine], None], str, str], ...] = (
    (shared_above, "more than one account can write to", "let root own"),
    (link, "it is a symbolic link", "autotune apply"),
    (linked_through_shared, "other accounts can write to", "let root own"),
    (fifo, "is neither a file nor a directory", "autotune apply"),
    (hard_link, "it has several names", "autotune apply"),
    (circle, "is a symbolic link that does not lead to a directory", "correct the link"),
    (backups, "accounts other than root can write to", "let root own"),
)


@pytest.mark.parametrize(("place", "why", "what"), REFUSED, ids=[p.__name__ for p, *_ in REFUSED])
def test_a_path_without_a_safe_way_is_refused(
    place: Callable[[Machine], None], why: str, what: str, tmp_path: Path
) -> None:
    machine = made(tmp_path)
    place(machine)
    before = machine.state() if place is not fifo else {}
    for options in ((), ("--check",), ("--force",)):
        done = machine.run(of_host(), *options)
        assert done.returncode == 1
        assert why in done.stderr, done.stderr
        assert what in done.stderr, done.stderr
        assert not list((tmp_path / "root/var").glob("backups/*"))
        if before:
            assert machine.state() == before


@pytest.mark.parametrize("place", [shared_directory, foreign_directory, kernel_directory])
def test_a_directory_of_another_account_is_used_as_it_is(
    place: Callable[[Machine], None], tmp_path: Path
) -> None:
    if place is foreign_directory and os.geteuid() != 0:
        pytest.skip("only root gives files away")
    machine = made(tmp_path)
    place(machine)
    before = machine.state()
    done = machine.run(of_host())
    assert done.returncode == 0, done.stderr
    assert machine.conf.read_text() == AFTER
    assert "net.core.somaxconn = 16384" in machine.kernel_file.read_text()
    restored = machine.run(of_host(), "--restore", done.stdout.split()[-3])
    assert restored.returncode == 0, restored.stderr
    assert machine.state() == before


def test_a_directory_that_is_linked_from_safe_ones_is_used(tmp_path: Path) -> None:
    machine = made(tmp_path)
    real = machine.conf.parent.with_name("real")
    machine.conf.parent.rename(real)
    machine.conf.parent.symlink_to("../etc/real")
    done = machine.run(of_host())
    assert done.returncode == 0, done.stderr
    assert "workers 8;" in (real / "nginx.conf").read_text()


def test_a_backup_that_others_can_change_is_not_restored(tmp_path: Path) -> None:
    machine = made(tmp_path)
    backup = machine.run(of_host()).stdout.split()[-3]
    written = machine.conf.read_text()
    Path(backup).chmod(0o770)
    done = machine.run(of_host(), "--restore", backup)
    assert done.returncode == 1
    assert "accounts other than root can write to" in done.stderr
    assert machine.conf.read_text() == written


def test_another_account_than_root_is_told_so() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root becomes another account")
    with TemporaryDirectory(dir="/tmp") as directory:  # which the other account can enter
        Path(directory).chmod(0o755)
        machine = made(Path(directory))
        (machine.top / "lib").chmod(0o1777)
        (machine.top / "root/var/backups").mkdir(parents=True)
        account = f"setpriv --reuid={OTHER} --regid={OTHER} --clear-groups sh"
        done = machine.run(of_host(), "--check", shell=account)
    assert done.returncode == 1
    assert "run this script as root" in done.stderr
    assert "let root own it" not in done.stderr
