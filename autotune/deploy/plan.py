"""What to do on a host, worked out from how it should be and how it is. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from autotune.deploy.host_state import HostState, ObservedHost
from autotune.services.base import Action

# Path or kernel value → the units that a change of it concerns, and what each of them then needs.
RequiredActions = Mapping[str, Mapping[str, Action]]
DROP_INS = "/etc/systemd/system/"


@dataclass(frozen=True)
class HostPlan:
    """The least that makes a host as it should be, in the order it is done.

    ``stop`` units → ``write`` and ``remove`` files → set ``sysctls`` → ``daemon_reload`` →
    ``act`` on units.
    """

    stop: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    sysctls: Mapping[str, str] = field(default_factory=dict)
    daemon_reload: bool = False
    act: Mapping[str, Action] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.stop or self.write or self.remove or self.sysctls or self.act)


def plan_host(
    desired: HostState,
    observed: ObservedHost,
    required: RequiredActions,
    touched: Collection[str] = (),
) -> HostPlan:
    """Nothing for what is right already; ``touched`` units are restarted whatever they look like.

    Those are units that may have read files which are no longer there. So may systemd itself have:
    whoever removed a drop-in may have been killed before the reload.
    """
    changed = [
        path for path, state in desired.files.items() if not observed.files[path].is_as(state)
    ]
    kernel = {
        name: value
        for name, value in desired.sysctls.items()
        if observed.sysctls.get(name) not in (None, value)
    }
    act = dict.fromkeys((unit for unit in touched if desired.units.get(unit)), Action.RESTART)
    for cause in (*changed, *kernel):
        for unit, action in required.get(cause, {}).items():
            act[unit] = max(action, act.get(unit, Action.NONE))
    for unit, running in desired.units.items():
        if running and not observed.units[unit].active:
            act[unit] = Action.RESTART
    gone = [path for path in changed if desired.files[path].absent]
    return HostPlan(
        stop=tuple(u for u, running in desired.units.items() if not running and _runs(observed, u)),
        write=tuple(path for path in changed if path not in gone),
        remove=tuple(sorted(gone, key=len, reverse=True)),  # what is in a directory before it
        sysctls=kernel,
        daemon_reload=any(
            path.startswith(DROP_INS) for path in (desired.files if touched else changed)
        ),
        act={u: act[u] for u in desired.units if desired.units[u] and act.get(u, Action.NONE)},
    )


def _runs(observed: ObservedHost, unit: str) -> bool:
    return unit in observed.units and observed.units[unit].active
