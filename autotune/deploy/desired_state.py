"""From settings to the files and the state of every host, and to what is left to do there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.deploy.host_state import FileState, HostPlan, HostState, ObservedHost, switched
from autotune.deploy.runtime import Check, Layout
from autotune.deploy.stack import Part, Stack
from autotune.errors import AutotuneError
from autotune.masking import Outliner, masked_bytes, unmasked, withheld
from autotune.parameter_name import ParameterName, own_settings
from autotune.services.base import (
    Action,
    Endpoint,
    Parameter,
    Service,
    Settings,
    Site,
    Value,
    config_files,
)
from autotune.services.registry import outliner
from autotune.target import runtimes
from autotune.target.model import Data
from autotune.target.shipped import shipped

Rendered = Mapping[str, Mapping[str, bytes]]  # by part, then by path
# Path or kernel value → the units that a change of it concerns, and what each of them then needs.
RequiredActions = Mapping[str, Mapping[str, Action]]


@dataclass(frozen=True)
class DesiredState:
    """One deployment: its settings, its parts, their files, and so the state of every host."""

    settings: Settings
    parts: tuple[Part, ...]
    rendered: Rendered
    hosts: Mapping[str, HostState]
    layout: Layout

    @property
    def files(self) -> dict[str, bytes]:
        """Every file that is there, by ``part/path``, as it may be shown and kept: its secrets masked."""
        absent = {(part.name, path) for part in self.parts for path in self.rendered[part.name]
                  if self.absent(part, path)}  # fmt: skip
        return {f"{part}/{path.removeprefix('/')}": masked_bytes(content)
                for part, files in self.rendered.items()
                for path, content in files.items() if (part, path) not in absent}  # fmt: skip

    def absent(self, part: Part, path: str) -> bool:
        """Whether a file of a part is to be absent; ``path`` is as its service knows it."""
        return self.hosts[part.site.host].files[self.layout.path(part, path)].absent

    def with_secrets(self, originals: Mapping[str, HostState]) -> DesiredState:
        """This state with each placeholder replaced by the secret that the host's file had before the
        first change. Raises AutotuneError where a file's secrets are not those that were masked."""
        hosts = {}
        for host, state in self.hosts.items():
            backup = originals[host].files
            files = {
                path: file if file.content is None else replace(file, content=unmasked(
                    file.content, backup.get(path, FileState()).content, f"{host}: {path}",
                    self.outliner(host, path)))
                for path, file in state.files.items()
            }  # fmt: skip
            hosts[host] = replace(state, files=files)
        return replace(self, hosts=hosts)

    def outliner(self, host: str, path: str) -> Outliner | None:
        """What may be shown of a file that the host itself has; None where nothing is known of it."""
        for part in self.parts_on(host):
            for name in self.rendered[part.name]:
                if self.layout.path(part, name) == path:
                    return outliner(part.service, name)
        return None

    def withheld(self, originals: Mapping[str, HostState]) -> frozenset[str]:
        """Words of the hosts' own files that no message may repeat."""
        words = frozenset[str]()
        for host, state in self.hosts.items():
            for path in {*state.files} & {*originals[host].files}:
                content = originals[host].files[path].content or b""
                words |= withheld(content, self.outliner(host, path))
        return words

    def parts_on(self, host: str) -> tuple[Part, ...]:
        return tuple(part for part in self.parts if part.site.host == host)

    def leaves(self, host: str) -> tuple[str, ...]:
        parts = () if self.layout.isolated else self.parts_on(host)
        return tuple(path for part in parts for path in part.service.leaves(part.site))

    def checks(self, host: str, changing: Collection[str]) -> list[Check]:
        """How the software of a host validates those of its files that are ``changing``."""
        checks = []
        for part in self.parts_on(host):
            files = self._deployed_files(part)
            new = tuple(path for path in files if self.layout.path(part, path) in changing)
            how = part.service.validate(part.site, files) if new else None
            if how is not None:
                checks.append(Check(part, how, files, new))
        return checks

    def _deployed_files(self, part: Part) -> dict[str, bytes]:
        """The files of a part as they are deployed. A check may repeat words that are masked in
        records."""
        files = self.hosts[part.site.host].files
        return {path: files[self.layout.path(part, path)].content or content
                for path, content in self.rendered[part.name].items()}  # fmt: skip


def desired_state(
    settings: Settings,
    stack: Stack,
    files_of: Callable[[Part], Mapping[str, bytes]],
    layout: Layout,
) -> DesiredState:
    """Every host, with the units that ``settings`` choose running and all others stopped.

    Raises AutotuneError where two parts would write the same file of one host.
    """
    parts = stack.active(settings)
    rendered = {part.name: files_of(part) for part in parts}
    hosts = {
        host: _host_state(
            [part for part in parts if part.site.host == host],
            [part for part in stack.parts if part.site.host == host and part not in parts],
            rendered,
            settings,
            layout,
        )
        for host in stack.hosts
    }
    return DesiredState(settings, parts, rendered, hosts, layout)


def required_actions(
    desired: DesiredState, host: str, before: Settings | None
) -> dict[str, dict[str, Action]]:
    """File or kernel value → units that a change of it concerns, and what they then need.

    ``before`` are the settings in place; without them nothing is known of what runs.
    """
    actions_by_cause: dict[str, dict[str, Action]] = {}
    parts = desired.parts_on(host)
    for part in parts:
        concerned = _concerned(part, parts, desired.layout)
        action = _action(part, before, desired.settings)
        for path in (desired.layout.path(part, name) for name in desired.rendered[part.name]):
            if unit := desired.layout.defines(path):
                actions_by_cause[path] = {unit: Action.RESTART}
            else:
                actions_by_cause[path] = {u: action if reader.service.reload_signal else Action.RESTART
                               for u, reader in concerned.items()}  # fmt: skip
        for key in _sysctls(part, desired.settings):
            restarts = any(p.name == key and p.action is Action.RESTART
                           for p in part.service.parameters)  # fmt: skip
            actions_by_cause[key] = dict.fromkeys(concerned, Action.RESTART) if restarts else {}
    for unit, (path, _) in desired.layout.definitions(parts, desired.settings).items():
        actions_by_cause[path] = {unit: Action.RESTART}
    return actions_by_cause


def part_actions(
    desired: DesiredState,
    acted: Mapping[str, Mapping[str, Action]],
    changed: Mapping[str, set[str]],
    *,
    first: bool = False,
) -> dict[str, Action]:
    """What each part went through: its unit's action, or a reload for files without a unit.

    Where several parts share a unit, its action counts for the part that it runs and for those whose
    own files were changed. In the ``first`` deployment of a study no file was read before: changed
    files without a unit count as a restart.
    """
    without_unit = Action.RESTART if first else Action.RELOAD
    actions_by_cause: dict[str, Action] = {}
    runs = {(part.site.host, desired.layout.unit(part)): part for part in desired.parts}
    for part in desired.parts:
        unit = desired.layout.unit(part)
        mine = {desired.layout.path(part, name) for name in desired.rendered[part.name]}
        mine |= set(_sysctls(part, desired.settings))
        touched = mine & changed.get(part.site.host, set())
        if unit is not None and (touched or runs[part.site.host, unit] is part):
            actions_by_cause[part.name] = acted.get(part.site.host, {}).get(unit, Action.NONE)
        elif unit is not None:
            actions_by_cause[part.name] = Action.NONE
        else:
            actions_by_cause[part.name] = without_unit if touched else Action.NONE
    return actions_by_cause


def _host_state(
    active: Sequence[Part],
    inactive: Sequence[Part],
    rendered: Rendered,
    settings: Settings,
    layout: Layout,
) -> HostState:
    running = {unit: part for part in active if (unit := layout.unit(part))
               and not (part.site.own and part.site.own.loses)}  # fmt: skip
    units = [unit for part in inactive if (unit := layout.unit(part)) and unit not in running]
    sysctls: dict[str, str] = {}
    for part in active:
        sysctls |= {key: " ".join(value.split()) for key, value in _sysctls(part, settings).items()}
    files = _file_states(active, rendered, layout)
    files |= {path: FileState(content, 0o644)
              for path, content in layout.definitions(active, settings).values()}  # fmt: skip
    if layout.removes_inactive:
        files = {path: FileState() for path in _paths(inactive, layout)} | files
    return HostState(
        files,
        {**dict.fromkeys(running, True), **dict.fromkeys(units, False)},
        sysctls,
        {unit: _listening(part) for unit, part in running.items()},
        rereading=frozenset(u for u, p in running.items() if p.service.reload_keeps_processes),
    )


def _paths(parts: Iterable[Part], layout: Layout) -> list[str]:
    return [layout.path(part, file.path) for part in parts
            for file in config_files(part.service, part.site)]  # fmt: skip


def _file_states(parts: Sequence[Part], rendered: Rendered, layout: Layout) -> dict[str, FileState]:
    states: dict[str, FileState] = {}
    writers: dict[str, str] = {}
    for part in parts:
        files = {file.path: file for file in config_files(part.service, part.site)}
        for name, content in rendered[part.name].items():
            path = layout.path(part, name)
            if path in states and (states[path].content or b"") != content:
                raise AutotuneError(
                    f"{writers[path]} and {part.name} both need {path} of {part.site.host}",
                    hint="give the tiers hosts of their own, or run them "
                    f"`{runtimes.names(installed=False)}`",
                )
            absent = files[name].optional and not content
            states[path] = FileState() if absent else FileState(content, layout.mode(files[name]))
            writers[path] = part.name
    return states


def _concerned(part: Part, parts: Iterable[Part], layout: Layout) -> dict[str, Part]:
    """The unit that reads the part's files: its own, or those of its tier on this host."""
    own = layout.unit(part)
    if own is not None:
        return {own: part}
    return {unit: other for other in parts if other.site.tier == part.site.tier
            and (unit := layout.unit(other))}  # fmt: skip


def _action(part: Part, before: Settings | None, after: Settings) -> Action:
    """The least action that makes new files take effect, given which parameters changed."""
    if before is None:
        return Action.RESTART
    return max((p.action for p in changed_parameters(part, before, after)), default=Action.RELOAD)


def changed_parameters(part: Part, before: Settings, after: Settings) -> list[Parameter]:
    """The parameters of a part whose values differ."""
    old, new = (own_settings(settings, part.owner) for settings in (before, after))
    return [p for p in part.service.parameters if old.get(p.name) != new.get(p.name)]


def _sysctls(part: Part, settings: Settings) -> Mapping[str, str]:
    return part.service.sysctls(part.site, settings)


def _listening(part: Part) -> str:
    place = part.service.socket(part.site)
    return str(place.port) if isinstance(place, Endpoint) else place or ""


# -- the files of a part: settings and a site in, exact bytes out -----------------------------------


def render(
    service: Service,
    site: Site,
    settings: Settings,
    data: Data,
    overrides: Path | None = None,
) -> dict[str, bytes]:
    """The files of one service on one site: path → content; private sites' paths are relative to them.

    ``settings`` are the whole study's; the template sees its own service's by their bare names, and
    those of the services beside it in the tier as ``beside.SERVICE.NAME``.
    ``overrides`` is the user's template directory, looked into before the shipped ones. Raises
    RenderError.
    """
    own = own_settings(settings, f"{site.tier}.{service.name}")
    beside = _by_service(site.tier, settings)
    from autotune.deploy.templates import of_file  # Jinja2 is slow to load

    directories = (*((overrides,) if overrides else ()), shipped("templates"))
    values = {**own, "site": site, "data": data, "beside": beside}
    return {file.path: of_file(directories, file.template, values, file.text)
            for file in config_files(service, site)}  # fmt: skip


def _by_service(tier: str, settings: Settings) -> dict[str, dict[str, Value]]:
    by_service: dict[str, dict[str, Value]] = {}
    for name, value in settings.items():
        full = ParameterName.parse(name)
        if full.tier == tier and full.parameter:
            by_service.setdefault(full.service, {})[full.parameter] = value
    return by_service


# -- what is left to do on a host -------------------------------------------------------------------


def plan_host(
    desired: HostState,
    observed: ObservedHost,
    required: RequiredActions,
    touched: Mapping[str, Action] | None = None,
) -> HostPlan:
    """The least that makes a host as desired; ``touched`` units need an action whatever their state.

    They may have read files that no longer exist. So may the service manager: a tuner that removed a
    drop-in may have been killed before the reload.
    """
    changed = [
        path for path, state in desired.files.items() if not observed.files[path].is_as(state)
    ]
    kernel = {
        name: value
        for name, value in desired.sysctls.items()
        if observed.sysctls.get(name) not in (None, value)
    }
    act = {unit: action for unit, action in (touched or {}).items() if desired.units.get(unit)}
    for cause in (*changed, *kernel):
        for unit, action in required.get(cause, {}).items():
            act[unit] = max(action, act.get(unit, Action.NONE))
    for unit, running in desired.units.items():
        if running and not observed.units[unit].active:
            act[unit] = Action.RESTART
    idle = [unit for unit, running in desired.units.items() if not running]
    gone = [path for path in changed if desired.files[path].absent]
    return HostPlan(
        stop=tuple(u for u in idle if u in observed.units and observed.units[u].active),
        write=tuple(path for path in changed if path not in gone),
        remove=tuple(sorted(gone, key=len, reverse=True)),  # a directory after its contents
        sysctls=kernel,
        unread=tuple(desired.files if touched else changed),
        act={u: act[u] for u in desired.units if desired.units[u] and act.get(u, Action.NONE)},
        switch=switched(desired, observed),
        replaces={
            **{path: observed.files[path].detail for path in changed},
            **{name: value for name in kernel if (value := observed.sysctls[name]) is not None},
        },
    )
