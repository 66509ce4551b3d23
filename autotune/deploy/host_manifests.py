"""A deployment host by host, for those who make it so by other means: a role, a script. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.deploy.desired_state import DesiredState, required_actions
from autotune.deploy.stack import Part
from autotune.services.base import Argv, config_files

FILE = "%s"  # stands for the file in a check, as Ansible's ``validate`` has it


@dataclass(frozen=True)
class FileManifest:
    """A file of one host: its ``mode``, how its software judges it (``None``: it cannot be asked
    about one file alone), and what each unit that reads it needs after a change."""

    mode: int
    check: Argv | None
    units: Mapping[str, str]


@dataclass(frozen=True)
class HostManifest:
    """Files by their paths, units that run or do not, kernel values by their names."""

    files: Mapping[str, FileManifest] = field(default_factory=dict)
    units: Mapping[str, bool] = field(default_factory=dict)
    sysctls: Mapping[str, str] = field(default_factory=dict)


def host_manifests(desired: DesiredState) -> dict[str, HostManifest]:
    """Host → what it is to be; the files' contents are in ``Deployed.files`` by part and path."""
    return {host: _host(desired, host) for host in desired.hosts}


def _host(desired: DesiredState, host: str) -> HostManifest:
    state, concerned = desired.hosts[host], required_actions(desired, host, None)
    files = {
        file.path: FileManifest(
            file.mode,
            _check(part, file.path, desired),
            {unit: action.name.lower() for unit, action in concerned.get(file.path, {}).items()},
        )
        for part in desired.parts_on(host)
        for file in config_files(part.service, part.site)
        if file.path in desired.rendered[part.name]
    }
    return HostManifest(files, dict(state.units), dict(state.sysctls))


def _check(part: Part, path: str, desired: DesiredState) -> Argv | None:
    """The software's own check, where it takes the path of the file that it is to judge."""
    how = part.service.validate(part.site, desired.rendered[part.name])
    if not isinstance(how, tuple) or path not in how:
        return None
    return tuple(FILE if word == path else word for word in how)
