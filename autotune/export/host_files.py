"""The files, units and kernel values of each host in a trial; and a shell script that sets them.

The script is for those who have nothing but a shell there. Contents travel as base64 and every name
is quoted, so that nothing in a configuration is run.
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from autotune.deploy.render import shipped_templates
from autotune.errors import AutotuneError
from autotune.report.diff import rendered
from autotune.report.studies import Study
from autotune.study.records import Trial
from autotune.target import runtimes

SYSCTL_FILE = "/etc/sysctl.d/99-autotune.conf"
STAGED = ".autotune-new"  # after the path of a file that is validated before it replaces anything


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
    """As the study recorded them.

    Raises AutotuneError where it ran private processes, which no other tool can have, and for hosts
    that are not its target's.
    """
    numbers = (trial.number, trial.of)
    deployed = [r for r in study.records if r["event"] == "deployed" and r["trial"] in numbers]
    recorded: Mapping[str, Any] = deployed[-1].get("hosts", {}) if deployed else {}
    if not recorded:
        having = runtimes.names(installed=True)
        raise AutotuneError(
            f"study {study.name!r} ran private processes: there are no hosts to configure",
            hint=f"--format files, yaml or json; a target with `runtime: {having}` has hosts",
        )
    # A host's name becomes a path and a line of a script for root; the target's are checked.
    if strange := sorted(recorded.keys() - study.target.hosts.keys()):
        raise AutotuneError(
            f"study {study.name!r} deployed to {strange[0]!r}, which its target does not have: the "
            "study is damaged",
            hint="put its events.jsonl back from a copy",
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
        {host: of_host["units"] for host, of_host in recorded.items()},
        {host: of_host["sysctls"] for host, of_host in recorded.items()},
    )


def kernel_file(sysctls: Mapping[str, str]) -> bytes:
    """Kernel values as sysctl.d(5) reads them."""
    lines = [f"{name} = {value}\n" for name, value in sorted(sysctls.items())]
    return "".join(["# Written by autotune.\n", *lines]).encode()


def shell(study: Study, trial: Trial) -> dict[str, bytes]:
    """``shell/HOST.sh`` for each host. Raises AutotuneError where there are none to configure."""
    hosts = hosts_of(study, trial)
    scripts = {}
    for host, units in hosts.units.items():
        files, sysctls = list(hosts.of(host)), hosts.sysctls[host]
        if sysctls:
            files.append(HostFile(host, "", SYSCTL_FILE, kernel_file(sysctls), 0o644, None, {}))
        scripts[f"shell/{host}.sh"] = filled(
            "host.sh.j2",
            study=study.name,
            trial=trial.number,
            host=host,
            files=files,
            running=[unit for unit, runs in units.items() if runs],
            stopped=[unit for unit, runs in units.items() if not runs],
            sysctls=SYSCTL_FILE if sysctls else None,
        ).encode()
    return scripts


def filled(template: str, **values: Any) -> str:
    """A template of ``templates/export`` with these values in it."""
    return _templates().get_template(template).render(**values)


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(str(shipped_templates() / "export")),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701  scripts and plain text; a script quotes for the shell
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "quoted": shlex.quote,
        "base64": lambda content: base64.encodebytes(content).decode().strip(),
        "directory": lambda path: path.rpartition("/")[0],
        "command": _command,
    }
    return environment


def _command(check: tuple[str, ...], path: str) -> str:
    return shlex.join(f"{path}{STAGED}" if word == "%s" else word for word in check)
