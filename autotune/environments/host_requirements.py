"""Check on the hosts, before the first change, whether the requirements of a stack are met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune.deploy.host_commands import Command, run_commands
from autotune.deploy.stack import ServiceInstance
from autotune.discovery.host_templates import REPLACE_FILES_HINT
from autotune.environments.stack_files import StackFiles
from autotune.errors import AutotuneError
from autotune.masking import mask_secrets
from autotune.services.base import Argv, Role, Settings
from autotune.strict_parsing import split_lines
from autotune.transports.base import Transport
from autotune.transports.parallel_hosts import run_on_all


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


def require_ready_servers(
    stack_files: StackFiles, settings: Settings, instances: Sequence[ServiceInstance]
) -> None:
    """Raise AutotuneError if a server cannot be restarted safely, or has not read its own files.

    The end of each study restarts the servers. Their own files are the baseline.
    """
    instances_by_host: dict[str, list[ServiceInstance]] = {}
    for instance in instances:
        instances_by_host.setdefault(instance.placement.host, []).append(instance)

    def require_ready_host(transport: Transport) -> None:
        for instance in instances_by_host[transport.name]:
            _require_ready_server(stack_files, instance, stack_files.render(instance, settings))

    transports = [stack_files.transports[host] for host in instances_by_host]
    run_on_all(transports, require_ready_host).unwrap()


def _require_ready_server(
    stack_files: StackFiles, instance: ServiceInstance, contents: Mapping[str, bytes]
) -> None:
    _require_persisted_state(stack_files, instance, contents)
    # The hosts of a resumed study may still have the files of a killed deployment.
    if stack_files.runtime.layout.isolated or stack_files.file.adopted is not None:
        return
    if paths := _list_own_files(instance, contents):
        _require_accepted_files(stack_files, instance, contents)
        _require_read_files(stack_files, instance, paths)


def _list_own_files(instance: ServiceInstance, contents: Mapping[str, bytes]) -> tuple[str, ...]:
    """Return the host's own files, which autotune edits; empty if one of them does not exist yet, or if
    the unit is not restarted.
    """
    adopted = instance.placement.adopted
    if adopted is None or not adopted.files or adopted.loses:
        return ()
    if any(file.optional and not contents[file.path] for file in adopted.files):
        return ()
    return tuple(file.path for file in adopted.files)


def _require_accepted_files(
    stack_files: StackFiles, instance: ServiceInstance, contents: Mapping[str, bytes]
) -> None:
    """Raise AutotuneError if software refuses its own files, so that a restart would stop it.

    Application servers are not checked, because a check outside of their unit may lack something that
    the application needs. Commands that contain words from files are not run, because these words may
    be masked.
    """
    service, placement = instance.service, instance.placement
    validation = service.build_validation(placement, contents)
    if (
        placement.role is Role.APP
        or not isinstance(validation, tuple)
        or validation != service.build_validation(placement, dict.fromkeys(contents, b""))
    ):
        return
    transport = stack_files.transports[placement.host]
    (result,) = run_commands(transport, [Command(validation)], timeout=60.0)
    if not result.ok:
        reason = mask_secrets(result.error_text)
        raise AutotuneError(
            f"{service.title} on {placement.host} refuses its own files and would not start again: "
            f"{reason}",
            hint="correct the files on the host or, after a killed study, run `autotune restore TARGET`",
        )


# Arguments: unit, file… Prints the files that were changed after the unit was last started or reloaded.
# Workers that started later have read them too, as after `nginx -s reload`.
_UNREAD_SCRIPT = r"""
exec 2>/dev/null
unit=$1
shift
changed=$(TZ=UTC systemctl show --value -p StateChangeTimestamp -- "$unit")
[ -n "$changed" ] && loaded=$(date -d "$changed" +%s) || exit
pid=$(systemctl show --value -p MainPID -- "$unit")
ticks=$(for child in $(cat "/proc/$pid/task/$pid/children"); do
    # Workers that only finish old connections do not count.
    grep -q 'shutting down' "/proc/$child/cmdline" || sed 's/.*) //' "/proc/$child/stat"
done | cut -d ' ' -f 20 | sort -n | head -n 1)
# Each of the three numbers is rounded down, so their sum may be too early.
started=$(($(date +%s) - $(cut -d . -f 1 /proc/uptime) + ${ticks:-0} / $(getconf CLK_TCK) + 1))
[ -z "$ticks" ] || [ "$started" -le "$loaded" ] || loaded=$started
find "$@" -maxdepth 0 -newermt "@$((loaded + 1))"
"""


def _require_read_files(
    stack_files: StackFiles, instance: ServiceInstance, paths: Sequence[str]
) -> None:
    """Raise AutotuneError if a file was changed after the unit had read it. The unit would run with
    other values than the baseline's, until the first reload.

    Software that rereads files in the same processes reports its values itself.
    """
    unit, host = instance.service.get_unit(instance.placement), instance.placement.host
    if (
        unit is None
        or not stack_files.runtime.layout.can_reload(instance.service)
        or instance.service.reload_keeps_processes
    ):
        return
    command = Command(("sh", "-c", _UNREAD_SCRIPT, "sh", unit, *paths))
    (result,) = run_commands(stack_files.transports[host], [command])
    unread_paths = split_lines(result.stdout.strip()) if result.ok else []
    if unread_paths:
        raise AutotuneError(
            f"{unit} on {host} was last started or reloaded before a change of "
            f"{', '.join(unread_paths)}",
            hint=f"run `systemctl reload {unit}` on the host or, after a killed study, `autotune restore "
            "TARGET`, so that the baseline is in effect",
        )


def _require_persisted_state(
    stack_files: StackFiles, instance: ServiceInstance, contents: Mapping[str, bytes]
) -> None:
    """Raise AutotuneError if a restart would lose settings or data, or would stop a cluster."""
    tier = stack_files.file.target.tiers[instance.placement.tier]
    argv = instance.service.build_unpersisted_check(
        instance.placement, contents, allows_data_loss=tier.allow_data_loss
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
