"""Roll hosts back to the last good deployment, or to their original state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from autotune.deploy.desired_state import plan_host
from autotune.deploy.host_state import (
    HostPlan,
    HostState,
    list_differences,
    split_into_steps,
)
from autotune.deploy.runtime import ApplyFailed, LockedHosts, RuntimeHost
from autotune.errors import AutotuneError
from autotune.services.base import Action

ActionsByUnit = Mapping[str, Action]


@dataclass(frozen=True)
class _HostRollback:
    """The state to which a host is rolled back, the plan of changes, and messages about original
    files that the software now refuses.
    """

    state: HostState
    plan: HostPlan
    refused: tuple[str, ...] = ()


def roll_back_hosts(
    hosts: LockedHosts,
    actions: Mapping[str, ActionsByUnit],
    good_state: Callable[[str], HostState] | None,
    seconds: float,
) -> dict[str, AutotuneError]:
    """Roll back the hosts in ``actions``, back-end tiers first. Return errors by host.

    ``actions`` contains, by host, the failed deployment's actions on units. ``good_state`` returns
    the last good state of a host; if ``good_state`` is ``None``, the original state is restored. Each
    unit gets ``seconds`` to become ready.
    """

    def prepare(host: RuntimeHost) -> _HostRollback:
        state, refusals = (good_state or (lambda _: host.original_state))(host.name), list[str]()
        observed_host = host.observe(state)
        if good_state is None:
            state, refusals = host.select_restorable(state, observed_host)
        state = extend_start_seconds(state, seconds)
        plan = plan_host(state, observed_host, {}, actions[host.name])
        host.stage(state, plan)
        return _HostRollback(state, plan, tuple(refusals))

    preparation_results = hosts.run_on_hosts(actions, prepare)
    errors = dict(preparation_results.errors)
    rollbacks_by_host = preparation_results.results
    starts_by_host = {name: rollback.state.starts for name, rollback in rollbacks_by_host.items()}
    for step in split_into_steps(
        {name: rollback.plan for name, rollback in rollbacks_by_host.items()}, starts_by_host
    ):
        errors |= _apply_step(hosts, [n for n in step if n not in errors], rollbacks_by_host, step)

    def check(host: RuntimeHost) -> None:
        host_rollback = rollbacks_by_host[host.name]
        differences = list_differences(
            replace(host_rollback.state, sysctls={}), host.observe(host_rollback.state)
        )
        error_lines = [*host_rollback.refused]
        if differences:
            error_lines.append(
                f"{host.name} differs from its previous state: {', '.join(differences)}"
            )
        if error_lines:
            raise AutotuneError("; ".join(error_lines))

    errors |= hosts.run_on_hosts([n for n in rollbacks_by_host if n not in errors], check).errors
    return {
        name: _add_refusals(error, rollbacks_by_host.get(name)) for name, error in errors.items()
    }


def _add_refusals(error: AutotuneError, rollback: _HostRollback | None) -> AutotuneError:
    """Return a host's error, extended by messages about original files that were refused."""
    unreported_lines = [
        line for line in (rollback.refused if rollback else ()) if line not in error.message
    ]
    return (
        AutotuneError("; ".join([*unreported_lines, error.message])) if unreported_lines else error
    )


def _apply_step(
    hosts: LockedHosts,
    host_names: Iterable[str],
    work: Mapping[str, _HostRollback],
    step: Mapping[str, HostPlan],
) -> dict[str, AutotuneError]:
    return hosts.run_on_hosts(
        host_names, lambda host: apply_or_restart(host, work[host.name].state, step[host.name])
    ).errors


def apply_or_restart(host: RuntimeHost, state: HostState, plan: HostPlan) -> None:
    """Apply a plan whose files are already staged. If a reload fails, restart the plan's units."""
    try:
        host.apply(state, plan)
    except ApplyFailed:
        if Action.RELOAD not in plan.unit_actions.values():
            raise
        restart_units(host, state, plan.unit_actions)


def restart_units(host: RuntimeHost, state: HostState, units: Iterable[str]) -> None:
    """Restart units, and write the files in ``state`` that differ on the host."""
    restart_actions = dict.fromkeys(units, Action.RESTART)
    plan = plan_host(state, host.observe(state), {}, restart_actions)
    host.stage(state, plan)
    host.apply(state, plan)


def extend_start_seconds(state: HostState, seconds: float) -> HostState:
    """Return the state with at least ``seconds`` for each unit to become ready."""
    unit_starts = {
        unit: replace(unit_start, seconds=max(unit_start.seconds, seconds))
        for unit, unit_start in state.starts.items()
    }
    return replace(state, starts=unit_starts)
