"""What a deployment would change on hosts as they are now: files, kernel values, units and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.deploy.desired_state import (
    DesiredState,
    RequiredActions,
    changed_parameters,
    plan_host,
    required_actions,
)
from autotune.deploy.host import contents
from autotune.deploy.host_state import FileState, HostPlan, HostState, ObservedHost
from autotune.deploy.runtime import RuntimeHost
from autotune.masking import masked_beside, masked_bytes, nothing
from autotune.services.base import Action, Settings
from autotune.unified_diff import Files, file_diff

STOP = "stop"


@dataclass(frozen=True)
class UnitChange:
    """``action``: reload, restart or stop. ``because``: parameters, kernel values or files."""

    action: str
    because: tuple[str, ...]


@dataclass(frozen=True)
class HostChanges:
    """``diff`` is unified, without secrets; ``sysctls`` are from → to."""

    diff: str = ""
    files: tuple[str, ...] = ()
    sysctls: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    units: Mapping[str, UnitChange] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.files or self.sysctls or self.units)


@dataclass(frozen=True)
class PresentHost:
    """A host as it is, and what is in the files that it has."""

    observed: ObservedHost
    files: Files

    @property
    def state(self) -> HostState:
        return HostState({path: FileState(content) for path, content in self.files.items()})


def present(host: RuntimeHost, states: tuple[HostState, ...]) -> PresentHost:
    """Everything that ``states`` speak of, as it is; changes nothing and needs no lock."""
    everything = HostState(
        {path: file for state in states for path, file in state.files.items()},
        {unit: runs for state in states for unit, runs in state.units.items()},
        {name: value for state in states for name, value in state.sysctls.items()},
    )
    observed = host.observe(everything)
    paths = [path for path in everything.files if observed.files[path].kind == "file"]
    return PresentHost(observed, contents(host.transport, paths))


def host_changes(
    name: str,
    base: DesiredState,
    desired: DesiredState,
    now: PresentHost,
    masked: DesiredState | None = None,
) -> HostChanges:
    """What leads from the host as it is ``now`` to ``desired``. If its files are those of ``base``,
    its units get only the actions that the changed parameters need. ``masked`` is ``desired`` as it was
    before the host's own words were filled in."""
    before = settings_before(name, base, now.observed)
    required = required_actions(desired, name, before)
    plan = plan_host(desired.hosts[name], now.observed, required)
    masked_files = (masked or desired).hosts[name].files
    after = {path: masked_bytes(masked_files[path].content or b"") for path in plan.write}
    changed = [*plan.write, *plan.remove]
    return HostChanges(
        file_diff(
            {f"{name}{path}": masked_beside(now.files[path], after.get(path, b""),
                                            desired.outliner(name, path) or nothing)
             for path in changed if path in now.files},
            {f"{name}{path}": content for path, content in after.items()},
            "now",
            "planned",
        ),
        tuple(changed),
        {key: (now.observed.sysctls.get(key) or "", value) for key, value in plan.sysctls.items()},
        {
            **{unit: UnitChange(STOP, ("another deployment",)) for unit in plan.stop},
            **{unit: UnitChange(action.name.lower(),
                                _because(name, unit, plan, now, desired, before, required))
               for unit, action in plan.act.items()},
        },
    )  # fmt: skip


def settings_before(name: str, base: DesiredState, observed: ObservedHost) -> Settings | None:
    """The settings of ``base`` if the host's files are those of ``base``; else ``None``: unknown."""
    theirs = all(path in observed.files and observed.files[path].is_as(file)
                 for path, file in base.hosts[name].files.items())  # fmt: skip
    return base.settings if theirs else None


def _because(
    host: str,
    unit: str,
    plan: HostPlan,
    now: PresentHost,
    desired: DesiredState,
    before: Settings | None,
    required: RequiredActions,
) -> tuple[str, ...]:
    """The parameters and kernel values that need the action; if there are none, the files."""
    if not now.observed.units[unit].active:
        return ("it does not run",)
    causes = tuple(cause for cause in (*plan.write, *plan.remove, *plan.sysctls)
                   if required.get(cause, {}).get(unit, Action.NONE))  # fmt: skip
    parts = [part for part in desired.parts_on(host) if desired.layout.unit(part) == unit]
    changed = [parameter for part in parts if before is not None
               for parameter in changed_parameters(part, before, desired.settings)]  # fmt: skip
    least = [p.name for p in changed if p.action is plan.act[unit]] or [p.name for p in changed]
    keys = tuple(cause for cause in causes if cause in plan.sysctls)
    return (*least, *keys) or causes
