"""Templates made from the files on a target's hosts, as in `init --from`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from typing import Any

from autotune.config_text import readable
from autotune.deploy import manifest
from autotune.deploy.runtime import Runtime
from autotune.discovery import adoption
from autotune.discovery.adoption import AdoptedTier
from autotune.discovery.host_reading import DiscoveredHost, paths_of, read_host, read_inside
from autotune.discovery.tiers import DiscoveredTier, Instance, instances, listening, unread
from autotune.errors import AutotuneError, TargetError
from autotune.parameter_name import ParameterName
from autotune.services.base import Own
from autotune.services.registry import PORTS, adoptions, choice_of, parts
from autotune.space.dimension import Running
from autotune.target.model import Tier
from autotune.target.read import TargetFile
from autotune.transports.base import SshHost, Transport
from autotune.transports.parallel import run_on_all

CORRECT = "fix the problems above. Until then, autotune does not change those files"
REPLACE = "or set `replace: true` in the tier to let autotune write whole files"


@dataclass(frozen=True)
class InPlace:
    """``own`` are the hosts' files as templates, by the names of parts; ``running`` their values.

    ``notes`` lists files that could not be read and services in no tier, a line each.
    """

    own: Mapping[str, Own] = field(default_factory=dict)
    running: Running = field(default_factory=Running)
    notes: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """The parameters that are not tuned and why, after the notes."""
        names: dict[tuple[str, str], list[str]] = {}
        for name, why in self.running.left.items():
            full = ParameterName.parse(name)
            names.setdefault((full.owner, why), []).append(full.parameter)
        left = (f"{service}: {', '.join(parameters)} not tuned ({why})"
                for (service, why), parameters in names.items())  # fmt: skip
        return (*self.notes, *left)

    @property
    def record(self) -> dict[str, Any]:
        """The record for the journal of a study, from which a resumed study continues."""
        return {
            "own": manifest.record(self.own),
            "values": dict(self.running.values),
            "left": dict(self.running.left),
            "notes": list(self.notes),
        }


def of_record(record: Mapping[str, Any]) -> InPlace:
    """Return the inverse of `InPlace.record`; empty for a study that wrote whole files."""
    if not record:
        return InPlace()
    try:
        running = Running(dict(record["values"]), dict(record["left"]))
        return InPlace(manifest.of_record(record["own"]), running, tuple(record["notes"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise AutotuneError(
            f"cannot read the study's record of the hosts' files: {error}",
            hint="start a new study with `autotune run`",
        ) from error


def read_files(file: TargetFile, transports: Mapping[str, Transport], runtime: Runtime) -> InPlace:
    """Read the hosts of every tier whose files are edited, without a change.

    Raises TargetError if a host does not run the services that the target declares.
    """
    tiers = _edited(file)
    if runtime.layout.isolated:
        return of_hosts(
            file, {}, {name: _inside(file, name, transports, runtime) for name in tiers}
        )
    names = dict.fromkeys(host for tier in tiers.values() for host in tier.hosts)
    hosts = run_on_all(
        [transports[name] for name in names], lambda transport: _read(file, transport)
    ).unwrap()
    return of_hosts(file, hosts)


def _edited(file: TargetFile) -> dict[str, Tier]:
    return {name: tier for name, tier in file.target.tiers.items() if file.target.edits(name)}


def of_hosts(
    file: TargetFile,
    hosts: Mapping[str, DiscoveredHost],
    inside: Mapping[str, Mapping[str, DiscoveredHost]] | None = None,
) -> InPlace:
    """Return the files that were read from hosts, as templates.

    ``inside`` maps tiers to their hosts as the tier's services see them. Raises as `read_files` does.
    """
    tiers = inside or {}
    adopted = [adoption.adopt(_discovered(file, name, tiers.get(name, hosts)), tier.runtime)
               for name, tier in _edited(file).items()]  # fmt: skip
    for each in adopted:
        adoption.check(each)
    unread = (f"{host}: {path}: {why}" for each in adopted for host, path, why in _unread(each))
    return InPlace(
        {part: _with_text(file, own, each) for each in adopted for part, own in each.own.items()},
        _running(file, adopted),
        tuple(dict.fromkeys((*unread, *_passed_over(hosts, adopted)))),
    )


def _passed_over(
    hosts: Mapping[str, DiscoveredHost], adopted: Sequence[AdoptedTier]
) -> Iterator[str]:
    """Yield a line for each service or listener on the hosts that is in no tier of the target."""
    tuned = {
        (i.host.name, i.deployment, i.port) for each in adopted for i in each.discovered.instances
    }
    running_on = {name: instances(host) for name, host in hosts.items()}
    yield from listening((hosts[name], running) for name, (running, _) in running_on.items())
    for name, (running, notes) in running_on.items():
        yield from notes
        for instance in running:
            if (name, instance.deployment, instance.port) not in tuned:
                yield f"{name}: {instance.deployment} on port {instance.port} is in no tier"


def _read(file: TargetFile, transport: Transport) -> DiscoveredHost:
    """Return a host under its name in the target."""
    name = transport.name
    return replace(read_host(transport, SshHost(name, file.target.hosts[name].address)), name=name)


def _inside(
    file: TargetFile, tier: str, transports: Mapping[str, Transport], runtime: Runtime
) -> dict[str, DiscoveredHost]:
    """Return the hosts of a tier as its services see them."""
    manager, described = runtime.service_manager, file.target.tiers[tier]
    assert manager is not None
    paths = paths_of(described.service)

    def read(transport: Transport) -> DiscoveredHost:
        words = runtime.packed(file.target, tier, paths)
        host = SshHost(transport.name, file.target.hosts[transport.name].address)
        return read_inside(transport, host, described.service, paths, words, manager.functions)

    return run_on_all([transports[name] for name in described.hosts], read).unwrap()


def _discovered(file: TargetFile, name: str, hosts: Mapping[str, DiscoveredHost]) -> DiscoveredTier:
    """Return the tier as it runs. Raises TargetError."""
    tier = DiscoveredTier(
        name, tuple(_instance(file, name, hosts[host]) for host in file.target.tiers[name].hosts)
    )
    deployments = {i.deployment: i.host.name for i in tier.instances}
    if len(deployments) > 1:
        differing = ", ".join(f"{host} runs {runs}" for runs, host in deployments.items())
        raise _mismatch(file, name, f"tier {name}: {differing}", "split the tier, " + REPLACE)
    return tier


def _instance(file: TargetFile, name: str, host: DiscoveredHost) -> Instance:
    """Return the target's deployment on the host; of several, the deployment at the tier's port."""
    tier = file.target.tiers[name]
    running, notes = instances(host)
    chosen = [instance for instance in running if instance.deployment in tier.service]
    if not chosen:
        unread = _unread_of(tier, host)
        others = ", ".join(instance.deployment for instance in running)
        missing = f"no editable {' or '.join(tier.service)}"
        message = f"{host.name} runs {f'{others}, but ' if others else ''}{missing}"
        hint = CORRECT if unread else "start it, " + REPLACE
        raise _mismatch(file, name, "\n".join([message, *dict.fromkeys((*notes, *unread))]), hint)
    chosen.sort(key=lambda i: (i.port != (tier.port or PORTS[i.deployment]),
                               tier.service.index(i.deployment)))  # fmt: skip
    first = chosen[0]
    if tier.port is None and first.port != PORTS[first.deployment]:
        message = f"{host.name}: {first.deployment} listens on port {first.port}"
        raise _mismatch(file, name, message, f"set `port: {first.port}` in the tier")
    return first


def _unread_of(tier: Tier, host: DiscoveredHost) -> list[str]:
    """Return why services of a tier may run here unread: whole files would replace their files."""
    every = adoptions()
    keys = dict.fromkeys(service.key for name in tier.service for service, _ in parts(name))
    concerned = [every[key] for key in keys if key in every]
    running = (unit for unit in host.units if host.runs(unit)
               and any(fnmatch(unit, name) for each in concerned for name in each.units))  # fmt: skip
    return [
        *(line for adoption in concerned for line in unread(host, adoption)),
        *(f"{host.name}: {unit} runs, but its files could not be read" for unit in running),
    ]


def _mismatch(file: TargetFile, name: str, message: str, hint: str) -> TargetError:
    return file.document.error(["tiers", name, "service"], message, hint=hint)


def _running(file: TargetFile, tiers: list[AdoptedTier]) -> Running:
    choices = {
        choice_of(tier.discovered.name): tier.discovered.deployment
        for tier in tiers
        if len(file.target.tiers[tier.discovered.name].service) > 1
    }
    values = {
        f"{tier.discovered.name}.{key}": v for tier in tiers for key, v in tier.values.items()
    }
    left = {f"{tier.discovered.name}.{key}": v for tier in tiers for key, v in tier.left.items()}
    return Running({**choices, **values}, left)


def _with_text(file: TargetFile, own: Own, tier: AdoptedTier) -> Own:
    is_choice = len(file.target.tiers[tier.discovered.name].service) > 1
    files = tuple(replace(each, text=tier.templates[each.template]) for each in own.files)
    return replace(own, files=files, deployment=tier.discovered.deployment if is_choice else "")


def _unread(tier: AdoptedTier) -> Iterator[tuple[str, str, str]]:
    for instance in tier.discovered.instances:
        for config in instance.configs.values():
            for path, why in config.unread.items():
                yield instance.host.name, readable(path), readable(why)
