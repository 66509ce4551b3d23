"""Checks that nothing is left of a lab on this machine, by the names of its objects."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from autotune.lab import plan
from autotune.lab.lifecycle import remove_lab
from autotune.lab.plan import LabHost
from tests.lab.shared import WORKER

_numbers = count()


@pytest.fixture
def lab_dir(tmp_path: Path) -> Iterator[Path]:
    """Yield the directory for a test's lab, and check that the lab is removed afterwards."""
    directory = tmp_path / "lab"
    yield directory
    if os.geteuid() == 0:
        remove_lab(directory)


@pytest.fixture
def described() -> Callable[..., list[LabHost]]:
    return _described


@pytest.fixture
def traces() -> Callable[[Path], list[str]]:
    return _traces


def _described(number: int, **limits: float | int | None) -> list[LabHost]:
    """Return hosts in a /24 network that no other worker uses at the same time."""
    network = f"198.18.{20 + 30 * WORKER + next(_numbers) % 30}"
    return [
        LabHost(f"host{i}", f"{network}.{10 + i}", **limits)  # type: ignore[arg-type]
        for i in range(number)
    ]


def _traces(directory: Path) -> list[str]:
    """Return the links, mounts in any namespace, groups, processes and directories of this lab."""
    names = plan.derive_names(directory)
    links = json.loads(subprocess.check_output(["ip", "-json", "link", "show"], text=True))
    named = json.loads(subprocess.check_output(["ip", "-json", "netns"], text=True) or "[]")
    found = [f"link {link['ifname']}" for link in links if names.tag in link["ifname"]]
    found += [f"namespace {space['name']}" for space in named if names.tag in space["name"]]
    found += [f"group {path}" for path in _groups(names.tag)]
    if directory.exists():
        found.append(f"directory {directory}: {sorted(directory.iterdir())}")
    for process in Path("/proc").glob("[0-9]*"):
        if process.name == str(os.getpid()) or _ended(process):
            continue
        found += [
            f"process {process.name}: {file}"
            for file in ("cmdline", "mountinfo", "cgroup")
            if _tells(process / file, names)
        ]
    return found


def _groups(tag: str) -> list[str]:
    """Return the control groups named after the tag; `os.walk` ignores groups that other tests
    remove.
    """
    return [
        f"{parent}/{name}"
        for (parent, names, _) in os.walk("/sys/fs/cgroup")
        for name in names
        if tag in name
    ]


def _ended(process: Path) -> bool:
    """True if a process has exited, even if init has not yet collected its exit status (state Z or
    X).
    """
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def _tells(file: Path, names: plan.LabNames) -> bool:
    try:
        text = file.read_bytes()
    except OSError:
        return False
    return bytes(names.directory) in text or names.cgroup.encode() in text
