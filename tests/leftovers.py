"""Objects that tests leave on this machine in addition to files: processes, mounts, links and
control groups.

They are found by the directory of the test run: tests use no other directory, and the names of a
lab's objects derive from its directory.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from autotune.errors import AutotuneError
from autotune.lab.lifecycle import remove_lab
from autotune.lab.plan import derive_names

LABS = ("lab", "other")  # names of the directories that tests use for labs
DEPTH = 3  # levels below the run's directory: worker, test, lab


def find_leftovers(base: Path) -> list[str]:
    """Return descriptions of everything that tests in ``base`` have left."""
    return [
        *(f"lab {lab}: {', '.join(said)}" for lab, said in _labs(base).items()),
        *(f"mount {path}" for path in _mounts(base)),
        *(f"process {pid}: {said}" for pid, said in _processes(base)),
    ]


def staying(base: Path, seconds: float = 60.0) -> list[str]:
    """Return the objects that still exist after ``seconds``, because processes may exit slowly on a
    busy machine.
    """
    deadline = time.monotonic() + seconds
    while (found := find_leftovers(base)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def remove(base: Path) -> None:
    """Stop and remove everything that is left."""
    for lab in _labs(base):
        with contextlib.suppress(AutotuneError):
            remove_lab(lab)
    for pid, _ in _processes(base):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def abandoned(base: Path) -> list[Path]:
    """Return the directories next to ``base`` of killed runs, whose processes no longer exist."""
    return [
        lock.parent
        for lock in base.parent.glob("pytest-*/.lock")
        if lock.parent != base and not Path("/proc", lock.read_text() or "-").exists()
    ]


def _labs(base: Path) -> dict[Path, list[str]]:
    """Return the directories of labs that are not completely removed, each with the remains."""
    links = {path.name[2:8]: f"link {path.name}" for path in Path("/sys/class/net").iterdir()}
    trees = Path("/sys/fs/cgroup")
    groups = {path.name.rpartition("-")[2]: f"group {path}"
              for path in (*trees.glob("autotune-lab-*"), *trees.glob("*/autotune-lab-*"))}  # fmt: skip
    found = {}
    for lab in _places(base):
        tag = derive_names(lab).tag
        there = [str(path) for path in (lab / "lab.json", lab / "hosts") if path.exists()]
        if said := [*there, *(seen[tag] for seen in (links, groups) if tag in seen)]:
            found[lab] = said
    return found


def _places(base: Path) -> Iterator[Path]:
    directories = [base] if base.exists() else []  # pytest removes it unless a test failed
    for _ in range(DEPTH):
        yield from (directory / name for directory in directories for name in LABS)
        directories = [path for above in directories for path in _subdirectories(above)]


def _subdirectories(directory: Path) -> list[Path]:
    # A later run of pytest removes the directories of earlier runs.
    with contextlib.suppress(FileNotFoundError):
        return [path for path in directory.iterdir() if path.is_dir() and not path.is_symlink()]
    return []


def _mounts(base: Path) -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [path for line in lines if (path := line.split()[4]).startswith(f"{base}/")]


def _processes(base: Path) -> Iterator[tuple[int, str]]:
    """Yield the processes with a working directory below ``base`` or an argument in it."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            place = (process / "cwd").readlink()
            if process.name != str(os.getpid()) and (
                f"{base}/" in words or place.is_relative_to(base)
            ):
                yield int(process.name), words
