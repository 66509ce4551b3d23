"""Check on the hosts, before the first change, whether the requirements of a stack are met."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.deploy.host_commands import Command, run_commands
from autotune.deploy.stack import ServiceInstance
from autotune.discovery.host_templates import REPLACE_FILES_HINT
from autotune.environments.stack_files import StackFiles
from autotune.errors import AutotuneError
from autotune.masking import mask_secrets
from autotune.services.base import Argv, Role, Settings


def require_applications(stack_files: StackFiles, instances: Sequence[ServiceInstance]) -> None:
    """Raise TargetError if files on a host are edited but the host lacks autotune's application."""
    for instance in instances:
        tier = instance.placement.tier
        if instance.placement.role is Role.APP and stack_files.file.target.edits_host_files(tier):
            paths = [
                config_file.path
                for config_file in instance.service.list_config_files(instance.placement)
            ]
            commands = [Command(("test", "-e", path)) for path in paths]
            command_results = run_commands(
                stack_files.transports[instance.placement.host], commands
            )
            for path in (
                p
                for p, command_result in zip(paths, command_results, strict=True)
                if not command_result.ok
            ):
                message = (
                    f"{instance.placement.host} does not serve {instance.service.title}: {path} does not "
                    "exist"
                )
                hint = "remove `app:` to tune the existing site; in a lab, run `autotune lab up`"
                raise stack_files.file.document.build_error(
                    ["tiers", tier, "app"], message, hint=f"{hint}, {REPLACE_FILES_HINT}"
                )


def require_safe_restarts(
    stack_files: StackFiles, settings: Settings, instances: Sequence[ServiceInstance]
) -> None:
    """Raise AutotuneError if a restart, as at the end of each study, would lose settings or data, would
    stop a cluster, or would fail because the software refuses its own files.
    """
    _require_persisted_state(stack_files, settings, instances)
    for instance in () if stack_files.runtime.layout.isolated else instances:
        argv = _build_own_check(stack_files, instance, settings)
        if argv is None:
            continue
        host = instance.placement.host
        (result,) = run_commands(stack_files.transports[host], [Command(argv)], timeout=60.0)
        if not result.ok:
            title, reason = instance.service.title, mask_secrets(result.error_text)
            raise AutotuneError(
                f"{host}: {title} refuses its own files, so it would not start again: {reason}",
                hint="correct the files on the host, then repeat the command",
            )


def _build_own_check(
    stack_files: StackFiles, instance: ServiceInstance, settings: Settings
) -> Argv | None:
    """Return the command with which the software validates the host's own files, which autotune edits.

    The result is ``None`` if there is no such command, if a file does not exist yet, or if the command
    contains words from files, because these may be masked. Application servers are not checked, because
    a check outside of their unit may lack something that the application needs.
    """
    placement, adopted = instance.placement, instance.placement.adopted
    if adopted is None or not adopted.files or adopted.loses or placement.role is Role.APP:
        return None
    files = stack_files.render(instance, settings)
    if any(file.optional and not files[file.path] for file in adopted.files):
        return None
    validation = instance.service.build_validation(placement, files)
    if validation != instance.service.build_validation(placement, dict.fromkeys(files, b"")):
        return None
    return validation if isinstance(validation, tuple) else None


def _require_persisted_state(
    stack_files: StackFiles, settings: Settings, instances: Sequence[ServiceInstance]
) -> None:
    """Raise AutotuneError if a restart would lose settings or data, or would stop a cluster."""
    target = stack_files.file.target
    for instance in instances:
        argv = instance.service.build_unpersisted_check(
            instance.placement,
            stack_files.render(instance, settings),
            allows_data_loss=target.tiers[instance.placement.tier].allow_data_loss,
        )
        if argv and (check_output := _run_on_host(stack_files, instance, argv)):
            sentence, _, hint = check_output.partition("\n")
            raise AutotuneError(
                f"{instance.placement.host}: {instance.service.title} {sentence}", hint=hint
            )


def _run_on_host(stack_files: StackFiles, instance: ServiceInstance, argv: Argv) -> str:
    """Run a command where the instance runs, and return its output without surrounding blanks."""
    service_manager = stack_files.runtime.service_manager
    if service_manager and service_manager.wrap_command:
        argv = service_manager.wrap_command(instance.placement, argv)
    shell_functions = service_manager.shell_functions if service_manager else ""
    host = stack_files.transports[instance.placement.host]
    (command_result,) = run_commands(host, [Command(argv)], functions=shell_functions)
    return command_result.stdout.strip()
