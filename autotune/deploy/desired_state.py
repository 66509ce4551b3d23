"""Derive the files and state of every host from settings, and plan the changes to each host."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath

from autotune.deploy.host_state import (
    FileState,
    HostPlan,
    HostState,
    ObservedHost,
    find_boot_changes,
)
from autotune.deploy.runtime import ConfigurationCheck, RuntimeLayout
from autotune.deploy.stack import ServiceInstance, Stack
from autotune.deploy.unit_start import UnitStart
from autotune.errors import AutotuneError
from autotune.masking import Outliner, find_secret_words, mask_secret_bytes, restore_secrets
from autotune.parameter_name import ParameterName, select_service_settings
from autotune.services.base import (
    Action,
    Endpoint,
    Parameter,
    Placement,
    Service,
    Settings,
    Value,
    resolve_config_files,
)
from autotune.services.registry import find_outliner
from autotune.target import runtimes
from autotune.target.model import Data
from autotune.target.shipped_files import find_shipped_directory

RenderedFiles = Mapping[str, Mapping[str, bytes]]  # by name of the instance, then by path
# Maps a path or kernel value to the units that its change affects. Each unit is mapped to the action
# that it needs.
RequiredActions = Mapping[str, Mapping[str, Action]]


@dataclass(frozen=True)
class DesiredState:
    """One deployment: its settings, instances and files, and the resulting state of every host."""

    settings: Settings
    instances: tuple[ServiceInstance, ...]
    rendered_files: RenderedFiles
    hosts: Mapping[str, HostState]
    layout: RuntimeLayout

    @property
    def files(self) -> dict[str, bytes]:
        """Return the files that must exist, by ``instance/path``, with their secrets masked."""
        absent_files = {
            (instance.name, path)
            for instance in self.instances
            for path in self.rendered_files[instance.name]
            if self.is_absent(instance, path)
        }
        return {
            f"{instance_name}/{path.removeprefix('/')}": mask_secret_bytes(content)
            for instance_name, files in self.rendered_files.items()
            for path, content in files.items()
            if (instance_name, path) not in absent_files
        }

    def is_absent(self, instance: ServiceInstance, path: str) -> bool:
        """True if a file of an instance must be absent. ``path`` is the path inside the service."""
        return (
            self.hosts[instance.placement.host]
            .files[self.layout.path_for(instance, path)]
            .is_absent
        )

    def with_secrets(self, originals: Mapping[str, HostState]) -> DesiredState:
        """Return the state with each placeholder replaced by the secret in the host's original file.

        Raises AutotuneError if a host's file contains secrets that differ from the masked secrets.
        """
        hosts = {}
        for host, host_state in self.hosts.items():
            backup = originals[host].files
            files = {
                path: file
                if file.content is None
                else replace(
                    file,
                    content=restore_secrets(
                        file.content,
                        backup.get(path, FileState()).content,
                        f"{host}: {path}",
                        self.find_outliner(host, path),
                    ),
                )
                for path, file in host_state.files.items()
            }
            hosts[host] = replace(host_state, files=files)
        return replace(self, hosts=hosts)

    def find_outliner(self, host: str, path: str) -> Outliner | None:
        """Return the function that finds the parts without secrets in a host's own file; ``None``
        for an unknown file.
        """
        for instance in self.instances_on(host):
            for service_path in self.rendered_files[instance.name]:
                if self.layout.path_for(instance, service_path) == path:
                    return find_outliner(instance.service, service_path)
        return None

    def find_secret_words(self, originals: Mapping[str, HostState]) -> frozenset[str]:
        """Return the words in the hosts' own files that no message may repeat."""
        words = frozenset[str]()
        for host, host_state in self.hosts.items():
            for path in {*host_state.files} & {*originals[host].files}:
                content = originals[host].files[path].content or b""
                words |= find_secret_words(content, self.find_outliner(host, path))
        return words

    def instances_on(self, host: str) -> tuple[ServiceInstance, ...]:
        return tuple(instance for instance in self.instances if instance.placement.host == host)

    def created_files(self, host: str) -> tuple[str, ...]:
        instances = () if self.layout.isolated else self.instances_on(host)
        return tuple(
            path
            for instance in instances
            for path in instance.service.list_created_files(instance.placement)
        )

    def build_checks(self, host: str, changing_paths: Collection[str]) -> list[ConfigurationCheck]:
        """Return the checks that validate the host's files whose paths are in ``changing_paths``."""
        checks = []
        for instance in self.instances_on(host):
            deployed_files = self.hosts[host].files
            # A validation may need the secrets that the rendered files mask.
            files = {
                path: deployed_files[self.layout.path_for(instance, path)].content or content
                for path, content in self.rendered_files[instance.name].items()
            }
            changing_files = tuple(
                path for path in files if self.layout.path_for(instance, path) in changing_paths
            )
            validation = (
                instance.service.build_validation(instance.placement, files)
                if changing_files
                else None
            )
            if validation is not None:
                checks.append(ConfigurationCheck(instance, validation, files, changing_files))
        return checks


def build_desired_state(
    settings: Settings,
    stack: Stack,
    files_of: Callable[[ServiceInstance], Mapping[str, bytes]],
    layout: RuntimeLayout,
    start_of: Callable[[ServiceInstance], UnitStart] | None = None,
) -> DesiredState:
    """Return the desired state of every host under ``settings``. Units of active instances run, and
    all other units are stopped.

    ``files_of`` returns an instance's files, and ``start_of`` describes the start of its unit. Raises
    AutotuneError if two instances need different contents of the same file on one host.
    """
    instances = stack.active_instances(settings)
    rendered_files = {instance.name: files_of(instance) for instance in instances}
    hosts = {
        host: _build_host_state(
            [instance for instance in instances if instance.placement.host == host],
            [
                instance
                for instance in stack.instances
                if instance.placement.host == host and instance not in instances
            ],
            rendered_files,
            settings,
            layout,
            start_of or partial(describe_start, find_ranks(stack)),
        )
        for host in stack.hosts
    }
    return DesiredState(settings, instances, rendered_files, hosts, layout)


def list_required_actions(
    desired: DesiredState, host: str, old_settings: Settings | None
) -> dict[str, dict[str, Action]]:
    """Return, for each file or kernel value, the least disruptive action with which a change takes
    effect in each unit.

    ``old_settings`` are the deployed settings; ``None`` if they are unknown.
    """
    actions_by_cause: dict[str, dict[str, Action]] = {}
    instances = desired.instances_on(host)
    for instance in instances:
        affected_units = _find_reading_units(instance, instances, desired.layout)
        action = Action.RESTART
        if old_settings is not None:
            changed = list_changed_parameters(instance, old_settings, desired.settings)
            action = max((parameter.action for parameter in changed), default=Action.RELOAD)
        for path in (
            desired.layout.path_for(instance, name)
            for name in desired.rendered_files[instance.name]
        ):
            if unit := desired.layout.unit_defined_by(path):
                actions_by_cause[path] = {unit: Action.RESTART}
            else:
                actions_by_cause[path] = {
                    u: action if desired.layout.can_reload(reader.service) else Action.RESTART
                    for u, reader in affected_units.items()
                }
        for key in _find_sysctls(instance, desired.settings):
            actions_by_cause[key] = _find_kernel_actions(instance, key, instances, desired.layout)
    for unit, (path, _) in desired.layout.build_unit_files(instances, desired.settings).items():
        actions_by_cause[path] = {unit: Action.RESTART}
    return actions_by_cause


def _find_kernel_actions(
    instance: ServiceInstance,
    kernel_key: str,
    instances: Iterable[ServiceInstance],
    layout: RuntimeLayout,
) -> dict[str, Action]:
    """Return the actions that a changed kernel value needs. It applies to the listening sockets of all
    tiers on the host.
    """
    needs_restart = any(
        p.name == kernel_key and p.action is Action.RESTART for p in instance.service.parameters
    )
    units = filter(None, map(layout.unit_for, instances)) if needs_restart else ()
    return dict.fromkeys(units, Action.RESTART)


def find_instance_actions(
    desired: DesiredState,
    host_actions: Mapping[str, Mapping[str, Action]],
    changed_paths: Mapping[str, set[str]],
    *,
    is_first: bool = False,
) -> dict[str, Action]:
    """Return the action of each instance, which is the action of its unit.

    If instances share a unit, only the unit's main instance and instances with changed files get the
    action. An instance without a unit is reloaded if one of its files changed; in a study's first
    deployment (``is_first``), it is restarted instead.
    """
    fallback_action = Action.RESTART if is_first else Action.RELOAD
    actions_by_cause: dict[str, Action] = {}
    main_instances = {
        (instance.placement.host, desired.layout.unit_for(instance)): instance
        for instance in desired.instances
    }
    for instance in desired.instances:
        unit = desired.layout.unit_for(instance)
        own_paths = {
            desired.layout.path_for(instance, name)
            for name in desired.rendered_files[instance.name]
        }
        own_paths |= set(_find_sysctls(instance, desired.settings))
        touched_paths = own_paths & changed_paths.get(instance.placement.host, set())
        if unit is not None and (
            touched_paths or main_instances[instance.placement.host, unit] is instance
        ):
            actions_by_cause[instance.name] = host_actions.get(instance.placement.host, {}).get(
                unit, Action.NONE
            )
        elif unit is not None:
            actions_by_cause[instance.name] = Action.NONE
        else:
            actions_by_cause[instance.name] = fallback_action if touched_paths else Action.NONE
    return actions_by_cause


def _build_host_state(
    active_instances: Sequence[ServiceInstance],
    inactive_instances: Sequence[ServiceInstance],
    rendered_files: RenderedFiles,
    settings: Settings,
    layout: RuntimeLayout,
    start_of: Callable[[ServiceInstance], UnitStart],
) -> HostState:
    running_instances = {
        unit: instance
        for instance in active_instances
        if (unit := layout.unit_for(instance))
        and not (instance.placement.adopted and instance.placement.adopted.loses)
    }
    stopped_units = [
        unit
        for instance in inactive_instances
        if (unit := layout.unit_for(instance)) and unit not in running_instances
    ]
    sysctls: dict[str, str] = {}
    for instance in active_instances:
        sysctls |= {
            key: " ".join(value.split()) for key, value in _find_sysctls(instance, settings).items()
        }
    files = _build_file_states(active_instances, rendered_files, layout)
    unit_files = layout.build_unit_files(active_instances, settings).values()
    files |= {path: FileState(content, 0o644) for path, content in unit_files}
    removed_files = dict.fromkeys(_list_removed_paths(inactive_instances, layout), FileState())
    return HostState(
        removed_files | files,
        {**dict.fromkeys(running_instances, True), **dict.fromkeys(stopped_units, False)},
        sysctls,
        {unit: start_of(instance) for unit, instance in running_instances.items()},
        in_process_reloads=frozenset(
            u for u, p in running_instances.items() if p.service.reload_keeps_processes
        ),
    )


def _list_removed_paths(
    inactive_instances: Iterable[ServiceInstance], layout: RuntimeLayout
) -> list[str]:
    """Return the paths of the files that are removed while their services do not run.

    These are all files of private servers. For installed services, they are only the units that autotune
    itself writes.
    """
    return [
        path
        for instance in inactive_instances
        for file in resolve_config_files(instance.service, instance.placement)
        if (path := layout.path_for(instance, file.path))
        and (
            layout.removes_inactive
            or (
                instance.placement.adopted is None
                and PurePosixPath(path).name == layout.unit_for(instance)
            )
        )
    ]


def _build_file_states(
    instances: Sequence[ServiceInstance], rendered_files: RenderedFiles, layout: RuntimeLayout
) -> dict[str, FileState]:
    states_by_path: dict[str, FileState] = {}
    writers_by_path: dict[str, str] = {}
    for instance in instances:
        files = {
            file.path: file for file in resolve_config_files(instance.service, instance.placement)
        }
        for service_path, content in rendered_files[instance.name].items():
            path = layout.path_for(instance, service_path)
            if path in states_by_path and (states_by_path[path].content or b"") != content:
                raise AutotuneError(
                    f"{writers_by_path[path]} and {instance.name} both need {path} on "
                    f"{instance.placement.host}",
                    hint="give each tier separate hosts, or use "
                    f"{runtimes.format_runtime_names(installed=False)}",
                )
            # A container needs a file to mount, or the engine would create a directory.
            is_absent = files[service_path].optional and not content and not layout.isolated
            states_by_path[path] = (
                FileState()
                if is_absent
                else FileState(
                    content,
                    layout.mode_for(files[service_path]),
                    new_mode=files[service_path].mode,
                )
            )
            writers_by_path[path] = instance.name
    return states_by_path


def _find_reading_units(
    instance: ServiceInstance, instances: Iterable[ServiceInstance], layout: RuntimeLayout
) -> dict[str, ServiceInstance]:
    """Return the units that read an instance's files: its own unit or, without an own unit, the units
    of its tier on the host.
    """
    own_unit = layout.unit_for(instance)
    if own_unit is not None:
        return {own_unit: instance}
    return {
        unit: other
        for other in instances
        if other.placement.tier == instance.placement.tier and (unit := layout.unit_for(other))
    }


def list_changed_parameters(
    instance: ServiceInstance, old_settings: Settings, new_settings: Settings
) -> list[Parameter]:
    """Return an instance's parameters whose old and new values differ."""
    old_values, new = (
        select_service_settings(settings, instance.parameter_prefix)
        for settings in (old_settings, new_settings)
    )
    return [p for p in instance.service.parameters if old_values.get(p.name) != new.get(p.name)]


def _find_sysctls(instance: ServiceInstance, settings: Settings) -> Mapping[str, str]:
    return instance.service.build_sysctls(instance.placement, settings)


def find_ranks(stack: Stack) -> dict[str, int]:
    """Return the rank of each tier in the start order: the number of tiers that the tier calls."""
    return {tier: len(called_tiers) for tier, called_tiers in stack.called_tiers.items()}


def describe_start(ranks: Mapping[str, int], instance: ServiceInstance) -> UnitStart:
    """Return the start rank and address of an instance's unit, without a page for a readiness check."""
    return UnitStart(ranks.get(instance.placement.tier, 0), _find_listen_address(instance))


def _find_listen_address(instance: ServiceInstance) -> str:
    location = instance.service.get_socket(instance.placement)
    return str(location.port) if isinstance(location, Endpoint) else location or ""


# -- rendered files of an instance ------------------------------------------------------------------


def render_files(
    service: Service,
    placement: Placement,
    settings: Settings,
    data_set: Data,
    overrides: Path | None = None,
) -> dict[str, bytes]:
    """Return the files of one service in one placement, as a mapping from path to content.

    Templates use bare names for the service's own settings. The settings of all services in the tier are
    also in a mapping, by service. ``overrides`` is the user's template directory, which takes precedence.
    Raises RenderError.
    """
    from autotune.deploy.templates import render_file  # Jinja2 is slow to load

    by_service: dict[str, dict[str, Value]] = {}
    for full_name, setting_value in settings.items():
        parsed_name = ParameterName.parse(full_name)
        if parsed_name.tier == placement.tier and parsed_name.parameter:
            by_service.setdefault(parsed_name.service, {})[parsed_name.parameter] = setting_value
    directories = (*((overrides,) if overrides else ()), find_shipped_directory("templates"))
    own_settings = by_service.get(service.name, {})
    template_values = {**own_settings, "site": placement, "data": data_set, "beside": by_service}
    return {
        file.path: render_file(directories, file.template, template_values, file.text)
        for file in resolve_config_files(service, placement)
    }


# -- plan for a host --------------------------------------------------------------------------------


def plan_host(
    desired: HostState,
    observed: ObservedHost,
    required: RequiredActions,
    forced_actions: Mapping[str, Action] | None = None,
) -> HostPlan:
    """Return the smallest plan that brings a host into the desired state.

    Units in ``forced_actions`` get an action even if nothing changed, because the units may have read
    files that no longer exist. After a killed tuner, the service manager may also have read such files.
    """
    changed_paths = [
        path for path, state in desired.files.items() if not observed.files[path].matches(state)
    ]
    changed_sysctls = {
        name: value
        for name, value in desired.sysctls.items()
        if observed.sysctls.get(name) not in (None, value)
    }
    unit_actions = _plan_unit_actions(
        desired, observed, required, (*changed_paths, *changed_sysctls), forced_actions or {}
    )
    idle_units = [unit for unit, is_running in desired.units.items() if not is_running]
    removed_paths = [path for path in changed_paths if desired.files[path].is_absent]
    return HostPlan(
        units_to_stop=tuple(
            u for u in idle_units if u in observed.units and observed.units[u].active
        ),
        files_to_write=tuple(path for path in changed_paths if path not in removed_paths),
        files_to_remove=tuple(
            sorted(removed_paths, key=len, reverse=True)
        ),  # remove a directory after its contents
        sysctls=changed_sysctls,
        unread_files=tuple(desired.files if forced_actions else changed_paths),
        unit_actions=unit_actions,
        boot_changes=find_boot_changes(desired, observed),
        replaced={
            **{path: observed.files[path].detail for path in changed_paths},
            **{
                name: value
                for name in changed_sysctls
                if (value := observed.sysctls[name]) is not None
            },
        },
    )


def _plan_unit_actions(
    desired_state: HostState,
    observed_host: ObservedHost,
    required_actions: RequiredActions,
    causes: Iterable[str],
    forced_actions: Mapping[str, Action],
) -> dict[str, Action]:
    """Return the actions for units that must run: forced actions, actions that ``causes`` require,
    and restarts of inactive units.
    """
    unit_actions = {u: action for u, action in forced_actions.items() if desired_state.units.get(u)}
    for cause in causes:
        for unit, action in required_actions.get(cause, {}).items():
            unit_actions[unit] = max(action, unit_actions.get(unit, Action.NONE))
    for unit, is_running in desired_state.units.items():
        if is_running and not observed_host.units[unit].active:
            unit_actions[unit] = Action.RESTART
    return {
        u: unit_actions[u]
        for u in desired_state.units
        if desired_state.units[u] and unit_actions.get(u, Action.NONE)
    }
