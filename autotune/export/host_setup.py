"""The files, units and kernel values that a deployment requires on each host, derived from the host's
services.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.deploy.desired_state import DesiredState, list_required_actions
from autotune.deploy.stack import ServiceInstance
from autotune.services.base import Argv, Settings, resolve_config_files


@dataclass(frozen=True)
class FileSetup:
    """A file on one host: its ``mode``, and the action that each unit needs after a change to the file.

    ``check_command`` validates the file. ``None`` means that the service has no such command, or that
    the command would depend on file contents. ``edited`` is true if the file existed on the host and is
    edited in place.
    """

    mode: int
    check_command: Argv | None
    units: Mapping[str, str]
    edited: bool = False


@dataclass(frozen=True)
class HostSetup:
    """The deployment on one host, derived from the host's services.

    The setup contains files by path, states of units, and kernel values by name. ``restarts`` maps
    kernel values to units that need a restart after a change.
    """

    files: Mapping[str, FileSetup] = field(default_factory=dict)
    units: Mapping[str, bool] = field(default_factory=dict)
    sysctls: Mapping[str, str] = field(default_factory=dict)
    restarts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def build_host_setup(desired: DesiredState, host: str, old_settings: Settings | None) -> HostSetup:
    """Return the files, units and kernel values of a host's deployment.

    The actions of units depend on the parameters that differ from ``old_settings``. ``None`` means
    that those settings are unknown.
    """
    state, actions_by_name = desired.hosts[host], list_required_actions(desired, host, old_settings)
    files = {
        file.path: FileSetup(
            file.mode,
            _find_check_command(instance, desired),
            {
                unit: action.name.lower()
                for unit, action in actions_by_name.get(file.path, {}).items()
            },
            instance.placement.adopted is not None,
        )
        for instance in desired.instances_on(host)
        for file in resolve_config_files(instance.service, instance.placement)
        if file.path in desired.rendered_files[instance.name]
        and not desired.is_absent(instance, file.path)
    }
    restarts = {
        kernel_setting: tuple(actions_by_name.get(kernel_setting, ()))
        for kernel_setting in state.sysctls
    }
    return HostSetup(files, dict(state.units), dict(state.sysctls), restarts)


def _find_check_command(instance: ServiceInstance, desired: DesiredState) -> Argv | None:
    """Return the command with which the software validates the files of an instance.

    A command that contains words from files is omitted, because file contents must not end up in
    commands.
    """
    files = desired.rendered_files[instance.name]
    validation = instance.service.build_validation(instance.placement, files)
    if validation != instance.service.build_validation(
        instance.placement, dict.fromkeys(files, b"")
    ):
        return None
    return validation if isinstance(validation, tuple) else None
