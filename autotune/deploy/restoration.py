"""Restore locked hosts from their backups, back-end tiers first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from autotune.deploy.desired_state import plan_host
from autotune.deploy.host import ManagedHost
from autotune.deploy.host_state import (
    HostPlan,
    HostState,
    ObservedHost,
    PlanStep,
    list_differences,
    list_shared_directories,
    split_into_steps,
    was_replaced_by_others,
)
from autotune.errors import AutotuneError
from autotune.services.base import Action
from autotune.target.messages import format_count
from autotune.transports.parallel_hosts import HostResults, run_on_all

Permissions = tuple[int | None, str | None, str | None]  # mode, owner and ACL of a file


@dataclass
class HostRestore:
    """The restore of one host: its original state, the plan, and the steps that failed."""

    host: ManagedHost
    desired: HostState
    plan: HostPlan
    refusals: list[str]
    failed: list[str] = field(default_factory=list)


def restore_in_order(hosts: Iterable[ManagedHost]) -> HostResults[tuple[str, ...]]:
    """Restore files, owners, modes, kernel values and units. Return lines about each host.

    Every unit that was running before the study is restarted, because autotune cannot determine
    which files the unit read. A tier starts when all tiers behind it are ready. Missing units and
    kernel values are skipped. An original file that the software now refuses does not replace a
    working file. If an original file is refused, or if the host still differs from its backup, the
    result is an error and the backup is kept.
    """

    def run_step(step: PlanStep, host: ManagedHost) -> None:
        host_restore = restores_by_host[host.name]
        host_restore.failed += host.restore(host_restore.desired, step[host.name])

    changed_hosts = {host.name: host for host in hosts}
    begin_results = run_on_all(changed_hosts.values(), _begin_restore)
    restores_by_host = {
        name: restore for name, restore in begin_results.results.items() if restore is not None
    }
    errors = dict(begin_results.errors)
    starts = {name: restore.desired.starts for name, restore in restores_by_host.items()}
    for step in split_into_steps(
        {name: planned_restore.plan for name, planned_restore in restores_by_host.items()}, starts
    ):
        step_hosts = [changed_hosts[name] for name in step if name not in errors]
        errors |= run_on_all(step_hosts, partial(run_step, step)).errors
    remaining_hosts = [changed_hosts[name] for name in restores_by_host if name not in errors]
    finish_results = run_on_all(
        remaining_hosts, lambda host: _finish_restore(restores_by_host[host.name])
    )
    unchanged_hosts = {
        name: () for name, restore in begin_results.results.items() if restore is None
    }
    results_by_host = {**unchanged_hosts, **finish_results.results}
    return HostResults(
        {name: results_by_host[name] for name in changed_hosts if name in results_by_host},
        errors | finish_results.errors,
    )


def _begin_restore(host: ManagedHost) -> HostRestore | None:
    """Return the restore of a host, or ``None`` if the host was not changed."""
    if not host.is_changed:
        return None
    host.remove_staged()
    observed = host.observe(host.original_state)
    # autotune changes only the content of files that existed before the study.
    permissions = {
        path: (file.mode, file.owner, file.acl)
        for path, file in host.original_state.files.items()
        if path in host.backup.last_written and file.content is not None
    }
    for path in _list_replaced_permissions(permissions, observed):
        host.note(
            f"{host.name}: replaced the mode, owner or ACL of {path}, which others had set, with the "
            "original"
        )
    desired, refusals = host.select_restorable(_find_restorable_state(host, observed), observed)
    plan = plan_host(desired, observed, {}, dict.fromkeys(desired.units, Action.RESTART))
    return HostRestore(host, desired, plan, refusals)


def _finish_restore(host_restore: HostRestore) -> tuple[str, ...]:
    """Delete the backups of a restored host. Raises AutotuneError if the host differs from its
    backup.
    """
    host, desired_state, plan = host_restore.host, host_restore.desired, host_restore.plan
    errors, observed = list(host_restore.refusals), host.observe(desired_state)
    for directory in list_shared_directories(desired_state, observed):
        host.note(f"{host.name}: {directory} is kept, because others have added files to it")
    if differences := list_differences(desired_state, observed):
        errors += [
            f"{host.name} differs from its backup: {', '.join(differences)}",
            *host_restore.failed,
        ]
        errors += [
            f"{path} had the ACL {file.acl}: restore it with `setfacl --set`"
            for path, file in desired_state.files.items()
            if path in differences and file.acl
        ]
    if errors:
        raise AutotuneError("\n".join([*host.notes, *errors]))
    host.delete_backups()
    for line in host_restore.failed:
        host.note(f"{host.name}: {line}")
    file_count = format_count(len(plan.files_to_write) + len(plan.files_to_remove), "file")
    unit_count = format_count(len(plan.unit_actions) + len(plan.units_to_stop), "unit")
    return (
        f"{host.name}: restored {file_count}, {format_count(len(plan.sysctls), 'sysctl')}, {unit_count}",
    )


def _find_restorable_state(host: ManagedHost, observed: ObservedHost) -> HostState:
    """Return the original state without missing units and kernel values, and without files that only
    others changed. Changes that others made are reported.
    """
    original_state = host.original_state
    existing_units = {unit for unit in original_state.units if observed.units[unit].exists}
    masked_units = _find_masked_units(existing_units, host.backup.enabled, observed)
    for unit in sorted(masked_units):
        host.note(f"{host.name}: skipped {unit}, which was masked after the backup")
    units = {
        unit: is_running
        for unit, is_running in original_state.units.items()
        if unit in existing_units - masked_units
    }
    existing_sysctls = {
        name: v for name, v in original_state.sysctls.items() if observed.sysctls[name] is not None
    }
    found_names = {*existing_units, *existing_sysctls, *host.created_units}
    for missing_name in sorted({*original_state.units, *original_state.sysctls} - found_names):
        host.note(f"{host.name}: skipped {missing_name}, which no longer exists")
    host.note_foreign_values(existing_sysctls, observed.sysctls)
    foreign_paths = {
        path
        for path in original_state.files.keys() - host.backup.last_written.keys()
        # autotune may have removed a missing file, or created a directory
        if observed.files[path].kind not in ("absent", "directory")
        and not observed.files[path].matches(original_state.files[path])
    }
    for path in sorted(foreign_paths):
        host.note(f"{host.name}: {path} is not restored, because only others have changed it")
    enabled = {unit: starts for unit, starts in host.backup.toggled_units.items() if unit in units}
    return replace(
        original_state,
        files={path: f for path, f in original_state.files.items() if path not in foreign_paths},
        units=units,
        sysctls=existing_sysctls,
        enabled=enabled,
        definitions=_select_definitions(host, observed, units),
    )


def _find_masked_units(
    units: Iterable[str], enabled: Mapping[str, str], observed: ObservedHost
) -> set[str]:
    """Return the units that others have masked since the backup, which contains ``enabled``."""
    return {
        unit
        for unit in units
        if observed.units[unit].is_masked and enabled.get(unit) != observed.units[unit].enabled
    }


def _list_replaced_permissions(
    permissions: Mapping[str, Permissions], observed: ObservedHost
) -> list[str]:
    """Return the files whose mode, owner or ACL others have changed. ``permissions`` contains the
    originals of restored files, or ``None`` for unknown values.
    """
    return [
        path
        for path, (mode, owner, acl) in sorted(permissions.items())
        if observed.files[path].kind == "file"
        and not observed.files[path].has_permissions(mode, owner, acl)
    ]


def _select_definitions(
    host: ManagedHost, observed: ObservedHost, units: Mapping[str, bool]
) -> dict[str, str]:
    """Return the original definitions of running units, without units that others recreated after
    the backup. These units are reported, because a restore does not recreate them.
    """
    definitions = {}
    for unit, definition in host.backup.definitions.items():
        if not units.get(unit):
            continue
        if was_replaced_by_others(definition, observed.units[unit].definition):
            host.note(f"{host.name}: others have recreated {unit} since the backup")
        else:
            definitions[unit] = definition
    return definitions
