"""What to do on a host, worked out from how it should be and how it is. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from autotune.deploy.host_state import HostSeen, HostState
from autotune.services.base import Action

# Path or kernel value → the units that a change of it concerns, and what each of them then needs.
Needs = Mapping[str, Mapping[str, Action]]
DROP_INS = "/etc/systemd/system/"


@dataclass(frozen=True)
class Steps:
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


def decide(
    wanted: HostState,
    seen: HostSeen,
    needs: Needs,
    touched: Iterable[str] = (),
) -> Steps:
    """Nothing for what is right already; ``touched`` units are restarted whatever they look like.

    Those are units that may have read files which are no longer there.
    """
    changed = [path for path, state in wanted.files.items() if not seen.files[path].is_as(state)]
    kernel = {
        name: value
        for name, value in wanted.sysctls.items()
        if seen.sysctls.get(name) not in (None, value)
    }
    act = dict.fromkeys((unit for unit in touched if wanted.units.get(unit)), Action.RESTART)
    for cause in (*changed, *kernel):
        for unit, action in needs.get(cause, {}).items():
            act[unit] = max(action, act.get(unit, Action.NONE))
    for unit, running in wanted.units.items():
        if running and not seen.units[unit].active:
            act[unit] = Action.RESTART
    gone = [path for path in changed if wanted.files[path].absent]
    return Steps(
        stop=tuple(u for u, running in wanted.units.items() if not running and _runs(seen, u)),
        write=tuple(path for path in changed if path not in gone),
        remove=tuple(sorted(gone, key=len, reverse=True)),  # what is in a directory before it
        sysctls=kernel,
        daemon_reload=any(path.startswith(DROP_INS) for path in changed),
        act={u: act[u] for u in wanted.units if wanted.units[u] and act.get(u, Action.NONE)},
    )


def _runs(seen: HostSeen, unit: str) -> bool:
    return unit in seen.units and seen.units[unit].active
