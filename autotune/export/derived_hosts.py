"""Derive the hosts' files, units and commands in a trial's deployment from the target and its
services.

A study may come from someone else, but an export becomes commands that root runs. Only file
contents, settings and the original state of hosts come from the study's records. Paths, modes,
units and commands come from the services. A record that contradicts the services is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import product
from pathlib import PurePosixPath

from autotune.deploy import adopted_files
from autotune.deploy import stack as stacks
from autotune.deploy.deploy_result import (
    HostRecord,
    OriginalHost,
)
from autotune.deploy.desired_state import DesiredState, build_desired_state
from autotune.deploy.stack import ServiceInstance, Stack, StackContext
from autotune.discovery import host_templates
from autotune.environments.data_loss import list_editable_files
from autotune.environments.stack_files import find_template_overrides
from autotune.export.export_error import APPLY_HINT, RENDER_DIRECTORY, ExportError
from autotune.export.host_setup import HostSetup, build_host_setup
from autotune.export.setting_lines import check_lines
from autotune.export.unit_commands import can_run_commands, check_commands, is_below_pattern
from autotune.report.studies import Study
from autotune.runtimes import load_runtime
from autotune.services import unit_files
from autotune.services.base import AdoptedConfig, Settings, resolve_config_files
from autotune.services.registry import catalogue_of, find_adoption, list_target_services
from autotune.space.facts import PLACEHOLDER_FACTS
from autotune.study.recorded_environment import find_adopted_record
from autotune.study.study_state import Trial
from autotune.target.beds import build_bed_target
from autotune.target.field_types import FILE_PATTERN, UNIT_PATTERN
from autotune.target.model import Target
from autotune.target.read_target import read_target
from autotune.unified_diff import Hunk, split_lines

WEB_ACCOUNT = ("www-data", "www-data")


@dataclass(frozen=True)
class DerivedHosts:
    """The hosts as a trial's deployment sets them up: ``setups`` by host, and file ``contents`` by
    tier, host and path.

    ``edits``, by host and path, are the changes to files that the hosts already had.
    """

    setups: Mapping[str, HostSetup]
    contents: Mapping[tuple[str, str, str], bytes]
    edits: Mapping[tuple[str, str], tuple[Hunk, ...]]


def derive_hosts(
    study: Study,
    trial: Trial,
    recorded_files: Mapping[str, bytes],
    records: Mapping[str, HostRecord],
    baseline: tuple[Trial, Mapping[str, bytes]] | None,
) -> DerivedHosts:
    """Return the hosts as they are after a trial's deployment. ``recorded_files`` are the trial's files
    by ``instance/path``.

    ``baseline`` is the baseline's trial and files. If a host's original files match the baseline's
    files, the host's units get only the actions that changed parameters require. Raises AutotuneError
    if a record contradicts the target and its services.
    """
    desired_state = _derive_desired_state(study, trial, recorded_files, records)
    for host, record in records.items():
        _check_record_agreement(study, host, record, desired_state)
    baseline_state = (
        _derive_desired_state(study, baseline[0], baseline[1], records) if baseline else None
    )
    setups_by_host = {
        host: build_host_setup(
            desired_state, host, _find_settings_before(baseline_state, host, records[host].original)
        )
        for host in records
    }
    contents = {
        (instance.placement.tier, instance.placement.host, path): content
        for instance in desired_state.instances
        for path, content in desired_state.rendered_files[instance.name].items()
        if not desired_state.is_absent(instance, path)
    }
    edits = {
        (service_instance.placement.host, path): hunks
        for service_instance in desired_state.instances
        for path in desired_state.rendered_files[service_instance.name]
        if (hunks := _derive_edits(service_instance, path, records)) is not None
    }
    _check_contents(study, desired_state, records, edits)
    return DerivedHosts(setups_by_host, contents, edits)


def _check_contents(
    study: Study,
    desired_state: DesiredState,
    records: Mapping[str, HostRecord],
    edits: Mapping[tuple[str, str], tuple[Hunk, ...]],
) -> None:
    """Raise ExportError if a file contains commands, or changes of settings, that the services
    themselves would not write.
    """
    for instance in desired_state.instances:
        for path, content in desired_state.rendered_files[instance.name].items():
            hunks = edits.get((instance.placement.host, path))
            check_commands(study, desired_state, instance, path, content, hunks)
            if instance.placement.adopted is not None and not can_run_commands(path):
                original_digest = records[instance.placement.host].original.files.get(path)
                lines = _split_lines(study, path, content, original_digest, hunks)
                check_lines(study, instance, path, lines)


def _split_lines(
    study: Study, path: str, content: bytes, original: str | None, hunks: tuple[Hunk, ...] | None
) -> tuple[Hunk, ...]:
    """Return the changed lines of a file on a host: the recorded edits or, for a new file, all
    lines.
    """
    if hunks is not None:
        return hunks
    if original is None:
        return (Hunk(1, (), tuple(split_lines(content))),) if content else ()
    if sha256(content).hexdigest() == original:
        return ()
    raise ExportError(study, f"the study does not record which lines of {path} change", APPLY_HINT)


def _derive_edits(
    instance: ServiceInstance, path: str, records: Mapping[str, HostRecord]
) -> tuple[Hunk, ...] | None:
    """Return the recorded edits to a file that the host already had, if the service edits existing
    files.
    """
    record = records[instance.placement.host]
    if (
        instance.placement.adopted is None
        or path not in record.files
        or record.original.files.get(path) is None
    ):
        return None
    return record.files[path].edits


def _check_record_agreement(
    study: Study, host: str, record: HostRecord, desired_state: DesiredState
) -> None:
    if host not in desired_state.hosts:
        raise ExportError(
            study, f"the study deployed to {host!r}, but its target runs nothing there"
        )
    host_state = desired_state.hosts[host]
    for item_kind, recorded_items, derived_items in (
        ("unit", record.units, host_state.units),
        ("kernel value", record.sysctls, host_state.sysctls),
    ):
        for item_name in sorted({*recorded_items, *derived_items}):
            if recorded_items.get(item_name) != derived_items.get(item_name):
                raise ExportError(
                    study,
                    f"the record of {host} sets {item_kind} {item_name!r} to "
                    f"{recorded_items.get(item_name, 'nothing')}, but the services of the target set it "
                    f"to {derived_items.get(item_name, 'nothing')}",
                )


def _find_settings_before(
    baseline_state: DesiredState | None, host: str, original_host: OriginalHost
) -> Settings | None:
    """Return the settings that a host's files contained before the study. Without recorded settings,
    the result is the baseline's settings if the host's files matched the baseline.
    """
    if original_host.settings is not None:
        return original_host.settings
    if baseline_state is None or host not in baseline_state.hosts:
        return None
    matches_original = all(
        path in original_host.files
        and original_host.files[path]
        == (None if file.is_absent else sha256(file.content or b"").hexdigest())
        for path, file in baseline_state.hosts[host].files.items()
    )
    return baseline_state.settings if matches_original else None


def _derive_desired_state(
    study: Study, trial: Trial, files: Mapping[str, bytes], records: Mapping[str, HostRecord]
) -> DesiredState:
    target = _select_target(study, trial)
    contents = _group_by_instance(files)
    planned_stack = _build_stack(
        study, target, list_editable_files(target, _load_adopted_configs(study, trial))
    )
    active_instances = planned_stack.active_instances(trial.settings)
    if unknown_instances := sorted(contents.keys() - {part.name for part in active_instances}):
        raise ExportError(
            study,
            f"the study contains files of {unknown_instances[0]!r}, which its target does not run",
        )
    # Alternative deployments may use the same instance name. The files belong to the active deployment.
    selected_instances = [
        _select_programs(
            study,
            part,
            contents.get(part.name, {}) if part in active_instances else {},
            records.get(part.placement.host),
        )
        for part in planned_stack.instances
    ]
    layout = load_runtime(_find_runtime(target)).layout
    planned_stack = replace(planned_stack, instances=tuple(selected_instances))

    def get_files(instance: ServiceInstance) -> Mapping[str, bytes]:
        optional_files = {
            f.path: b""
            for f in resolve_config_files(instance.service, instance.placement)
            if f.optional
        }
        return {**optional_files, **contents.get(instance.name, {})}

    try:
        return build_desired_state(trial.settings, planned_stack, get_files, layout)
    except (KeyError, TypeError, ValueError) as error:
        raise ExportError(
            study, f"the settings of trial {trial.number} are incomplete: {error}"
        ) from (error)


def _select_target(study: Study, trial: Trial) -> Target:
    bed = trial.bed
    return build_bed_target(study.target, bed) if bed in study.target.beds else study.target


def _find_runtime(target: Target) -> str:
    return next(iter(target.tiers.values())).runtime


def _group_by_instance(files: Mapping[str, bytes]) -> dict[str, dict[str, bytes]]:
    """Return files, keyed by ``tier.host.service/path``, as instance → path → content."""
    instances: dict[str, dict[str, bytes]] = {}
    for file_key, content in files.items():
        instance, _, path = file_key.partition("/")
        instances.setdefault(instance, {})[f"/{path}"] = content
    return instances


def _build_stack(
    study: Study, target: Target, adopted_configs: Mapping[str, AdoptedConfig]
) -> Stack:
    """Return the stack, with the first possible name of each program. No host is contacted."""
    services = [tier_service.service for tier_service in list_target_services(target)]
    program_paths = {
        program_name: paths[0]
        for service in services
        for program_name, paths in service.programs.items()
    }
    context = StackContext(
        RENDER_DIRECTORY,
        {},
        dict.fromkeys(target.hosts, program_paths),
        # Any facts suffice, because facts affect values, but not names.
        dict.fromkeys(target.hosts, PLACEHOLDER_FACTS),
        *WEB_ACCOUNT,
        installed=True,
        adopted=adopted_configs,
    )
    planned_stack = stacks.build_stack(target, context)
    for instance in planned_stack.instances:
        if instance.placement.adopted is not None:
            _check_adopted_config(study, instance, instance.placement.adopted)
    return planned_stack


def _load_adopted_configs(study: Study, trial: Trial) -> dict[str, AdoptedConfig]:
    """Return the hosts' own files that were edited, from the target's templates and the study's
    records.

    Raises AutotuneError if the study does not record these files, because an export would then
    replace whole files.
    """
    adopted_record = find_adopted_record(study.records, trial.bed)
    if adopted_record is None:
        if not study.target.simulated:
            raise ExportError(study, "the study does not record which files of its hosts it edits")
        return {}
    adopted_configs = host_templates.from_record(adopted_record).adopted_configs
    _check_edited_tiers(study, _select_target(study, trial), adopted_configs)
    recorded_target = read_target(study.directory / "target.yaml")
    template_overrides = find_template_overrides(
        replace(recorded_target, document=replace(recorded_target.document, path=study.target_path))
    )
    return {**adopted_files.read_adopted_files(template_overrides), **adopted_configs}


def _check_edited_tiers(study: Study, target: Target, adopted: Mapping[str, AdoptedConfig]) -> None:
    """Raise AutotuneError if a tier's files are edited, but the files of a service are missing for
    one of the tier's hosts.
    """
    catalogue = catalogue_of(target)
    for tier_name, tier in target.tiers.items():
        for host in tier.hosts if target.edits_host_files(tier_name) else ():
            tier_configs = {
                instance.rpartition(".")[2]: config
                for instance, config in adopted.items()
                if instance.startswith(f"{tier_name}.{host}.")
            }
            deployments = {config.deployment for config in tier_configs.values()} - {""} or {
                *tier.service[:1]
            }
            services = {
                service.name
                for deployment in deployments
                if deployment in tier.service
                for service, _ in catalogue.services_of(deployment)
            }
            if missing_services := sorted(services - tier_configs.keys()):
                raise ExportError(
                    study,
                    f"the study does not record the files of {missing_services[0]} that it edits on "
                    f"{host}",
                )


# -- comparison of a record with the services -------------------------------------------------------


def _check_adopted_config(study: Study, instance: ServiceInstance, config: AdoptedConfig) -> None:
    """Raise AutotuneError for a recorded unit or file that autotune could not have found on the
    service's host.
    """
    adoption = find_adoption(instance.service)
    hint = "`autotune apply` reads the files on the host"
    if config.unit and not re.fullmatch(UNIT_PATTERN, config.unit):
        raise ExportError(study, f"{config.unit!r} is not a unit of {instance.name}", hint)
    for file in config.files:
        is_own_file = re.fullmatch(FILE_PATTERN, file.path) and (
            any(
                is_below_pattern(file.path, pattern)
                for pattern in (adoption.paths if adoption else ())
            )
            or _is_drop_in(file.path, instance)
        )
        if not is_own_file:
            raise ExportError(study, f"{instance.service.title} does not read {file.path!r}", hint)
        if file.mode & ~0o777:
            raise ExportError(
                study,
                f"mode {file.mode:o} of {file.path} is not allowed for a configuration file",
                hint,
            )


def _is_drop_in(path: str, instance: ServiceInstance) -> bool:
    unit = instance.service.get_unit(instance.placement)
    return unit is not None and PurePosixPath(path).parent == PurePosixPath(
        f"{unit_files.ADMIN_DIRECTORY}/{unit}.d"
    )


# -- programs of a service on a host ------------------------------------------------------------------


def _select_programs(
    study: Study, instance: ServiceInstance, files: Mapping[str, bytes], record: HostRecord | None
) -> ServiceInstance:
    """Return the instance with the program names that match its recorded files and unit.

    Program names such as `php-fpm8.2` contain versions. Raises AutotuneError if no candidate name
    matches.
    """
    units = record.units if record else {}
    loses_data = instance.placement.adopted is not None and instance.placement.adopted.loses
    matching_instances: list[ServiceInstance] = []
    for candidate in _list_program_choices(instance):
        paths = {file.path for file in resolve_config_files(candidate.service, candidate.placement)}
        if files.keys() <= paths:
            matching_instances.append(candidate)
            unit = candidate.service.get_unit(candidate.placement)
            if unit is None or loses_data or unit in units:
                return candidate
    if not matching_instances:
        paths = {file.path for file in resolve_config_files(instance.service, instance.placement)}
        unexpected_path = sorted(files.keys() - paths)[0]
        raise ExportError(study, f"{unexpected_path!r} is not a file of {instance.service.title}")
    return matching_instances[0]


def _list_program_choices(instance: ServiceInstance) -> Iterator[ServiceInstance]:
    programs = instance.service.programs
    for paths in product(*programs.values()):
        program_paths = dict(zip(programs, paths, strict=True))
        yield replace(instance, placement=replace(instance.placement, programs=program_paths))
