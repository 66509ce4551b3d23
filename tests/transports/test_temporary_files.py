"""Temporary files of a program that is killed, by real shells."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autotune.transports.temporary_files import temporary_file_script

LONG_AGO = time.time() - 3600


@contextmanager
def using(directory: Path, option: str = "") -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A shell that has made one, and runs until it is told to end."""
    script = f'{temporary_file_script("try", option)}\necho "$temporary"\nread -r _'
    shell = subprocess.Popen(
        ("sh", "-c", script), env={**os.environ, "TMPDIR": str(directory)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert shell.stdin is not None
    assert shell.stdout is not None
    try:
        yield shell, Path(shell.stdout.readline().decode().strip())
    finally:
        shell.stdin.close()
        shell.wait(30)
        shell.stdout.close()


@pytest.mark.parametrize("option", ["", "-d"])
def test_what_a_killed_one_left_goes_as_the_next_comes(tmp_path: Path, option: str) -> None:
    with using(tmp_path, option) as (shell, left):
        shell.send_signal(signal.SIGKILL)
        shell.wait(30)
    assert left.is_dir() == bool(option)
    if option:
        (left / "script.js").write_text("")
    with using(tmp_path):
        assert left.exists()  # it may just be on its way to lock it
    os.utime(left, (LONG_AGO, LONG_AGO))
    with using(tmp_path) as (_, new):
        assert [*tmp_path.iterdir()] == [new]
    assert not [*tmp_path.iterdir()]


def test_what_is_in_use_stays_however_old_it_is(tmp_path: Path) -> None:
    somebody_elses = tmp_path / "autotune-try.kept"
    somebody_elses.touch()
    os.utime(somebody_elses, (LONG_AGO, LONG_AGO))
    with using(tmp_path, "-d") as (_, old):
        os.utime(old, (LONG_AGO, LONG_AGO))
        with using(tmp_path):
            assert old.exists()
    assert [*tmp_path.iterdir()] == [somebody_elses]
