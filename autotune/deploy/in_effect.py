"""What a deployment has come to on its hosts: whether units stay up, and the values in effect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from autotune.deploy.batch import Command
from autotune.deploy.effective import differences
from autotune.deploy.fleet import Deployed
from autotune.deploy.handover import handover
from autotune.deploy.host import FleetHost
from autotune.deploy.host_state import HostSeen
from autotune.deploy.hosts import Hosts
from autotune.deploy.steps import Steps
from autotune.deploy.wanted import Wanted, actions
from autotune.errors import AutotuneError
from autotune.services.base import Action, Settings, Value
from autotune.space.space import Space

Pids = Mapping[str, Mapping[str, tuple[int, int]]]


class NotUp(AutotuneError):
    """Everything was started, and the stack does not answer right."""


@dataclass(frozen=True)
class InPlace:
    """The last good deployment, and how the units looked when it was found good."""

    wanted: Wanted
    deployed: Deployed
    pids: Pids


def confirmed(hosts: Hosts, wanted: Wanted, steps: Mapping[str, Steps], space: Space) -> InPlace:
    """A deployment as every host says that it is. Raises NotUp where a unit has ended since."""
    answers = hosts.everywhere(lambda host: read_back(wanted, host))
    seen = {name: found for name, (found, _) in answers.items()}
    for name in wanted.hosts:
        _insist_on_units(hosts[name], wanted, seen[name])
    effective = of_tiers(wanted.settings, [values for _, values in answers.values()])
    deployed = Deployed(
        wanted.files,
        _acted(wanted, steps),
        effective,
        differences(wanted.settings, effective, space.active(wanted.settings)),
        handover(wanted),
    )
    return InPlace(wanted, deployed, pids(seen))


def pids(seen: Mapping[str, HostSeen]) -> Pids:
    """What tells the processes of units from later ones."""
    return {name: {unit: (found.pid, found.restarts) for unit, found in host.units.items()}
            for name, host in seen.items()}  # fmt: skip


def read_back(wanted: Wanted, host: FleetHost) -> tuple[HostSeen, dict[str, Value]]:
    """A host as it is, and full parameter name → value in effect there."""
    readbacks = [(part, readback) for part in wanted.parts_on(host.name)
                 for readback in part.service.effective(part.site)]  # fmt: skip
    asked = [Command(readback.argv) for _, readback in readbacks]
    seen, answers = host.look_and_ask(wanted.hosts[host.name], asked)
    values: dict[str, Value] = {}
    for (part, readback), done in zip(readbacks, answers, strict=True):
        prefix = f"{part.site.tier}.{part.service.name}."
        values |= {prefix + name: value for name, value in readback.parse(done.stdout).items()}
    return seen, values


def of_tiers(asked: Settings, found: Iterable[Settings]) -> dict[str, Value]:
    """One value for all hosts of a tier: where they differ, one that is not as asked is told."""
    effective: dict[str, Value] = {}
    for values in found:
        for name, value in values.items():
            if effective.get(name, asked.get(name)) == asked.get(name):
                effective[name] = value
    return effective


def _insist_on_units(host: FleetHost, wanted: Wanted, seen: HostSeen) -> None:
    for unit, runs in wanted.hosts[host.name].units.items():
        if runs and not seen.units[unit].active:
            raise NotUp(f"{host.name}: {'; '.join(host.complaints())}")


def _acted(wanted: Wanted, steps: Mapping[str, Steps]) -> dict[str, Action]:
    changed = {name: {*s.write, *s.remove, *s.sysctls} for name, s in steps.items()}
    return actions(wanted, {name: s.act for name, s in steps.items()}, changed)
