"""The exported script in directories that other accounts can change: refused before anything happens."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.export.test_script import Machine, made, of_host

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


PLACES: tuple[tuple[Callable[[Machine], None], str], ...] = (
    (shared_directory, "other accounts than root can write to"),
    (shared_above, "other accounts than root can write to"),
    (foreign_directory, "belongs to another account than root"),
    (link, "it is a symbolic link"),
    (linked_through_shared, "other accounts than root can write to"),
    (fifo, "is neither a directory nor a file"),
    (hard_link, "it has several names"),
    (circle, "in a circle"),
    (backups, "other accounts than root can write to"),
    (kernel_directory, "other accounts than root can write to"),
)


@pytest.mark.parametrize(("place", "why"), PLACES, ids=[place.__name__ for place, _ in PLACES])
def test_a_path_that_others_can_change_is_refused(
    place: Callable[[Machine], None], why: str, tmp_path: Path
) -> None:
    if place is foreign_directory and os.geteuid() != 0:
        pytest.skip("only root gives files away")
    machine = made(tmp_path)
    place(machine)
    before = machine.state() if place is not fifo else {}
    for options in ((), ("--check",), ("--force",)):
        done = machine.run(of_host(), *options)
        assert done.returncode == 1
        assert why in done.stderr, done.stderr
        assert "autotune apply" in done.stderr
        assert not list((tmp_path / "root/var").glob("backups/*"))
        if before:
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
    assert "other accounts than root can write to" in done.stderr
    assert machine.conf.read_text() == written
