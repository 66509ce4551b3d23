"""Read back a deployment: running units, files, and the effective values that the software reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.deploy.deploy_result import DeployResult, HostRecord, SettingMismatch
from autotune.deploy.desired_state import DesiredState, find_instance_actions
from autotune.deploy.host_state import HostPlan, ObservedHost
from autotune.deploy.runtime import LockedHosts, RuntimeHost
from autotune.errors import AutotuneError
from autotune.parameter_name import ParameterName
from autotune.services.base import Action, Settings, Value
from autotune.space.space import SearchSpace

UnitProcesses = Mapping[str, Mapping[str, tuple[int, int]]]


class StackNotReady(AutotuneError):
    """The services were started, but the stack does not respond correctly."""


@dataclass(frozen=True)
class ConfirmedState:
    """The last good deployment, with the processes of its units and the kernel values, both by host, when
    the deployment was confirmed.
    """

    desired: DesiredState
    deployed: DeployResult
    unit_processes: UnitProcesses
    sysctls: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)


def confirm_state(
    hosts: LockedHosts,
    desired: DesiredState,
    plans: Mapping[str, HostPlan],
    space: SearchSpace,
    *,
    is_first: bool,
    observed_before: Mapping[str, ObservedHost],
    records: Mapping[str, HostRecord],
) -> ConfirmedState:
    """Read back the deployment from every host, and return it if it is confirmed.

    ``observed_before`` contains the hosts' state before the deployment. Raises StackNotReady if a
    unit stopped, or if a file was changed, during the deployment.
    """
    read_back_results = hosts.run_on_hosts(
        desired.hosts, lambda host: read_back_host(desired, host)
    ).unwrap()
    observed = {host_name: state for host_name, (state, _) in read_back_results.items()}
    for host_name, plan in plans.items():
        restarts = expect_restarts(observed_before[host_name], plan)
        check_units_run(hosts[host_name], desired, restarts, observed[host_name])
        check_files_unchanged(host_name, desired, observed[host_name])
    effective_settings = merge_tier_values(
        desired, {host_name: values for host_name, (_, values) in read_back_results.items()}
    )
    changes_by_host = {host_name: _list_changes(plan) for host_name, plan in plans.items()}
    deploy_result = DeployResult(
        desired.files,
        find_instance_actions(
            desired,
            {host_name: plan.unit_actions for host_name, plan in plans.items()},
            changes_by_host,
            is_first=is_first,
        ),
        effective_settings,
        find_mismatches(
            desired.settings, effective_settings, space.active_parameters(desired.settings)
        ),
        records,
    )
    sysctls = {host_name: host.sysctls for host_name, host in observed.items()}
    return ConfirmedState(desired, deploy_result, find_unit_processes(observed), sysctls)


def _list_changes(plan: HostPlan) -> set[str]:
    """Return the paths and kernel parameters that a plan changes."""
    return {*plan.files_to_write, *plan.files_to_remove, *plan.sysctls}


def find_unit_processes(observed: Mapping[str, ObservedHost]) -> UnitProcesses:
    """Return the process ID and restart count of each unit, by host."""
    return {
        host_name: {name: (unit.pid, unit.restarts) for name, unit in host.units.items()}
        for host_name, host in observed.items()
    }


def read_back_host(
    desired: DesiredState, host: RuntimeHost
) -> tuple[ObservedHost, dict[str, Value]]:
    """Return the observed host, and its effective values by full parameter name."""
    readbacks = [
        (instance, readback)
        for instance in desired.instances_on(host.name)
        for readback in instance.service.list_readbacks(instance.placement)
    ]
    queries = [(instance, readback.argv) for instance, readback in readbacks]
    observed, printed_texts = host.observe_and_query(desired.hosts[host.name], queries)
    effective_values: dict[str, Value] = {}
    for (instance, readback), printed_text in zip(readbacks, printed_texts, strict=True):
        effective_values |= {
            f"{instance.parameter_prefix}.{name}": v
            for name, v in readback.parse(printed_text).items()
        }
    return observed, effective_values


def merge_tier_values(
    desired: DesiredState, values_by_host: Mapping[str, Settings]
) -> dict[str, Value]:
    """Return one effective value per parameter for all hosts of a tier.

    If effective values differ between hosts, a value that differs from the requested value is
    returned. A requested value is effective only if every host with the service reported it.
    """
    requested, effective_values = desired.settings, dict[str, Value]()
    for host_values in values_by_host.values():
        for name, value in host_values.items():
            known_value = effective_values.get(name)
            if known_value is None or (
                name in requested and _is_same_value(requested[name], known_value)
            ):
                effective_values[name] = value
    unreported_names = {
        name
        for host_name, host_values in values_by_host.items()
        for instance in desired.instances_on(host_name)
        for name in effective_values.keys() - host_values.keys()
        if ParameterName.parse(name).service_prefix == instance.parameter_prefix
    }
    return {
        name: value
        for name, value in effective_values.items()
        if name not in unreported_names
        or (name in requested and not _is_same_value(requested[name], value))
    }


def check_units_run(
    host: RuntimeHost,
    desired: DesiredState,
    earlier_restarts: Mapping[str, int],
    observed: ObservedHost,
) -> None:
    """Raise StackNotReady if a unit is not running, or if the service manager has restarted it more
    often than ``earlier_restarts``.
    """
    for unit, is_running in desired.hosts[host.name].units.items():
        current_unit = observed.units[unit]
        was_restarted = current_unit.restarting or current_unit.restarts > earlier_restarts[unit]
        if is_running and (was_restarted or not current_unit.active):
            restarted_units = (
                [f"{host.name}: {unit} stopped and was started again by the service manager"]
                if was_restarted
                else []
            )
            lines = [*restarted_units, *host.find_failures()]
            raise StackNotReady("; ".join(lines) or f"{host.name}: {unit} is not running")


def expect_restarts(observed_before: ObservedHost, plan: HostPlan) -> dict[str, int]:
    """Return how often the service manager has restarted each unit if none fails. A restart by autotune
    resets the count.
    """
    return {
        name: 0 if plan.unit_actions.get(name) is Action.RESTART else unit.restarts
        for name, unit in observed_before.units.items()
    }


def check_files_unchanged(host: str, desired: DesiredState, observed: ObservedHost) -> None:
    """Raise StackNotReady if another process changed a file during the deployment."""
    if changed_paths := _list_changed_files(host, desired, observed):
        raise StackNotReady(
            f"{host}: another process changed {', '.join(changed_paths)} during the deployment"
        )


def _list_changed_files(host: str, desired: DesiredState, observed: ObservedHost) -> list[str]:
    return [
        path
        for path, file in desired.hosts[host].files.items()
        if not observed.files[path].matches(file)
    ]


def list_foreign_changes(
    confirmed: ConfirmedState, observed: Mapping[str, ObservedHost]
) -> list[str]:
    """Return the files and kernel values of each host that other processes have changed since the
    deployment was confirmed.
    """
    names_by_host = {
        host: [
            *_list_changed_files(host, confirmed.desired, observed_host),
            *(
                name
                for name, value in confirmed.sysctls.get(host, {}).items()
                if observed_host.sysctls.get(name) != value
            ),
        ]
        for host, observed_host in observed.items()
    }
    return [f"{host}: {', '.join(names)}" for host, names in names_by_host.items() if names]


def find_mismatches(
    requested: Settings, effective: Settings, active_names: frozenset[str]
) -> tuple[SettingMismatch, ...]:
    """Return the parameters in ``active_names`` whose effective values differ from the requested
    values.
    """
    return tuple(
        SettingMismatch(name, requested[name], value)
        for name, value in sorted(effective.items())
        if name in requested and name in active_names and not _is_same_value(requested[name], value)
    )


def _is_same_value(requested_value: Value, effective_value: Value) -> bool:
    if isinstance(requested_value, str) or isinstance(effective_value, str):
        return str(requested_value) == str(effective_value)
    # Servers print fractions with only two decimal places.
    return abs(float(requested_value) - float(effective_value)) < 0.006
