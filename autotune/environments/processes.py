"""The whole stack on this machine, as private processes under the study's run directory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.deploy import ports, ready, stack
from autotune.deploy.deployment import Deployment
from autotune.deploy.private_servers import account, run_directory
from autotune.deploy.programs import NeedsPrograms, local_programs
from autotune.deploy.runtime import Invalid
from autotune.deploy.stack import Part, Stack
from autotune.environments.base import Checked, Preview, size
from autotune.environments.evaluation import History
from autotune.environments.load_session import LoadSession
from autotune.environments.stack import (
    Note,
    data_progress,
    headroom,
    load_session,
    overrides,
    preview,
    rendered,
    uninterrupted,
    without_refused,
)
from autotune.loads.base import Load
from autotune.loads.headroom import SERVER, calibrate
from autotune.loads.registry import chosen
from autotune.runtimes.embedded import Processes, validate
from autotune.services.base import Settings
from autotune.services.registry import expected_body, placed
from autotune.space import space as spaces
from autotune.space.dimension import NAMED, PRESETS
from autotune.space.facts import HostFacts
from autotune.space.space import Space
from autotune.target.read import TargetFile
from autotune.transports.base import Transport
from autotune.transports.facts import host_facts
from autotune.transports.local import LocalTransport


@dataclass(frozen=True)
class ProcessEnvironment:
    """A target on this machine: see `environments.base.Environment`."""

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

    def lay_out(self, directory: str) -> Stack:
        """The stack below ``directory``, on ports that are free now. Raises AutotuneError."""
        owner = account() or (None, None)
        context = stack.StackContext(
            directory, ports.allocate(self.file), self.programs, self.facts, *owner
        )
        return stack.build(self.file.target, context)

    def check(self) -> Checked:
        """Render each preset and let the software validate it, in a directory thrown away after."""
        with _thrown_away("autotune-check-") as directory:
            laid = self.lay_out(directory)
            for settings in self._presets():
                for part in laid.active(settings):
                    self._validate(part, settings)
        programs = ", ".join(sorted({Path(p).name for p in self.programs.values()}))
        endpoints = (str(p.site.listen) for p in laid.parts if p.service.programs)
        listening = ", ".join(dict.fromkeys(endpoints))
        return Checked(
            held=(
                size(self.file, self.space),
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
        server = local_programs([SERVER])[SERVER.program]
        measured = calibrate(self.load, self.transport, server=server, port=port)
        return headroom(self.file, self.load, measured, "here")

    def preview(self) -> Preview:
        laid = self.lay_out("<study>/run")

        def files(settings: Settings) -> dict[str, bytes]:
            return {
                f"{part.name}/{path}": content
                for part in laid.active(settings)
                for path, content in rendered(self.file, part, settings).items()
            }

        return preview(self.file, laid, files)

    @contextmanager
    def session(self, directory: Path, note: Note, history: History) -> Iterator[LoadSession]:
        """Private servers below ``directory``, ended and removed afterwards."""
        laid = self.lay_out(str(run_directory(directory, account())))
        target = self.file.target
        fleet = Deployment(
            target,
            self.space,
            laid,
            Processes(laid, directory, self.transport),
            directory.name,
            request=lambda: ready.answer(laid.entry, target.load.path),
            expect=expected_body(target),
            loads_data=True,
            overrides=overrides(self.file),
            progress=data_progress(note),
        )
        try:
            yield load_session(
                self.file,
                fleet,
                laid,
                self.load,
                history,
                facts=self.facts,
                in_place=lambda: fleet.in_place,
                load_hosts=(self.transport,),
                transports={},
            )
        finally:
            with uninterrupted():
                fleet.restore()

    def _presets(self) -> Iterator[Settings]:
        """Baseline, recommended and published settings of every deployment."""
        for deployment in self.space.deployments:
            yield self.space.candidate(deployment).settings
            for kind in PRESETS:
                yield self.space.candidate(self.space.preset(kind, deployment)).settings

    def _validate(self, part: Part, settings: Settings) -> None:
        """Let the software itself validate its files. Raises Invalid."""
        validate(part, rendered(self.file, part, settings), self.transport)

    def refusals(self, part: Part, tried: Sequence[Settings]) -> list[str | None]:
        """What the program says against each of these settings: see `stack.Refusals`."""
        messages: list[str | None] = []
        for settings in tried:
            try:
                self._validate(part, settings)
                messages.append(None)
            except Invalid as error:
                messages.append(error.message.splitlines()[0])
        return messages


def prepare(file: TargetFile) -> ProcessEnvironment:
    """Look at this machine and work out the space; read-only.

    Raises TargetError for a target that does not fit it, AutotuneError for missing programs.
    """
    transport = LocalTransport()
    here = host_facts(transport)
    facts = {name: here.within(host) for name, host in file.target.hosts.items()}
    space = spaces.build(file, facts)
    used: list[NeedsPrograms] = [
        place.service for name, tier in file.target.tiers.items() for place in placed(name, tier)
    ]
    load = chosen(file)
    programs = local_programs([*used, load])
    environment = ProcessEnvironment(file, space, facts, transport, programs, load)
    with _thrown_away("autotune-choices-") as directory:
        parts = environment.lay_out(directory).parts
        space, dropped = without_refused(space, parts, environment.refusals)
    return replace(environment, space=space, dropped=dropped)


@contextmanager
def _thrown_away(prefix: str) -> Iterator[str]:
    """A directory that servers which drop their privileges can reach too."""
    with tempfile.TemporaryDirectory(prefix=prefix) as directory:
        Path(directory).chmod(0o755)
        yield directory
