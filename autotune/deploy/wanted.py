"""From settings to how each host should be, and to what a change of each file would need. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from autotune.deploy.host_state import FileState, HostState
from autotune.deploy.stack import Part, Stack
from autotune.deploy.steps import DROP_INS
from autotune.errors import AutotuneError
from autotune.services.base import Action, Endpoint, Settings

Rendered = Mapping[str, Mapping[str, bytes]]  # by part, then by path


@dataclass(frozen=True)
class Wanted:
    """One deployment: its settings, its parts, their files, and so the state of every host."""

    settings: Settings
    parts: tuple[Part, ...]
    rendered: Rendered
    hosts: Mapping[str, HostState]

    @property
    def files(self) -> dict[str, bytes]:
        """Every file by ``part/path``."""
        return {f"{part}/{path.removeprefix('/')}": content
                for part, files in self.rendered.items()
                for path, content in files.items()}  # fmt: skip

    def parts_on(self, host: str) -> tuple[Part, ...]:
        return tuple(part for part in self.parts if part.site.host == host)

    def leaves(self, host: str) -> tuple[str, ...]:
        return tuple(path for part in self.parts_on(host)
                     for path in part.service.leaves(part.site))  # fmt: skip

    def places(self, host: str) -> dict[str, str]:
        """Unit → where it listens once it is up: a port, or the path of a socket."""
        return {unit: _place(part) for part in self.parts_on(host)
                if (unit := part.service.unit(part.site))}  # fmt: skip


def want(settings: Settings, stack: Stack, render: Callable[[Part], Mapping[str, bytes]]) -> Wanted:
    """Every host with the units that ``settings`` choose running, and those they do not stopped.

    Raises AutotuneError where two parts would write the same file of one host.
    """
    parts = stack.active(settings)
    rendered = {part.name: render(part) for part in parts}
    hosts = {
        host: _state(
            [part for part in parts if part.site.host == host],
            rendered,
            settings,
            [part.service.unit(part.site) for part in stack.parts if part.site.host == host],
        )
        for host in stack.hosts
    }
    return Wanted(settings, parts, rendered, hosts)


def needs(wanted: Wanted, host: str, before: Settings | None) -> dict[str, dict[str, Action]]:
    """File or kernel value → units that a change of it concerns, and what they then need.

    ``before`` are the settings in place; without them nothing is known of what runs.
    """
    found: dict[str, dict[str, Action]] = {}
    parts = wanted.parts_on(host)
    for part in parts:
        concerned = _concerned(part, parts)
        action = _action(part, before, wanted.settings)
        for path in wanted.rendered[part.name]:
            unit = path.removeprefix(DROP_INS).partition(".d/")[0]
            if path.startswith(DROP_INS):
                found[path] = {unit: Action.RESTART}
            else:
                found[path] = {u: action if _reloads(reader) else Action.RESTART
                               for u, reader in concerned.items()}  # fmt: skip
        for key in _sysctls(part, wanted.settings):
            restarts = _parameter_action(part, key) is Action.RESTART
            found[key] = dict.fromkeys(concerned, Action.RESTART) if restarts else {}
    return found


def actions(
    wanted: Wanted, acted: Mapping[str, Mapping[str, Action]], changed: Mapping[str, set[str]]
) -> dict[str, Action]:
    """What each part went through: its unit's action, or a reload for files without a unit."""
    found: dict[str, Action] = {}
    for part in wanted.parts:
        unit = part.service.unit(part.site)
        mine = set(wanted.rendered[part.name]) | set(_sysctls(part, wanted.settings))
        if unit is not None:
            found[part.name] = acted.get(part.site.host, {}).get(unit, Action.NONE)
        else:
            touched = mine & changed.get(part.site.host, set())
            found[part.name] = Action.RELOAD if touched else Action.NONE
    return found


def _state(
    parts: list[Part], rendered: Rendered, settings: Settings, everything: Iterable[str | None]
) -> HostState:
    files: dict[str, FileState] = {}
    writers: dict[str, str] = {}
    sysctls: dict[str, str] = {}
    for part in parts:
        for path, content in rendered[part.name].items():
            if path in files and files[path].content != content:
                raise AutotuneError(
                    f"{writers[path]} and {part.name} both need {path} of {part.site.host}",
                    hint="give the tiers hosts of their own, or run them `embedded`",
                )
            files[path], writers[path] = FileState(content), part.name
        sysctls |= {k: " ".join(v.split()) for k, v in _sysctls(part, settings).items()}
    own = {unit: True for part in parts if (unit := part.service.unit(part.site))}
    return HostState(
        files, {**own, **{u: False for u in everything if u and u not in own}}, sysctls
    )


def _concerned(part: Part, parts: Iterable[Part]) -> dict[str, Part]:
    """The unit that reads the part's files: its own, or those of its tier on this host."""
    own = part.service.unit(part.site)
    if own is not None:
        return {own: part}
    return {unit: other for other in parts if other.site.tier == part.site.tier
            and (unit := other.service.unit(other.site))}  # fmt: skip


def _action(part: Part, before: Settings | None, after: Settings) -> Action:
    """The least that makes new files take effect, by which parameters changed."""
    if before is None:
        return Action.RESTART
    prefix = f"{part.site.tier}.{part.service.name}."
    changed = [parameter.action for parameter in part.service.parameters
               if before.get(prefix + parameter.name) != after.get(prefix + parameter.name)]  # fmt: skip
    return max(changed, default=Action.RELOAD)


def _parameter_action(part: Part, name: str) -> Action:
    return next((p.action for p in part.service.parameters if p.name == name), Action.NONE)


def _sysctls(part: Part, settings: Settings) -> Mapping[str, str]:
    return part.service.sysctls(part.site, settings)


def _reloads(part: Part) -> bool:
    return part.service.reload_signal is not None


def _place(part: Part) -> str:
    place = part.service.socket(part.site)
    return str(place.port) if isinstance(place, Endpoint) else place or ""
