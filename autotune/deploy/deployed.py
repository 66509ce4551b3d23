"""What a trial needs from the machines, what a deployment did, and how it left each host."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from autotune.deploy.desired_state import DesiredState, required_actions
from autotune.deploy.host_state import HostState
from autotune.deploy.stack import Part
from autotune.errors import AutotuneError
from autotune.services.base import Action, Argv, Settings, Value, config_files


@dataclass(frozen=True)
class Difference:
    """A setting whose value in effect is not the one asked for."""

    parameter: str
    asked: Value
    effective: Value

    def __str__(self) -> str:
        return f"{self.parameter}: asked {self.asked}, in effect {self.effective}"


class DeployFailed(AutotuneError):
    """A configuration did not validate, start or answer; the last good one is back in place."""


@dataclass(frozen=True)
class Deployed:
    """What a deployment did and what is in effect after it.

    ``hosts``: what is recorded of each host; empty where services are private processes.
    ``prefilled``: caches that had lost their contents were filled again.
    """

    files: Mapping[str, bytes]
    actions: Mapping[str, Action]
    effective: Mapping[str, Value] = field(default_factory=dict)
    differences: tuple[Difference, ...] = ()
    hosts: Mapping[str, HostRecord] = field(default_factory=dict)
    prefilled: bool = False

    @property
    def restarted(self) -> frozenset[str]:
        """Parts that lost what they had in memory."""
        return frozenset(n for n, action in self.actions.items() if action is Action.RESTART)


class Fleet(Protocol):
    """All tiers together: a deployment takes effect everywhere or nowhere.

    ``keeps``: its services can go on when the tuner has ended.
    """

    keeps: bool = False

    def deploy(self, settings: Settings) -> Deployed:
        """Make ``settings`` take effect with the least action. Raises DeployFailed."""
        ...

    def verify(self) -> None:
        """Raises DeployFailed where a unit of the last deployment has ended or been started again
        since, and AutotuneError where hosts were taken over or booted."""
        return

    def restore(self) -> None:
        """Restore every host."""
        ...

    def keep(self) -> None:
        """Keep what is deployed now when hosts are released: this object's ``restore`` no longer undoes
        it, but `autotune restore` does."""
        return


FILE = "%s"  # stands for the file in a check, as Ansible's ``validate`` has it


@dataclass(frozen=True)
class FileManifest:
    """A file of one host: its ``mode``, how its software validates it (``None``: it cannot validate one
    file alone), and what each unit that reads it needs after a change."""

    mode: int
    check: Argv | None
    units: Mapping[str, str]


@dataclass(frozen=True)
class Original:
    """A host before the study: SHA-256 by file (``None``: it was absent), units, kernel values."""

    files: Mapping[str, str | None] = field(default_factory=dict)
    units: Mapping[str, bool] = field(default_factory=dict)
    sysctls: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class HostManifest:
    """A host under a deployment, derived from its services: files by their paths, units that run or do
    not, kernel values by their names. ``restarts``: kernel value → units to restart after a change."""

    files: Mapping[str, FileManifest] = field(default_factory=dict)
    units: Mapping[str, bool] = field(default_factory=dict)
    sysctls: Mapping[str, str] = field(default_factory=dict)
    restarts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class HostRecord:
    """What a study records of a host: its units and kernel values under a deployment, and what it
    ``original`` had. Commands, paths and modes are not recorded: services have them."""

    units: Mapping[str, bool] = field(default_factory=dict)
    sysctls: Mapping[str, str] = field(default_factory=dict)
    original: Original = field(default_factory=Original)


def host_records(
    desired: DesiredState, originals: Mapping[str, HostState]
) -> dict[str, HostRecord]:
    """Host → what is recorded of it. ``originals``: each host before the study, as far as it is backed
    up."""
    return {host: HostRecord(dict(state.units), dict(state.sysctls),
                             _original(originals.get(host, HostState())))
            for host, state in desired.hosts.items()}  # fmt: skip


def _original(backup: HostState) -> Original:
    digests = {
        path: None if file.absent else hashlib.sha256(file.content or b"").hexdigest()
        for path, file in backup.files.items()
        if file.link is None
    }
    return Original(digests, dict(backup.units), dict(backup.sysctls))


def host_manifest(desired: DesiredState, host: str, before: Settings | None) -> HostManifest:
    """How a host is to be. ``before`` are the settings that its files had: the parameters that differ
    from them decide what each unit needs; ``None`` if they are not known."""
    state, concerned = desired.hosts[host], required_actions(desired, host, before)
    files = {
        file.path: FileManifest(
            file.mode,
            _check(part, file.path, desired),
            {unit: action.name.lower() for unit, action in concerned.get(file.path, {}).items()},
        )
        for part in desired.parts_on(host)
        for file in config_files(part.service, part.site)
        if file.path in desired.rendered[part.name] and not desired.absent(part, file.path)
    }
    restarts = {name: tuple(concerned.get(name, ())) for name in state.sysctls}
    return HostManifest(files, dict(state.units), dict(state.sysctls), restarts)


def _check(part: Part, path: str, desired: DesiredState) -> Argv | None:
    """The software's own check, if it takes the path of the file to validate.

    A check with words from the content of files is left out: contents are not trusted with commands.
    """
    files = desired.rendered[part.name]
    how = part.service.validate(part.site, files)
    if how != part.service.validate(part.site, dict.fromkeys(files, b"")):
        return None
    if not isinstance(how, tuple) or path not in how:
        return None
    return tuple(FILE if word == path else word for word in how)
