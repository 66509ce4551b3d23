"""The whole stack on this machine, as private processes under the study's run directory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.deploy import ground, ports, stack
from autotune.deploy.embedded import EmbeddedFleet
from autotune.deploy.render import render
from autotune.deploy.stack import Part, Stack
from autotune.deploy.validate import Invalid, validate
from autotune.loads.base import Load, Request
from autotune.loads.headroom import calibrate
from autotune.loads.registry import chosen
from autotune.measure.watch import hosts_of
from autotune.run.bed import Checked, Equipment, Preview
from autotune.run.gauge import Gauge
from autotune.run.interruption import uninterrupted
from autotune.run.narrator import Narrator
from autotune.run.templates import overrides
from autotune.services.base import Settings, Value
from autotune.services.placement import placed
from autotune.services.registry import SERVICES, expected_body
from autotune.space import space as spaces
from autotune.space.dimension import Dimension
from autotune.space.facts import HostFacts
from autotune.space.presets import NAMED, PRESETS
from autotune.space.space import Space
from autotune.target.read import TargetFile
from autotune.transports.base import Transport
from autotune.transports.facts import host_facts
from autotune.transports.local import LocalTransport


@dataclass(frozen=True)
class EmbeddedBed:
    """A target on this machine: see `run.bed.Bed`."""

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
        target, space = self.file.target, self.space
        with _thrown_away("autotune-check-") as directory:
            laid = lay_out(self, directory)
            for settings in _presets(space):
                for part in laid.active(settings):
                    _judge(self, part, settings)
        programs = ", ".join(sorted({Path(p).name for p in self.programs.values()}))
        endpoints = (str(p.site.listen) for p in laid.parts if p.service.programs)
        listening = ", ".join(dict.fromkeys(endpoints))
        return Checked(
            held=(
                (
                    f"{self.file.path}: {len(target.tiers)} tiers, {len(space.dimensions)} "
                    f"parameters, {len(space.tunable)} of them tunable, "
                    f"{len(space.constraints)} rules"
                ),
                f"programs: {programs}",
                f"ports: {listening}",
                f"{', '.join(NAMED)}: rendered and accepted by the software itself",
            ),
            left_out=self.dropped,
            not_checked=(
                "whether the stack answers and what it carries: `autotune measure` does",
                "how much load the generator can make on this machine: `--headroom` does",
            ),
        )

    def headroom(self) -> str:
        port = next(iter(ports.allocate(self.file).values()))
        # The stack itself may have no nginx.
        nginx = ground.programs([SERVICES["nginx"]])["nginx"]
        found = calibrate(self.load, self.transport, nginx=nginx, port=port)
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
                for path, content in _rendered(self, part, settings).items()
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
    return _as_built(EmbeddedBed(file, space, facts, transport, programs, load))


def lay_out(bed: EmbeddedBed, directory: str) -> Stack:
    """The stack below ``directory``, on ports that are free now. Raises AutotuneError."""
    owner = ground.account()
    grounds = stack.Grounds(
        directory,
        ports.allocate(bed.file),
        bed.programs,
        bed.facts,
        *(owner or (None, None)),
    )
    return stack.build(bed.file.target, grounds)


def refusal(bed: EmbeddedBed, laid: Stack, name: str, value: Value) -> str | None:
    """What the service says against one value on top of the baseline; ``None`` if nothing.

    Whether the service is the one that the baseline chooses does not matter.
    """
    settings = bed.space.candidate({name: value}).settings
    for part in laid.parts:
        if name.startswith(f"{part.site.tier}.{part.service.name}."):
            try:
                _judge(bed, part, settings)
            except Invalid as error:
                return error.message.splitlines()[0]
    return None


def _as_built(bed: EmbeddedBed) -> EmbeddedBed:
    """Without the choices that the programs of this machine were built without."""
    space, dropped = bed.space, []
    with _thrown_away("autotune-choices-") as directory:
        laid = lay_out(bed, directory)
        for dimension in bed.space.tunable:
            refused = _refused(bed, laid, dimension)
            for choice in refused:
                space = space.without(dimension.name, choice)
            if refused:
                names, said = ", ".join(map(str, refused)), next(iter(refused.values()))
                dropped.append(f"{dimension.name}: not built with {names} ({said})")
    return replace(bed, space=space, dropped=(*space.dropped, *dropped))


def _refused(bed: EmbeddedBed, laid: Stack, dimension: Dimension) -> dict[Value, str]:
    """The choices that the program refuses, each with its words."""
    tried = dimension.choices if dimension.parameter.built_in else ()
    answers = {choice: refusal(bed, laid, dimension.name, choice) for choice in tried}
    return {c: said for c, said in answers.items() if said and c != dimension.baseline}


def _presets(space: Space) -> Iterator[Settings]:
    """Baseline, recommended and published settings of every deployment."""
    for deployment in space.deployments:
        yield space.candidate(deployment).settings
        for kind in PRESETS:
            yield space.candidate(space.preset(kind, deployment)).settings


def _rendered(bed: EmbeddedBed, part: Part, settings: Settings) -> dict[str, bytes]:
    return render(part.service, part.site, settings, bed.file.target.data, overrides(bed.file))


def _judge(bed: EmbeddedBed, part: Part, settings: Settings) -> None:
    """Let the software itself judge its files. Raises Invalid."""
    staging = Path(part.site.directory).with_name("staging")
    validate(part, _rendered(bed, part, settings), staging, bed.transport)


@contextmanager
def _thrown_away(prefix: str) -> Iterator[str]:
    """A directory that servers which drop their privileges can reach too."""
    with tempfile.TemporaryDirectory(prefix=prefix) as directory:
        Path(directory).chmod(0o755)
        yield directory


def _fleet(bed: EmbeddedBed, laid: Stack, directory: Path, narrator: Narrator) -> EmbeddedFleet:
    def loaded(done: int, total: int) -> None:
        if done == total:
            narrator.note(f"loading data: {done} of {total} pairs")

    return EmbeddedFleet(
        bed.file.target,
        bed.space,
        laid,
        directory,
        bed.transport,
        expect=expected_body(bed.file.target),
        overrides=overrides(bed.file),
        progress=loaded,
    )


def _equipment(bed: EmbeddedBed, laid: Stack, fleet: EmbeddedFleet) -> Equipment:
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
