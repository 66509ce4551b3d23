"""The files, units and kernel values of each host in a trial, as the study recorded them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.errors import AutotuneError
from autotune.report.diff import rendered
from autotune.report.studies import Study
from autotune.study.records import Trial
from autotune.target import runtimes

SYSCTL_FILE = "/etc/sysctl.d/99-autotune.conf"


@dataclass(frozen=True)
class HostFile:
    """One file on one host. ``check`` has ``%s`` where the file's path belongs; ``units`` are those
    that read it, each with what it needs after a change: ``reload`` or ``restart``."""

    host: str
    tier: str
    path: str
    content: bytes
    mode: int
    check: tuple[str, ...] | None
    units: Mapping[str, str]


@dataclass(frozen=True)
class Hosts:
    """All files, and by host the units that run (or do not) and the kernel values."""

    files: tuple[HostFile, ...]
    units: Mapping[str, Mapping[str, bool]]
    sysctls: Mapping[str, Mapping[str, str]]

    def of(self, host: str) -> tuple[HostFile, ...]:
        return tuple(file for file in self.files if file.host == host)


def hosts_of(study: Study, trial: Trial) -> Hosts:
    """Raises AutotuneError where the study ran private processes, which no other tool can have."""
    recorded = _recorded(study, trial)
    if not recorded:
        having = runtimes.names(installed=True)
        raise AutotuneError(
            f"study {study.name!r} ran private processes: there are no hosts to configure",
            hint=f"--format files, yaml or json; a target with `runtime: {having}` has hosts",
        )
    files = []
    for place, content in rendered(study.directory, trial).items():
        part, _, path = place.partition("/")
        tier, host, _ = part.split(".", 2)
        file = recorded[host]["files"][f"/{path}"]
        check = tuple(file["check"]) if file["check"] else None
        files.append(HostFile(host, tier, f"/{path}", content, file["mode"], check, file["units"]))
    return Hosts(
        tuple(files),
        {host: deployed["units"] for host, deployed in recorded.items()},
        {host: deployed["sysctls"] for host, deployed in recorded.items()},
    )


def kernel_file(sysctls: Mapping[str, str]) -> bytes:
    """Kernel values as sysctl.d(5) reads them."""
    lines = [f"{name} = {value}\n" for name, value in sorted(sysctls.items())]
    return "".join(["# Written by autotune.\n", *lines]).encode()


def _recorded(study: Study, trial: Trial) -> Mapping[str, Any]:
    numbers = (trial.number, trial.of)
    deployed = [r for r in study.records if r["event"] == "deployed" and r["trial"] in numbers]
    return deployed[-1].get("hosts", {}) if deployed else {}
