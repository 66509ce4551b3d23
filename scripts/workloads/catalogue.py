"""Descriptions of workloads, read from `workloads/`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from autotune.errors import AutotuneError
from autotune.services.base import Settings

ROOT = Path(__file__).parents[2]
WORKLOADS_DIRECTORY = ROOT / "workloads"
RESULTS_DIRECTORY = WORKLOADS_DIRECTORY / "results"
STUDIES_DIRECTORY = ROOT / "studies" / "workloads"


@dataclass(frozen=True)
class HostSetup:
    """What a host needs for its workload.

    ``files`` maps paths on the host to files of this repository. ``script`` is a shell script that
    runs after the files are copied. ``packages`` are names of the distribution's packages.
    """

    packages: tuple[str, ...]
    files: Mapping[str, Path]
    script: Path | None


@dataclass(frozen=True)
class Factor:
    """Settings that the engineer's recipe changes together.

    The recipe tries ``steps`` in this order if the diagnosis finds that ``service``, such as
    `web.nginx`, limits the stack.
    """

    service: str
    steps: tuple[Settings, ...]


@dataclass(frozen=True)
class SmokeCheck:
    """A rough check of a workload's decisive settings.

    With ``settings``, the stack must serve at least ``ratio`` times as many requests as with the stock
    settings. For each rate, ``clients`` send requests without pauses: for ``warm_seconds``, and then
    for ``seconds`` whose responses are counted.
    """

    settings: Settings
    ratio: float
    clients: int
    seconds: float
    warm_seconds: float = 0.0


@dataclass(frozen=True)
class Workload:
    """A target, what its hosts need, and the engineer's recipe for it.

    If ``with_tpe`` is true, a study with Optuna's TPE is recorded for comparison.
    """

    name: str
    title: str
    about: str
    decisive: tuple[str, ...]
    hosts: Mapping[str, HostSetup]
    engineer: tuple[Factor, ...]
    smoke: SmokeCheck
    with_tpe: bool

    @property
    def target(self) -> Path:
        """Return the path of the workload's target file."""
        return WORKLOADS_DIRECTORY / self.name / "target.yaml"

    def compute_digest(self) -> str:
        """Return a digest of the workload's files. A change of a site or recipe changes the digest."""
        scripts = [host.script for host in self.hosts.values() if host.script]
        copied_files = [file for host in self.hosts.values() for file in host.files.values()]
        own_files = [self.target, self.target.with_name("workload.yaml")]
        digest = hashlib.sha256()
        for file in sorted({*own_files, *scripts, *copied_files}):
            digest.update(hashlib.sha256(file.read_bytes()).digest())
        return digest.hexdigest()


def list_names() -> tuple[str, ...]:
    """Return the names of all workloads in alphabetical order."""
    return tuple(sorted(path.parent.name for path in WORKLOADS_DIRECTORY.glob("*/workload.yaml")))


def read_workload(name: str) -> Workload:
    """Read a workload. Raises ``AutotuneError`` if no workload has this name."""
    if name not in list_names():
        raise AutotuneError(
            f"no workload is named {name}", hint="one of " + ", ".join(list_names())
        )
    directory = WORKLOADS_DIRECTORY / name
    text: dict[str, Any] = YAML(typ="safe").load(directory / "workload.yaml")
    return Workload(
        name,
        text["title"],
        text["about"].strip(),
        tuple(text["decisive"]),
        {host: _read_host(setup, directory) for host, setup in text.get("hosts", {}).items()},
        tuple(Factor(each["service"], tuple(each["steps"])) for each in text["engineer"]),
        SmokeCheck(**text["smoke"]),
        text.get("with_tpe", False),
    )


def _read_host(setup: Mapping[str, Any], directory: Path) -> HostSetup:
    script = setup.get("script")
    return HostSetup(
        tuple(setup.get("packages", ())),
        {path: find_file(directory, name) for path, name in setup.get("files", {}).items()},
        find_file(directory, script) if script else None,
    )


def find_file(directory: Path, name: str) -> Path:
    """Return the file ``name`` of a workload, or else the file that all workloads share."""
    own = directory / name
    return own if own.exists() else WORKLOADS_DIRECTORY / "shared" / name
