"""What a trial changes on each host: files, units, kernel values; as a shell script, as a patch.

The script is for those who have nothing but a shell there. Every name is quoted and contents are
here-documents, so that nothing in a configuration is run.
"""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from autotune.deploy.deployed import Original
from autotune.deploy.host_state import kernel_file
from autotune.errors import AutotuneError
from autotune.masking import is_masked
from autotune.report.diff import rendered
from autotune.report.studies import Study
from autotune.report.view import conclusion
from autotune.study.records import Trial
from autotune.target import runtimes
from autotune.target.shipped import shipped
from autotune.unified_diff import file_diff

SYSCTL_FILE = "/etc/sysctl.d/99-autotune.conf"
_ORDINARY = re.compile(r"[\w.][\w:.,@\\ /-]*|-?[0-9]+( -?[0-9]+)*")
STAGED = ".autotune-new"  # after the path of a file that is validated before it replaces anything
ABSENT = "absent"  # the digest of no file
DELIMITER = "AUTOTUNE"
MODEL = "Of a model: no host was measured. What it is worth on real hosts is not known."


@dataclass(frozen=True)
class HostFile:
    """One file on one host. ``check`` has ``%s`` where the file's path belongs; ``units`` are those
    that read it, each with what it needs after a change: ``reload`` or ``restart``.

    ``original`` is the SHA-256 of the file this one replaces, or ``absent``; ``None``: not recorded.
    """

    host: str
    tier: str
    path: str
    content: bytes
    mode: int
    check: tuple[str, ...] | None
    units: Mapping[str, str]
    original: str | None = None

    @property
    def digest(self) -> str:
        return sha256(self.content).hexdigest()


@dataclass(frozen=True)
class Hosts:
    """All files, and by host the units that run (or do not) and the kernel values.

    ``before`` has the units and kernel values of the hosts before the study.
    """

    files: tuple[HostFile, ...]
    units: Mapping[str, Mapping[str, bool]]
    sysctls: Mapping[str, Mapping[str, str]]
    before: Mapping[str, Original] = field(default_factory=dict)

    def of(self, host: str) -> tuple[HostFile, ...]:
        return tuple(file for file in self.files if file.host == host)

    def starts(self, host: str, unit: str) -> bool:
        """Whether a unit that is to run does not run yet, as far as is recorded."""
        return self.before[host].units.get(unit) is not True if host in self.before else True

    def reloads(self, host: str, unit: str) -> bool:
        """Whether a reload is all that a unit needs on a host which is as it was before the study."""
        files = self.of(host)
        needed = {file.units[unit] for file in files if unit in file.units}
        recorded = all(file.original for file in files) and not self.sysctls[host]
        return recorded and needed == {"reload"} and not self.starts(host, unit)


def hosts_of(study: Study, trial: Trial, *, everything: bool = False) -> Hosts:
    """What the trial changes on the hosts as they were before the study; with ``everything``, all that
    it deployed there.

    Raises AutotuneError where it ran private processes, which no other tool can configure, and for
    hosts that are not in its target.
    """
    recorded = _deployed(study, trial)
    if not recorded:
        having = runtimes.names(installed=True)
        raise AutotuneError(
            f"study {study.name!r} ran private processes: there are no hosts to configure",
            hint=f"--format files, yaml or json; a target with `runtime: {having}` has hosts",
        )
    # A host's name becomes a path and a line of a script for root; names in the target are validated.
    if strange := sorted(recorded.keys() - study.target.hosts.keys()):
        raise AutotuneError(
            f"study {study.name!r} deployed to {strange[0]!r}, which its target does not have: the "
            "study is damaged",
            hint="put its events.jsonl back from a copy",
        )
    for of_host in recorded.values():
        _check_names(study, [*of_host["units"], *of_host["sysctls"], *of_host["sysctls"].values()])
    before = _originals(study, recorded)
    files = []
    for (tier, host, path), content in _by_host(rendered(study.directory, trial)).items():
        file = recorded[host]["files"][path]
        check = tuple(file["check"]) if file["check"] else None
        digests = before[host].files
        original = (digests[path] or ABSENT) if path in digests else None
        files.append(
            HostFile(host, tier, path, content, file["mode"], check, file["units"], original)
        )
    hosts = Hosts(
        tuple(files),
        {host: of_host["units"] for host, of_host in recorded.items()},
        {host: of_host["sysctls"] for host, of_host in recorded.items()},
        before,
    )
    chosen = hosts if everything else _changed(hosts, recorded)
    return _without_secrets(chosen)


def _without_secrets(hosts: Hosts) -> Hosts:
    for file in hosts.files:
        if is_masked(file.content):
            raise AutotuneError(
                f"{file.path} of {file.host} has words that stay on its host",
                hint="`autotune export` without --format, then `autotune apply`: it keeps them",
            )
    return hosts


def _deployed(study: Study, trial: Trial) -> Mapping[str, Any]:
    """Host → its manifest in the newest deployment of a trial; none for private processes."""
    numbers = (trial.number, trial.of)
    deployed = [r for r in study.records if r["event"] == "deployed" and r["trial"] in numbers]
    return deployed[-1].get("hosts", {}) if deployed else {}


def _by_host(files: Mapping[str, bytes]) -> dict[tuple[str, str, str], bytes]:
    """Tier, host and path → content, of files by ``tier.host.service/path``."""
    by_host = {}
    for place, content in files.items():
        part, _, path = place.partition("/")
        tier, host, _ = part.split(".", 2)
        by_host[tier, host, f"/{path}"] = content
    return by_host


def _originals(study: Study, recorded: Mapping[str, Any]) -> dict[str, Original]:
    """Hosts before the study: as backed up, else (older studies, models) as in its baseline."""
    baseline = conclusion(study.state).baseline
    of_baseline = _deployed(study, baseline.trial) if baseline else {}
    digests: dict[str, dict[str, str | None]] = {host: {} for host in recorded}
    for (_, host, path), content in (
        _by_host(rendered(study.directory, baseline.trial)).items() if baseline else ()
    ):
        digests.setdefault(host, {})[path] = sha256(content).hexdigest()
    originals = {}
    for host, of_host in recorded.items():
        backup, plain = of_host.get("original", {}), of_baseline.get(host, {})
        originals[host] = Original(
            {**digests[host], **backup.get("files", {})},
            {**plain.get("units", {}), **backup.get("units", {})},
            {**plain.get("sysctls", {}), **backup.get("sysctls", {})},
        )
    return originals


def _changed(hosts: Hosts, recorded: Mapping[str, Any]) -> Hosts:
    """The files and kernel values of each host that differ, and the units that they concern."""
    files = tuple(file for file in hosts.files if file.digest != file.original)
    sysctls = {
        host: {name: value for name, value in values.items()
               if value != hosts.before[host].sysctls.get(name)}
        for host, values in hosts.sysctls.items()
    }  # fmt: skip
    units = {}
    for host, of_host in hosts.units.items():
        before, restarts = hosts.before[host].units, recorded[host].get("restarts")
        concerned = {unit for file in files if file.host == host for unit in file.units}
        for name in sysctls[host]:
            concerned |= set(of_host if restarts is None else restarts[name])
        units[host] = {
            unit: runs for unit, runs in of_host.items()
            if (unit in concerned and runs) or before.get(unit, False) is not runs
        }  # fmt: skip
    changed = {file.host for file in files} | {h for h in units if units[h] or sysctls[h]}
    return Hosts(
        files,
        {host: units[host] for host in units if host in changed},
        {host: sysctls[host] for host in sysctls if host in changed},
        hosts.before,
    )


def _check_names(study: Study, names: Iterable[str]) -> None:
    """Check units and kernel values: they become lines of a file, and words of commands for root."""
    if strange := [name for name in names if not _ORDINARY.fullmatch(name)]:
        raise AutotuneError(
            f"study {study.name!r} has {strange[0]!r}, which is no unit and no kernel value",
            hint="put its events.jsonl back from a copy",
        )


def shell(study: Study, trial: Trial, hosts: Hosts) -> dict[str, bytes]:
    """``shell/HOST.sh`` for each host that changes."""
    title = f"Configuration of trial {trial.number} of study {study.name}"
    notice = MODEL if study.target.simulated else None
    return {f"shell/{host}.sh": script(title, host, hosts, notice).encode() for host in hosts.units}


def script(title: str, host: str, hosts: Hosts, notice: str | None = None) -> str:
    """The script that configures one host, as root, in a POSIX shell with systemd's and GNU's tools."""
    units = hosts.units[host]
    return filled(
        "host.sh.j2",
        title=title,
        notice=notice,
        host=host,
        files=hosts.of(host),
        running=[unit for unit, runs in units.items() if runs],
        starting=[unit for unit, runs in units.items() if runs and hosts.starts(host, unit)],
        reloading=[unit for unit, runs in units.items() if runs and hosts.reloads(host, unit)],
        stopped=[unit for unit, runs in units.items() if not runs],
        sysctls=hosts.sysctls[host],
        kernel_file=SYSCTL_FILE,
    )


def patch(study: Study, trial: Trial, hosts: Hosts) -> dict[str, bytes]:
    """``patch/HOST.patch``, for ``patch -p1 -d /``, and the digests it expects, for ``sha256sum -c``.

    Raises AutotuneError where a host has another file than the one whose content is recorded.
    """
    baseline = conclusion(study.state).baseline
    before = _by_host(rendered(study.directory, baseline.trial)) if baseline else {}
    content: dict[str, bytes] = {}
    for host in hosts.units:
        diffs = [f"Configuration of trial {trial.number} of study {study.name}, for {host}\n"]
        digests = [f"# {MODEL}\n"] if study.target.simulated else []
        diffs += digests
        for file in hosts.of(host):
            old = None if file.original == ABSENT else before.get((file.tier, host, file.path))
            if old is not None and sha256(old).hexdigest() != file.original:
                raise AutotuneError(
                    f"{file.path} of {host} was not the baseline's: its content is not recorded",
                    hint="--format ansible or shell; `autotune init --from` tunes hosts' own files",
                )
            place = file.path.removeprefix("/")
            diffs.append(
                file_diff({place: old} if old is not None else {}, {place: file.content}, "a", "b")
            )
            if old is not None:
                digests.append(f"{file.original}  {file.path}\n")
        if values := hosts.sysctls[host]:
            diffs.append(
                file_diff({}, {SYSCTL_FILE.removeprefix("/"): kernel_file(values)}, "a", "b")
            )
        content[f"patch/{host}.patch"] = "".join(diffs).encode("utf-8", "surrogateescape")
        content[f"patch/{host}.sha256"] = "".join(digests).encode()
    return content


def filled(template: str, **values: Any) -> str:
    """A template of ``templates/export`` with these values in it."""
    return _templates().get_template(template).render(**values)


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(str(shipped("templates") / "export")),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701  scripts and plain text; a script quotes for the shell
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals |= {"absent": ABSENT}
    environment.filters |= {
        "quoted": shlex.quote,
        "directory": lambda path: path.rpartition("/")[0],
        "here_document": _here_document,
        "line": lambda text: "".join(c if c.isprintable() else "?" for c in text),
        "command": staged_check,
    }
    return environment


def _here_document(content: bytes) -> str:
    """A command that prints ``content``: as it is where a person can read it, else from base64."""
    text = content.decode("utf-8", "replace")
    plain = text.encode() == content and text.endswith("\n")
    if (
        plain
        and all(c.isprintable() or c in "\t\n" for c in text)
        and DELIMITER not in text.split("\n")
    ):
        return f"cat <<'{DELIMITER}'\n{text}{DELIMITER}"
    return f"base64 -d <<'{DELIMITER}'\n{base64.encodebytes(content).decode()}{DELIMITER}"


def staged_check(check: tuple[str, ...], path: str) -> str:
    """The command that validates what is staged beside ``path``."""
    return shlex.join(f"{path}{STAGED}" if word == "%s" else word for word in check)
