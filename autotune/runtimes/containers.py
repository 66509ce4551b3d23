"""Runtime `containers`: services of a Compose project (Docker or Podman) on their hosts.

A unit is a service of the project. Its configuration files are in autotune's directory on the host.
An additional Compose file mounts them over the container's files. The user's files and image do not
change.
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

from autotune.deploy.host import filled_in, staged
from autotune.deploy.host_commands import Command, run_checked
from autotune.deploy.host_state import ObservedUnit, ServiceManager, understood
from autotune.deploy.managed_hosts import ManagedHosts
from autotune.deploy.programs import installed
from autotune.deploy.runtime import Cases, Layout, NeedsPrograms, Note, Runtime
from autotune.deploy.stack import Part, Stack, StackContext, build
from autotune.masking import is_masked
from autotune.services.base import (
    Argv,
    ConfigFile,
    Own,
    Service,
    Settings,
    Site,
    TrialStart,
    config_files,
)
from autotune.services.config_files import unpacked
from autotune.space.facts import HostFacts
from autotune.strict import split_lines, whole
from autotune.target.model import Target
from autotune.target.read import TargetFile
from autotune.transports.base import Transport
from autotune.transports.facts import facts
from autotune.transports.hosts import transports
from autotune.transports.parallel import run_on_all

OURS = "/var/lib/autotune-containers"
CHECKED = "/run/autotune-check"
CHECK, STARTED = 30, 3  # s: limit of a check, and the time that a server must run in a trial start
RUNS = frozenset({"running", "restarting"})


def parse_units(names: tuple[str, ...], text: str) -> dict[str, ObservedUnit]:
    """Parse the output of ``units`` for ``names``. Raises AutotuneError for invalid output."""
    with understood("containers", text):
        return {name: _unit(line) for name, line in zip(names, split_lines(text), strict=True)}


def _unit(line: str) -> ObservedUnit:
    """Parse the state of one unit. Raises ValueError."""
    exists, state, pid, restarts, definition = f"{line} ".split(" ", 4)
    return ObservedUnit(
        exists=exists == "yes",
        active=state in RUNS,
        enabled="",
        pid=whole(pid),
        restarts=whole(restarts),
        restarting=state == "restarting",
        definition=definition.strip(),
    )


class ContainerLayout(Layout):
    """Layout with container paths below one directory per service on the host."""

    isolated = True

    def path(self, part: Part, path: str) -> str:
        return _path(part.site, path)

    def mode(self, file: ConfigFile) -> int:
        return file.mode

    def unit(self, part: Part) -> str | None:
        return part.site.unit if part.service.unit(part.site) else None

    def definitions(
        self, active: Sequence[Part], settings: Settings
    ) -> dict[str, tuple[str, bytes]]:
        """Return the Compose files that mount each service's files over its own."""
        services: dict[str, list[Part]] = {}
        for part in active:
            services.setdefault(part.site.unit, []).append(part)
        return {
            unit: (f"{parts[0].site.directory}/override.json", _override(unit, parts, settings))
            for unit, parts in services.items()
        }


LAYOUT = ContainerLayout()


def _path(site: Site, path: str) -> str:
    return f"{site.directory}/files{path}"


def _override(unit: str, parts: Sequence[Part], settings: Settings) -> bytes:
    """Return the override file in JSON, which is valid YAML. Its label marks containers made from
    it.
    """
    paths = [(part.site, file.path) for part in parts
             for file in config_files(part.service, part.site)]  # fmt: skip
    keys: dict[str, object] = {"volumes": [f"{_path(*place)}:{place[1]}:ro" for place in paths]}
    for part in parts:
        keys |= part.service.definition(part.site, settings)
    signals = [part.service.reload_signal for part in parts if part.service.reload_signal]
    mark = hashlib.sha256(json.dumps(keys, sort_keys=True).encode()).hexdigest()
    keys["labels"] = {"autotune": mark, "autotune.signal": (*signals, "HUP")[0]}
    services = {"services": {unit.rpartition(":")[2]: keys}}
    return (json.dumps(services, indent=1) + "\n").encode()


def _inside(site: Site, argv: Argv) -> Argv:
    return ("inside", site.unit, *argv)


def _aside(site: Site, how: Argv | TrialStart, places: Mapping[str, str]) -> Argv:
    """Return the arguments that let the software check files in a copy of the running container.

    ``places`` maps paths in the container to paths on the host.
    """
    argv, starts = (how.argv, ("starts",)) if isinstance(how, TrialStart) else (how, ())
    mounts = [f"--volume={place}:{path}:ro" for path, place in places.items()]
    seconds = str(STARTED if starts else CHECK)
    return ("aside", *starts, site.unit, seconds, *mounts, "--entrypoint", argv[0], "--", *argv[1:])


def _validate(site: Site, how: Argv | TrialStart, files: Sequence[str], new: Sequence[str]) -> Argv:
    """Return the command that checks all files of a part together, with staged versions of changed
    ones.
    """
    places = {path: _path(site, path) for path in files}
    return _aside(site, how, {p: staged(place) if p in new else place
                              for p, place in places.items()})  # fmt: skip


MANAGER = ServiceManager(
    Path(__file__).with_suffix(".sh").read_text(encoding="utf-8"),
    parse_units,
    OURS,
    inside=_inside,
    validate=_validate,
)


class Containers(Runtime):
    """Runtime for services of a Compose project, which autotune recreates and restores."""

    installed = True
    layout = LAYOUT
    service_manager = MANAGER

    def transports(self, file: TargetFile) -> dict[str, Transport]:
        if file.target.project is None:
            raise file.document.error(
                ["tiers"], "the Compose project of these tiers is missing",
                hint="add for example `project: {name: shop, files: /srv/shop/compose.yaml}`",
            )  # fmt: skip
        for name, tier in file.target.tiers.items():
            if len(tier.service) > 1 or tier.app or tier.local_cache or not file.target.edits(name):
                raise file.document.error(
                    ["tiers", name], f"tier {name}: its image determines the software, and its own "
                    "files are edited", hint="use one `service:` without `app:`, `local_cache:`, "
                    "`replace:` and `templates:`",
                )  # fmt: skip
        return transports(file)

    def facts(self, target: Target, transports: Mapping[str, Transport]) -> dict[str, HostFacts]:
        return facts(target, transports)

    def programs(
        self, needed: Mapping[str, Sequence[NeedsPrograms]], transports: Mapping[str, Transport]
    ) -> dict[str, dict[str, str]]:
        """Return programs by host: services run in their containers, load generators on load hosts."""
        of_hosts = {host: [n for n in needing if not isinstance(n, Service)]
                    for host, needing in needed.items()}  # fmt: skip
        of_load = run_on_all(
            [transports[host] for host, needing in of_hosts.items() if needing],
            lambda transport: installed(transport, of_hosts[transport.name]),
        ).unwrap()
        return {
            host: {
                **{name: paths[-1] for n in needing if isinstance(n, Service)
                   for name, paths in n.programs.items()},
                **of_load.get(host, {}),
            }
            for host, needing in needed.items()
        }  # fmt: skip

    def lay_out(
        self,
        file: TargetFile,
        directory: str,
        facts: Mapping[str, HostFacts],
        programs: Mapping[str, Mapping[str, str]],
        own: Mapping[str, Own],
    ) -> Stack:
        context = StackContext(OURS, {}, programs, facts, installed=True, own=own)
        stack = build(file.target, context)
        return replace(stack, parts=tuple(_placed(file.target, part) for part in stack.parts))

    def contents(self, transport: Transport, parts: Sequence[Part]) -> dict[str, bytes]:
        places = [(part.site, file.path) for part in parts
                  for file in config_files(part.service, part.site)]  # fmt: skip
        commands = [Command(("packed", site.unit, path), vital=True) for site, path in places]
        answers = run_checked(transport, commands, timeout=60.0 + 10.0 * len(places),
                              functions=MANAGER.functions)  # fmt: skip
        contents = {}
        for (site, path), done in zip(places, answers, strict=True):
            if packed := done.stdout.strip():
                tree = unpacked(base64.b64decode(packed), dirname(path))
                if (real := tree.real(path)) in tree.files:
                    contents[_path(site, path)] = tree.files[real]
        return contents

    def _filled_in(self, transport: Transport, cases: Cases) -> Cases:
        """Return the cases with masked values replaced by those in the services' own files."""
        masked = [(part, files) for part, files in cases if any(map(is_masked, files.values()))]
        inside = self.contents(transport, [part for part, _ in masked]) if masked else {}
        return [
            (part, filled_in(part, files, {p: inside.get(_path(part.site, p)) for p in files}))
            for part, files in cases
        ]

    def refusals(self, transport: Transport, cases: Cases) -> list[str | None]:
        commands: list[Command] = []
        asked: list[int | None] = []
        # unique, because another tuner may run the same check
        place = f"{CHECKED}/{secrets.token_hex(8)}"
        cases = self._filled_in(transport, cases)
        for number, (part, files) in enumerate(cases):
            places = {path: f"{place}/{number}{path}" for path in files}
            how = part.service.validate(part.site, files)
            commands += [_stage(places[path], content) for path, content in files.items()]
            asked.append(len(commands) if how else None)
            commands += [Command(_aside(part.site, how, places))] if how else []
        commands += [Command(("rm", "-rf", "--", place)), Command(("rmdir", CHECKED))]
        answers = run_checked(transport, commands, timeout=60.0 + 40.0 * len(cases),
                      functions=MANAGER.functions)  # fmt: skip
        return [None if at is None or answers[at].ok else answers[at].error_text or "no message"
                for at in asked]  # fmt: skip

    def status(self, stack: Stack, transports: Mapping[str, Transport]) -> Iterator[str]:
        """Yield the reachable hosts, and the containers that lose unsaved data when they are
        recreated.
        """
        yield f"reachable, as root: {', '.join(stack.hosts)}"
        for unit in dict.fromkeys(part.site.unit for part in stack.parts):
            yield (
                f"{unit}: autotune recreates this container with its files mounted, and again without "
                "them at the end"
            )

    def run_directory(self, study: Path) -> str:
        return OURS

    def hosts(
        self, stack: Stack, transports: Mapping[str, Transport], study: Path, note: Note
    ) -> ManagedHosts:
        return ManagedHosts([transports[host] for host in stack.hosts], study, note, MANAGER)

    def packed(self, target: Target, tier: str, paths: Sequence[str]) -> Argv:
        return ("packed", _unit_of(target, tier), *paths)


def _stage(place: str, content: bytes) -> Command:
    encoded = base64.b64encode(content).decode()
    return Command(("stage", "", place, "0644", "0:0", encoded, ""), vital=True)


def _unit_of(target: Target, tier: str) -> str:
    project = target.project
    assert project is not None
    owner = f"{project.engine}@{project.account}" if project.account else project.engine
    files, container = ",".join(project.files), target.tiers[tier].container or tier
    return f"{owner}:{project.name}:{files}:{container}"


def _placed(target: Target, part: Part) -> Part:
    """Place the part in its container. ``directory`` is the host directory of its files."""
    unit = _unit_of(target, part.site.tier)
    assert target.project is not None
    directory = f"{OURS}/{target.project.name}/{unit.rpartition(':')[2]}"
    return replace(part, site=replace(part.site, unit=unit, directory=directory))


RUNTIME = Containers()
