"""Runtime `containers`: services of a Compose project (Docker or Podman) on their hosts.

A unit is a service of the Compose project. The unit's configuration files are in autotune's directory
on the host. An additional Compose file mounts the unit's files over the container's files. The user's
files and image are not changed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from posixpath import dirname

from autotune.deploy.host_commands import Command, run_required
from autotune.deploy.host_state import ObservedUnit, ServiceManager, wrap_parse_errors
from autotune.deploy.managed_hosts import ManagedHosts
from autotune.deploy.programs import find_installed_programs
from autotune.deploy.runtime import (
    NoteCallback,
    ProgramUser,
    Runtime,
    RuntimeLayout,
    ValidationCases,
)
from autotune.deploy.stack import ServiceInstance, Stack, StackContext, build_stack
from autotune.deploy.staged_cases import IGNORE_BROKEN_PIPE, fill_secrets, mask_message
from autotune.deploy.staging import staged_path
from autotune.masking import has_placeholder
from autotune.services.base import (
    AdoptedConfig,
    Argv,
    ConfigFile,
    Placement,
    Service,
    Settings,
    TrialStart,
    resolve_config_files,
)
from autotune.services.config_files import unpack_tree
from autotune.space.facts import HostFacts
from autotune.strict_parsing import parse_uint, split_lines
from autotune.target.model import Target
from autotune.target.read_target import TargetFile
from autotune.transports.base import Transport
from autotune.transports.facts import read_facts
from autotune.transports.parallel_hosts import run_on_all
from autotune.transports.target_hosts import create_transports

FILES_DIRECTORY = "/var/lib/autotune-containers"
VALIDATION_DIRECTORY = "/run/autotune-check"
# Seconds that a check may take, and that a server must keep running in a trial start.
VALIDATION_SECONDS, TRIAL_START_SECONDS = 30, 3
RUNNING_STATES = frozenset({"running", "restarting"})


def parse_units(unit_names: tuple[str, ...], units_output: str) -> dict[str, ObservedUnit]:
    """Return the state of each unit in ``unit_names``, from the output of the shell function ``units``.
    Raises AutotuneError for invalid output.
    """
    with wrap_parse_errors("containers", units_output):
        return {
            name: _parse_unit(line)
            for name, line in zip(unit_names, split_lines(units_output), strict=True)
        }


def _parse_unit(line: str) -> ObservedUnit:
    """Return the state of one unit from a line of output. Raises ValueError."""
    exists_word, state_word, pid, restarts_text, definition = f"{line} ".split(" ", 4)
    return ObservedUnit(
        exists=exists_word == "yes",
        active=state_word in RUNNING_STATES,
        enabled="",
        pid=parse_uint(pid),
        restarts=parse_uint(restarts_text),
        restarting=state_word == "restarting",
        definition=definition.strip(),
    )


class ContainerLayout(RuntimeLayout):
    """The layout of a host with one directory per service, for the files in the service's container."""

    isolated = True

    def path_for(self, instance: ServiceInstance, path: str) -> str:
        return _get_host_path(instance.placement, path)

    def mode_for(self, file: ConfigFile) -> int:
        return file.mode

    def unit_for(self, instance: ServiceInstance) -> str | None:
        return instance.placement.unit if instance.service.get_unit(instance.placement) else None

    def build_unit_files(
        self, active: Sequence[ServiceInstance], settings: Settings
    ) -> dict[str, tuple[str, bytes]]:
        """Return the Compose files that mount each service's new files over the files in its
        container.
        """
        instances_by_unit: dict[str, list[ServiceInstance]] = {}
        for instance in active:
            instances_by_unit.setdefault(instance.placement.unit, []).append(instance)
        return {
            unit: (
                f"{instances[0].placement.directory}/override.json",
                _format_override(unit, instances, settings),
            )
            for unit, instances in instances_by_unit.items()
        }


LAYOUT = ContainerLayout()


def _get_host_path(placement: Placement, container_path: str) -> str:
    return f"{placement.directory}/files{container_path}"


def _format_override(unit: str, instances: Sequence[ServiceInstance], settings: Settings) -> bytes:
    """Return the Compose override file as JSON, which is valid YAML. Each container that is created
    from the file gets a label with the file's digest.
    """
    mounted_files = [
        (instance.placement, file.path)
        for instance in instances
        for file in resolve_config_files(instance.service, instance.placement)
    ]
    override_definition: dict[str, object] = {
        "volumes": [f"{_get_host_path(*location)}:{location[1]}:ro" for location in mounted_files]
    }
    for instance in instances:
        override_definition |= instance.service.build_container_limits(instance.placement, settings)
    reload_signals = [
        instance.service.reload_signal for instance in instances if instance.service.reload_signal
    ]
    settings_digest = hashlib.sha256(
        json.dumps(override_definition, sort_keys=True).encode()
    ).hexdigest()
    override_definition["labels"] = {
        "autotune": settings_digest,
        "autotune.signal": (*reload_signals, "HUP")[0],
    }
    override = {"services": {unit.rpartition(":")[2]: override_definition}}
    return (json.dumps(override, indent=1) + "\n").encode()


def _build_inside_command(placement: Placement, argv: Argv) -> Argv:
    return ("inside", placement.unit, *argv)


def _build_copy_command(
    placement: Placement, validation: Argv | TrialStart, mounted_paths: Mapping[str, str]
) -> Argv:
    """Return the command with which the software checks files in a copy of the running container.

    ``mounted_paths`` maps paths in the container to paths on the host.
    """
    argv, start_words = (
        (validation.argv, ("starts",)) if isinstance(validation, TrialStart) else (validation, ())
    )
    mount_options = [f"--volume={host_path}:{path}:ro" for path, host_path in mounted_paths.items()]
    limit_seconds = str(TRIAL_START_SECONDS if start_words else VALIDATION_SECONDS)
    return (
        "aside",
        *start_words,
        placement.unit,
        limit_seconds,
        *mount_options,
        "--entrypoint",
        argv[0],
        "--",
        *argv[1:],
    )


def _build_validation_command(
    placement: Placement,
    validation: Argv | TrialStart,
    paths: Sequence[str],
    changed_paths: Sequence[str],
) -> Argv:
    """Return the command that checks all of an instance's files together, with staged versions of
    changed files.
    """
    location_by_path = {path: _get_host_path(placement, path) for path in paths}
    return _build_copy_command(
        placement,
        validation,
        {
            path: staged_path(file_location) if path in changed_paths else file_location
            for path, file_location in location_by_path.items()
        },
    )


SERVICE_MANAGER = ServiceManager(
    Path(__file__).with_suffix(".sh").read_text(encoding="utf-8"),
    parse_units,
    FILES_DIRECTORY,
    wrap_command=_build_inside_command,
    validate_command=_build_validation_command,
)


class Containers(Runtime):
    """Runtime for the services of a Compose project, which autotune recreates and restores."""

    installed = True
    layout = LAYOUT
    service_manager = SERVICE_MANAGER

    def create_transports(self, file: TargetFile) -> dict[str, Transport]:
        if file.target.project is None:
            raise file.document.build_error(
                ["tiers"],
                "the Compose project of these tiers is missing",
                hint="add for example `project: {name: shop, files: /srv/shop/compose.yaml}`",
            )
        for name, tier in file.target.tiers.items():
            if (
                len(tier.service) > 1
                or tier.app
                or tier.local_cache
                or not file.target.edits_host_files(name)
            ):
                raise file.document.build_error(
                    ["tiers", name],
                    f"tier {name}: the container image determines the software, and autotune can only "
                    "edit existing files of this software",
                    hint="use one `service:` without `app:`, `local_cache:`, `replace:` and `templates:`",
                )
        return create_transports(file)

    def read_facts(
        self, target: Target, transports: Mapping[str, Transport]
    ) -> dict[str, HostFacts]:
        return read_facts(target, transports)

    def find_programs(
        self, needed: Mapping[str, Sequence[ProgramUser]], transports: Mapping[str, Transport]
    ) -> dict[str, dict[str, str]]:
        """Return each host's programs: services' programs in their containers, and load generators."""
        generators_by_host = {
            host: [
                program_user
                for program_user in program_users
                if not isinstance(program_user, Service)
            ]
            for host, program_users in needed.items()
        }
        load_programs = run_on_all(
            [transports[host] for host, generators in generators_by_host.items() if generators],
            lambda transport: find_installed_programs(
                transport, generators_by_host[transport.name]
            ),
        ).unwrap()
        return {
            host: {
                **{
                    name: paths[-1]
                    for program_user in program_users
                    if isinstance(program_user, Service)
                    for name, paths in program_user.programs.items()
                },
                **load_programs.get(host, {}),
            }
            for host, program_users in needed.items()
        }

    def build_stack(
        self,
        file: TargetFile,
        directory: str,
        facts: Mapping[str, HostFacts],
        programs: Mapping[str, Mapping[str, str]],
        adopted_configs: Mapping[str, AdoptedConfig],
    ) -> Stack:
        context = StackContext(
            FILES_DIRECTORY, {}, programs, facts, installed=True, adopted=adopted_configs
        )
        stack = build_stack(file.target, context)
        return replace(
            stack,
            instances=tuple(
                _place_in_container(file.target, instance) for instance in stack.instances
            ),
        )

    def read_isolated_files(
        self, transport: Transport, instances: Sequence[ServiceInstance]
    ) -> dict[str, bytes]:
        placed_paths = [
            (instance.placement, file.path)
            for instance in instances
            for file in resolve_config_files(instance.service, instance.placement)
        ]
        commands = [
            Command(("packed", placement.unit, path), required=True)
            for placement, path in placed_paths
        ]
        command_results = run_required(
            transport,
            commands,
            timeout=60.0 + 10.0 * len(placed_paths),
            functions=SERVICE_MANAGER.shell_functions,
        )
        contents_by_path = {}
        for (placement, path), command_result in zip(placed_paths, command_results, strict=True):
            if encoded_archive := command_result.stdout.strip():
                with wrap_parse_errors("files", "(not shown)"):
                    container_tree = unpack_tree(base64.b64decode(encoded_archive), dirname(path))
                if (real_path := container_tree.resolve(path)) in container_tree.files:
                    contents_by_path[_get_host_path(placement, path)] = container_tree.files[
                        real_path
                    ]
        return contents_by_path

    def _fill_masked_files(self, transport: Transport, cases: ValidationCases) -> ValidationCases:
        """Return the validation cases with masked values filled in from the services' own files."""
        masked_cases = [
            (instance, content_by_path)
            for instance, content_by_path in cases
            if any(map(has_placeholder, content_by_path.values()))
        ]
        container_files = (
            self.read_isolated_files(transport, [instance for instance, _ in masked_cases])
            if masked_cases
            else {}
        )
        return [
            (
                instance,
                fill_secrets(
                    instance,
                    content_by_path,
                    {
                        path: container_files.get(_get_host_path(instance.placement, path))
                        for path in content_by_path
                    },
                ),
            )
            for instance, content_by_path in cases
        ]

    def find_validation_errors(
        self, transport: Transport, cases: ValidationCases
    ) -> list[str | None]:
        commands: list[Command] = []
        check_indexes: list[int | None] = []
        # The path is unique, because another tuner may run a check at the same time.
        staging_directory = f"{VALIDATION_DIRECTORY}/{secrets.token_hex(8)}"
        cases = self._fill_masked_files(transport, cases)
        for case_number, (instance, files) in enumerate(cases):
            staged_paths = {path: f"{staging_directory}/{case_number}{path}" for path in files}
            validation = instance.service.build_validation(instance.placement, files)
            config_files = resolve_config_files(instance.service, instance.placement)
            modes_by_path = {file.path: file.mode for file in config_files}
            commands += [
                _build_stage_command(staged_paths[path], content, modes_by_path[path])
                for path, content in files.items()
            ]
            check_indexes.append(len(commands) if validation else None)
            commands += (
                [Command(_build_copy_command(instance.placement, validation, staged_paths))]
                if validation
                else []
            )
        remove_command = f"rm -rf {staging_directory}; rmdir {VALIDATION_DIRECTORY} 2>/dev/null"
        command_results = run_required(
            transport,
            commands,
            timeout=60.0 + 40.0 * len(cases),
            # The files may contain secrets, so they are also removed after an error.
            functions=f"{SERVICE_MANAGER.shell_functions}{IGNORE_BROKEN_PIPE}"
            f"trap '{remove_command}' EXIT\n",
        )
        check_results = [
            None if index is None else command_results[index] for index in check_indexes
        ]
        return [
            None
            if check is None or check.ok
            else mask_message(check.error_text, instance, files) or "no message"
            for check, (instance, files) in zip(check_results, cases, strict=True)
        ]

    def describe_hosts(self, stack: Stack, transports: Mapping[str, Transport]) -> Iterator[str]:
        """Yield a line with the reachable hosts, and a line for each container that autotune
        recreates.
        """
        yield f"reachable, as root: {', '.join(stack.hosts)}"
        for unit in dict.fromkeys(instance.placement.unit for instance in stack.instances):
            yield (
                f"{unit}: autotune recreates this container with changed files mounted, and at "
                f"the end without them"
            )

    def make_run_directory(self, study: Path) -> str:
        return FILES_DIRECTORY

    def create_hosts(
        self, stack: Stack, transports: Mapping[str, Transport], study: Path, note: NoteCallback
    ) -> ManagedHosts:
        return ManagedHosts(
            [transports[host] for host in stack.hosts], study, note, SERVICE_MANAGER
        )

    def build_archive_command(self, target: Target, tier: str, paths: Sequence[str]) -> Argv:
        return ("packed", _build_unit_name(target, tier), *paths)


def _build_stage_command(path: str, content: bytes, mode: int) -> Command:
    encoded_content = base64.b64encode(content).decode()
    return Command(("stage", "", path, f"{mode:04o}", "0:0", encoded_content, ""), required=True)


def _build_unit_name(target: Target, tier: str) -> str:
    project = target.project
    assert project is not None
    engine_account = f"{project.engine}@{project.account}" if project.account else project.engine
    compose_files, container_name = ",".join(project.files), target.tiers[tier].container or tier
    return f"{engine_account}:{project.name}:{compose_files}:{container_name}"


def _place_in_container(target: Target, instance: ServiceInstance) -> ServiceInstance:
    """Return the instance with its container as unit, and with the host's directory for its files."""
    unit = _build_unit_name(target, instance.placement.tier)
    assert target.project is not None
    directory = f"{FILES_DIRECTORY}/{target.project.name}/{unit.rpartition(':')[2]}"
    return replace(instance, placement=replace(instance.placement, unit=unit, directory=directory))


RUNTIME = Containers()
