"""The whole stack on this machine, as private processes under the study's run directory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from autotune.deploy import ground, ports, ready, stack
from autotune.deploy.deployment import Deployment
from autotune.deploy.stack import Stack
from autotune.environments.base import Checked, Equipment, Preview
from autotune.environments.interruption import uninterrupted
from autotune.environments.load_meter import Gauge
from autotune.environments.processes_check import as_built, checked
from autotune.environments.processes_stack import lay_out
from autotune.environments.templates import overrides, rendered
from autotune.loads.base import Load, Request
from autotune.loads.headroom import SERVER, calibrate
from autotune.loads.registry import chosen
from autotune.monitor.watch import hosts_of
from autotune.runtimes.processes import Processes
from autotune.services.placement import placed
from autotune.services.registry import expected_body
from autotune.space import space as spaces
from autotune.space.facts import HostFacts
from autotune.space.space import Space
from autotune.study.progress import Narrator
from autotune.target.read import TargetFile
from autotune.transports.base import Transport
from autotune.transports.facts import host_facts
from autotune.transports.local import LocalTransport

__all__ = ["EmbeddedBed", "lay_out", "prepare"]


@dataclass(frozen=True)
class EmbeddedBed:
    """A target on this machine: see `environments.base.Bed`."""

    file: TargetFile
    space: Space
    facts: Mapping[str, HostFacts]
    transport: Transport
    programs: Mapping[str, str]
    load: Load
    dropped: tuple[str, ...] = ()

    def announce(self) -> str:
        target = self.file.target
        tier = stack.entry_tier(target)
        host = target.tiers[tier].hosts[0]
        return (
            f"Load goes to tier {tier} on {target.hosts[host].address}, path {target.load.path}, "
            f"and nowhere else: up to {target.load.max_rate:g} requests/s for about "
            f"{target.budget.time / 60:g} minutes."
        )

    def check(self) -> Checked:
        """Render each preset and let the software judge it, in a directory thrown away after."""
        return checked(self)

    def headroom(self) -> str:
        port = next(iter(ports.allocate(self.file).values()))
        server = ground.programs([SERVER])[SERVER.program]
        found = calibrate(self.load, self.transport, server=server, port=port)
        wanted = self.file.target.load.max_rate
        made = f"{self.load.name} makes at least {min(found.rate, wanted):g} requests/s here"
        return found.shortage(wanted) or made

    def preview(self) -> Preview:
        laid = lay_out(self, "<study>/run")
        return Preview(
            entry=f"http://{laid.entry}{self.file.target.load.path}",
            servers=tuple(part.name for part in laid.parts if part.service.programs),
            files=lambda settings: {
                f"{part.name}/{path}": content
                for part in laid.active(settings)
                for path, content in rendered(self.file, part, settings).items()
            },
        )

    @contextmanager
    def opened(self, directory: Path, narrator: Narrator) -> Iterator[Equipment]:
        """Private servers below ``directory``, ended and removed afterwards."""
        where = ground.run_directory(directory, ground.account())
        laid = lay_out(self, str(where))
        fleet = _fleet(self, laid, directory, narrator)
        try:
            yield _equipment(self, laid, fleet)
        finally:
            with uninterrupted():
                fleet.restore()


def prepare(file: TargetFile) -> EmbeddedBed:
    """Look at this machine and work out the space; read-only.

    Raises TargetError for a target that does not fit it, AutotuneError for missing programs.
    """
    transport = LocalTransport()
    here = host_facts(transport)
    facts = {name: here.within(host) for name, host in file.target.hosts.items()}
    space = spaces.build(file, facts)
    used: list[ground.NeedsPrograms] = [
        place.service for name, tier in file.target.tiers.items() for place in placed(name, tier)
    ]
    load = chosen(file)
    programs = ground.programs([*used, load])
    return as_built(EmbeddedBed(file, space, facts, transport, programs, load))


def _fleet(bed: EmbeddedBed, laid: Stack, directory: Path, narrator: Narrator) -> Deployment:
    def loaded(done: int, total: int) -> None:
        if done == total:
            narrator.note(f"loading data: {done} of {total} pairs")

    return Deployment(
        bed.file.target,
        bed.space,
        laid,
        Processes(laid, directory, bed.transport),
        directory.name,
        request=lambda: ready.answer(laid.entry, bed.file.target.load.path),
        expect=expected_body(bed.file.target),
        loads_data=True,
        overrides=overrides(bed.file),
        progress=loaded,
    )


def _equipment(bed: EmbeddedBed, laid: Stack, fleet: Deployment) -> Equipment:
    target = bed.file.target
    slo, path = target.slo.slo, target.load.path
    gauge = Gauge(
        bed.load,
        Request(laid.entry, path, expected_body(target) if target.load.one_page else None),
        slo,
        (bed.transport,),
        laid,
        hosts_of(laid, {name: facts.cpus for name, facts in bed.facts.items()}, {}),
        timeout=target.load.timeout,
        in_place=lambda: fleet.in_place,
    )
    return Equipment.measuring(fleet, gauge, target.load.max_rate)
