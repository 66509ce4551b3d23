"""Changes that a deployment would make to hosts: files, kernel values and units, with their causes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from autotune.deploy.desired_state import (
    DesiredState,
    RequiredActions,
    list_changed_parameters,
    list_required_actions,
    plan_host,
)
from autotune.deploy.host_files import read_contents
from autotune.deploy.host_state import FileState, HostPlan, HostState, ObservedHost
from autotune.deploy.runtime import RuntimeHost
from autotune.masking import mask_changed_lines, mask_secret_bytes, outline_unknown_syntax
from autotune.services.base import Action, Settings
from autotune.unified_diff import FileContents, format_file_diff

STOP_ACTION = "stop"


@dataclass(frozen=True)
class UnitChange:
    """Action on a unit (reload, restart, stop), and its causes: parameters, kernel values or files."""

    action: str
    because: tuple[str, ...]


@dataclass(frozen=True)
class HostChanges:
    """Changes to one host. ``diff`` is a unified diff in which secrets are masked. ``sysctls`` maps
    names of kernel values to old and new values.
    """

    diff: str = ""
    files: tuple[str, ...] = ()
    sysctls: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    units: Mapping[str, UnitChange] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.files or self.sysctls or self.units)


@dataclass(frozen=True)
class CurrentHost:
    """An observed host with the contents of its files."""

    observed: ObservedHost
    files: FileContents

    @property
    def state(self) -> HostState:
        return HostState({path: FileState(content) for path, content in self.files.items()})


def read_current_host(host: RuntimeHost, needed_states: tuple[HostState, ...]) -> CurrentHost:
    """Return the current state of all files, units and kernel values in ``needed_states``.

    No lock is needed.
    """
    combined_state = HostState(
        {path: file for state in needed_states for path, file in state.files.items()},
        {unit: is_running for state in needed_states for unit, is_running in state.units.items()},
        {name: value for state in needed_states for name, value in state.sysctls.items()},
    )
    observed_host = host.observe(combined_state)
    paths = [path for path in combined_state.files if observed_host.files[path].kind == "file"]
    return CurrentHost(observed_host, read_contents(host.transport, paths))


def _format_masked_diff(
    host_name: str,
    paths: Iterable[str],
    current_host: CurrentHost,
    desired_state: DesiredState,
    masked_contents: Mapping[str, bytes],
) -> str:
    """Return the diff of a host's files at ``paths``, without secrets."""
    current_contents = {
        f"{host_name}{path}": mask_changed_lines(
            current_host.files[path],
            masked_contents.get(path, b""),
            desired_state.find_outliner(host_name, path) or outline_unknown_syntax,
        )
        for path in paths
        if path in current_host.files
    }
    planned_contents = {f"{host_name}{path}": content for path, content in masked_contents.items()}
    return format_file_diff(current_contents, planned_contents, "now", "planned")


def compute_host_changes(
    host_name: str,
    base: DesiredState,
    desired: DesiredState,
    current: CurrentHost,
    masked_state: DesiredState | None = None,
) -> HostChanges:
    """Return the changes from the current host to ``desired``.

    If the files on the host match ``base``, units get only the actions that changed parameters
    require. ``masked_state`` is ``desired`` with its secrets still masked.
    """
    current_settings = find_current_settings(host_name, base, current.observed)
    needed_actions = list_required_actions(desired, host_name, current_settings)
    plan = plan_host(desired.hosts[host_name], current.observed, needed_actions)
    masked_files = (masked_state or desired).hosts[host_name].files
    masked_contents = {
        path: mask_secret_bytes(masked_files[path].content or b"") for path in plan.files_to_write
    }
    changed_paths = (*plan.files_to_write, *plan.files_to_remove)
    return HostChanges(
        _format_masked_diff(host_name, changed_paths, current, desired, masked_contents),
        changed_paths,
        {
            sysctl_name: (current.observed.sysctls.get(sysctl_name) or "", value)
            for sysctl_name, value in plan.sysctls.items()
        },
        {
            **{
                unit: UnitChange(STOP_ACTION, ("another deployment",))
                for unit in plan.units_to_stop
            },
            **{
                unit: UnitChange(
                    action.name.lower(),
                    _find_reasons(
                        host_name, unit, plan, current, desired, current_settings, needed_actions
                    ),
                )
                for unit, action in plan.unit_actions.items()
            },
        },
    )


def find_current_settings(
    host_name: str, base: DesiredState, observed: ObservedHost
) -> Settings | None:
    """Return the settings of ``base`` if the host's files match ``base``, else ``None``."""
    has_base_files = all(
        path in observed.files and observed.files[path].matches(file)
        for path, file in base.hosts[host_name].files.items()
    )
    return base.settings if has_base_files else None


def _find_reasons(
    host: str,
    unit: str,
    plan: HostPlan,
    current_host: CurrentHost,
    desired_state: DesiredState,
    old_settings: Settings | None,
    required_actions: RequiredActions,
) -> tuple[str, ...]:
    """Return the reasons for a unit's action: changed parameters and kernel values, or else changed
    files.
    """
    if not current_host.observed.units[unit].active:
        return ("it is not running",)
    causes = tuple(
        cause
        for cause in (*plan.files_to_write, *plan.files_to_remove, *plan.sysctls)
        if required_actions.get(cause, {}).get(unit, Action.NONE)
    )
    instances = [
        instance
        for instance in desired_state.instances_on(host)
        if desired_state.layout.unit_for(instance) == unit
    ]
    modified_parameters = [
        parameter
        for instance in instances
        if old_settings is not None
        for parameter in list_changed_parameters(instance, old_settings, desired_state.settings)
    ]
    causing_names = [
        p.name for p in modified_parameters if p.action is plan.unit_actions[unit]
    ] or [p.name for p in modified_parameters]
    changed_sysctls = tuple(cause for cause in causes if cause in plan.sysctls)
    return (*causing_names, *changed_sysctls) or causes
