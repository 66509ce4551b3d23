"""The commands that apply a plan to a host: their order, time limit and boot times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autotune.deploy.backup import HostBackup
from autotune.deploy.host_state import HostPlan, HostState, ServiceManager
from autotune.deploy.unit_start import USUAL_STOP_SECONDS, UnitStart
from autotune.services.base import Action
from autotune.strict_parsing import is_decimal, parse_decimal
from autotune.transports.base import CommandResult

# time limit to write files and kernel values, in addition to the time that units take to stop and start
CHANGE_TIMEOUT_SECONDS = 60.0


def list_plan_steps(
    desired_state: HostState,
    plan: HostPlan,
    backup: HostBackup,
    find_staged_path: Callable[[str], str],
    service_manager: ServiceManager | None,
    stop_seconds: Mapping[str, float],
) -> list[tuple[str, ...]]:
    """Return the commands that apply a plan, in order. Files are already staged.

    A file is replaced or removed only if its digest is in ``backup``. ``stop_seconds`` contains the
    longest time that each unit takes to stop.
    """
    commands: list[tuple[str, ...]] = [("stop", unit) for unit in plan.units_to_stop]
    # A unit whose file is removed can only be disabled before.
    commands += [("disable", unit) for unit, starts in plan.boot_changes.items() if not starts]
    own_digests = backup.replaceable_digests
    commands += [
        (
            "swap",
            path,
            find_staged_path(path),
            desired_state.files[path].modified or "",
            *own_digests(path),
        )
        for path in plan.files_to_write
    ]
    commands += [("remove", path, *own_digests(path)) for path in plan.files_to_remove]
    if plan.sysctls:
        assignments = (f"{name}={value}" for name, value in plan.sysctls.items())
        commands.append(("sysctl", "-q", "-w", *assignments))
    if service_manager and any(
        path.startswith(service_manager.unit_directory) for path in plan.unread_files
    ):
        commands.append(("reread",))
    for unit in plan.unit_actions:
        commands += _list_unit_steps(desired_state, plan, unit, stop_seconds)
    commands += [("enable", unit) for unit, starts in plan.boot_changes.items() if starts]
    return commands


def _list_unit_steps(
    desired_state: HostState, plan: HostPlan, unit: str, stop_seconds: Mapping[str, float]
) -> list[tuple[str, ...]]:
    """Return the commands that reload or restart a unit and wait until it is ready."""
    unit_start = desired_state.starts.get(unit, UnitStart())
    wait_commands = [unit_start.build_wait_command(unit), ("clock", unit)]
    if plan.unit_actions[unit] is Action.RELOAD:
        extra_words = ("rereading",) if unit in desired_state.in_process_reloads else ()
        return [("reload", unit, *extra_words), *wait_commands]
    restart_seconds = unit_start.seconds + stop_seconds.get(unit, USUAL_STOP_SECONDS)
    return [("clock", unit), ("restart", unit, f"{restart_seconds:.0f}"), *wait_commands]


def compute_action_timeout(
    desired_state: HostState, plan: HostPlan, stop_seconds: Mapping[str, float]
) -> float:
    """Return the time limit in seconds for the round trip that applies ``plan``.

    ``stop_seconds`` contains the longest time that each unit takes to stop.
    """
    unit_starts = (desired_state.starts.get(unit, UnitStart()) for unit in plan.unit_actions)
    return (
        CHANGE_TIMEOUT_SECONDS
        + sum(
            stop_seconds.get(unit, USUAL_STOP_SECONDS)
            for unit in (*plan.units_to_stop, *plan.unit_actions)
        )
        + sum(2 * unit_start.seconds for unit_start in unit_starts)
    )


def parse_boot_seconds(command_results: Sequence[CommandResult]) -> dict[str, float]:
    """Return the boot time of each restarted unit: the seconds between its two ``clock`` commands.
    Reloaded units have only one ``clock`` command.
    """
    clock_times: dict[str, list[float]] = {}
    for command_result in command_results:
        if command_result.argv[0] == "clock" and is_decimal(command_result.stdout.strip()):
            clock_times.setdefault(command_result.argv[1], []).append(
                parse_decimal(command_result.stdout.strip())
            )
    return {unit: last - first for unit, (first, *later) in clock_times.items() for last in later}
