"""Whether a deployment's units stay up, and the values in effect, from the software itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from autotune.deploy.deployed import Deployed, Difference
from autotune.deploy.desired_state import Wanted, actions
from autotune.deploy.handover import handover
from autotune.deploy.host_state import HostSeen
from autotune.deploy.plan import Steps
from autotune.deploy.runtime import Runtime, RuntimeHost
from autotune.errors import AutotuneError
from autotune.services.base import Settings, Value
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


def confirmed(
    runtime: Runtime, wanted: Wanted, steps: Mapping[str, Steps], space: Space, *, first: bool
) -> InPlace:
    """A deployment as every host says that it is. Raises NotUp where a unit has ended since."""
    answers = runtime.gather(wanted.hosts, lambda host: read_back(wanted, host)).everywhere()
    seen = {name: observed for name, (observed, _) in answers.items()}
    for name in wanted.hosts:
        _insist_on_units(runtime[name], wanted, seen[name])
    effective = of_tiers(wanted.settings, [values for _, values in answers.values()])
    changed = {name: {*s.write, *s.remove, *s.sysctls} for name, s in steps.items()}
    deployed = Deployed(
        wanted.files,
        actions(wanted, {name: s.act for name, s in steps.items()}, changed, first=first),
        effective,
        differences(wanted.settings, effective, space.active(wanted.settings)),
        handover(wanted) if runtime.persistent else {},
    )
    return InPlace(wanted, deployed, pids(seen))


def pids(seen: Mapping[str, HostSeen]) -> Pids:
    """What tells the processes of units from later ones."""
    return {name: {unit: (found.pid, found.restarts) for unit, found in host.units.items()}
            for name, host in seen.items()}  # fmt: skip


def read_back(wanted: Wanted, host: RuntimeHost) -> tuple[HostSeen, dict[str, Value]]:
    """A host as it is, and full parameter name → value in effect there."""
    readbacks = [(part, readback) for part in wanted.parts_on(host.name)
                 for readback in part.service.effective(part.site)]  # fmt: skip
    questions = [(part, readback.argv) for part, readback in readbacks]
    seen, answers = host.observe_and_ask(wanted.hosts[host.name], questions)
    values: dict[str, Value] = {}
    for (part, readback), printed in zip(readbacks, answers, strict=True):
        prefix = f"{part.site.tier}.{part.service.name}."
        values |= {prefix + name: value for name, value in readback.parse(printed).items()}
    return seen, values


def of_tiers(asked: Settings, found: Iterable[Settings]) -> dict[str, Value]:
    """One value for all hosts of a tier: where they differ, one that is not as asked is told."""
    effective: dict[str, Value] = {}
    for values in found:
        for name, value in values.items():
            if effective.get(name, asked.get(name)) == asked.get(name):
                effective[name] = value
    return effective


def _insist_on_units(host: RuntimeHost, wanted: Wanted, seen: HostSeen) -> None:
    for unit, runs in wanted.hosts[host.name].units.items():
        if runs and not seen.units[unit].active:
            raise NotUp(f"{host.name}: {'; '.join(host.complaints())}")


def differences(
    asked: Settings, effective: Settings, active: frozenset[str]
) -> tuple[Difference, ...]:
    """Where the two disagree, among the parameters that matter under ``asked``."""
    return tuple(
        Difference(name, asked[name], value)
        for name, value in sorted(effective.items())
        if name in asked and name in active and not _same(asked[name], value)
    )


def _same(asked: Value, effective: Value) -> bool:
    if isinstance(asked, str) or isinstance(effective, str):
        return str(asked) == str(effective)
    # Servers print fractions with two digits.
    return abs(float(asked) - float(effective)) < 0.006
