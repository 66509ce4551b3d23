"""Whether a deployment's units stay up, and the values in effect, from the software itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from autotune.deploy.deployed import Deployed, Difference, HostManifest
from autotune.deploy.desired_state import DesiredState, part_actions
from autotune.deploy.host_state import HostPlan, ObservedHost
from autotune.deploy.runtime import HeldHosts, RuntimeHost
from autotune.errors import AutotuneError
from autotune.services.base import Settings, Value
from autotune.space.space import Space

Pids = Mapping[str, Mapping[str, tuple[int, int]]]


class NotUp(AutotuneError):
    """Everything was started, and the stack does not answer right."""


@dataclass(frozen=True)
class ConfirmedState:
    """The last good deployment, and how the units looked when it was found good."""

    desired: DesiredState
    deployed: Deployed
    pids: Pids


def confirmed(
    hosts: HeldHosts,
    desired: DesiredState,
    plans: Mapping[str, HostPlan],
    space: Space,
    *,
    first: bool,
    before: Mapping[str, ObservedHost],
    manifests: Mapping[str, HostManifest],
) -> ConfirmedState:
    """A deployment as every host says that it is; ``before`` is how hosts were when it began.

    Raises NotUp where a unit has ended since.
    """
    answers = hosts.gather(desired.hosts, lambda host: read_back(desired, host)).unwrap()
    observed = {name: observed for name, (observed, _) in answers.items()}
    for name in desired.hosts:
        check_units_run(hosts[name], desired, before[name], observed[name])
    effective = of_tiers(desired.settings, [values for _, values in answers.values()])
    changed = {name: {*plan.write, *plan.remove, *plan.sysctls} for name, plan in plans.items()}
    deployed = Deployed(
        desired.files,
        part_actions(
            desired, {name: plan.act for name, plan in plans.items()}, changed, first=first
        ),
        effective,
        differences(desired.settings, effective, space.active(desired.settings)),
        manifests,
    )
    return ConfirmedState(desired, deployed, pids(observed))


def pids(observed: Mapping[str, ObservedHost]) -> Pids:
    """What tells the processes of units from later ones."""
    return {host_name: {name: (unit.pid, unit.restarts) for name, unit in host.units.items()}
            for host_name, host in observed.items()}  # fmt: skip


def read_back(desired: DesiredState, host: RuntimeHost) -> tuple[ObservedHost, dict[str, Value]]:
    """A host as it is, and full parameter name → value in effect there."""
    readbacks = [(part, readback) for part in desired.parts_on(host.name)
                 for readback in part.service.effective(part.site)]  # fmt: skip
    questions = [(part, readback.argv) for part, readback in readbacks]
    observed, answers = host.observe_and_ask(desired.hosts[host.name], questions)
    values: dict[str, Value] = {}
    for (part, readback), printed in zip(readbacks, answers, strict=True):
        prefix = f"{part.site.tier}.{part.service.name}."
        values |= {prefix + name: value for name, value in readback.parse(printed).items()}
    return observed, values


def of_tiers(asked: Settings, by_host: Iterable[Settings]) -> dict[str, Value]:
    """One value for all hosts of a tier: where they differ, one that is not as asked."""
    effective: dict[str, Value] = {}
    for values in by_host:
        for name, value in values.items():
            if effective.get(name, asked.get(name)) == asked.get(name):
                effective[name] = value
    return effective


def check_units_run(
    host: RuntimeHost, desired: DesiredState, before: ObservedHost, observed: ObservedHost
) -> None:
    """A unit may listen for a moment, end, and be started again: it does not run all the same."""
    for unit, runs in desired.hosts[host.name].units.items():
        now = observed.units[unit]
        again = now.restarting or now.restarts > before.units[unit].restarts
        if runs and (again or not now.active):
            ended = [f"{host.name}: {unit} ended and was started again by itself"] if again else []
            lines = [*ended, *host.complaints()]
            raise NotUp("; ".join(lines) or f"{host.name}: {unit} does not run")


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
