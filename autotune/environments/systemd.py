"""A stack of the distribution's own services, on hosts reached over SSH."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from autotune.deploy import manifest, stack
from autotune.deploy.deployment import Deployment
from autotune.deploy.desired_state import want
from autotune.deploy.inventory import installed, installed_services
from autotune.deploy.stack import Stack
from autotune.environments.acceptance import as_built
from autotune.environments.base import Checked, Equipment, Preview
from autotune.environments.interruption import uninterrupted
from autotune.environments.systemd_check import checked
from autotune.environments.systemd_load import answer, equipment, fit_load_hosts
from autotune.environments.templates import overrides, rendered
from autotune.errors import AutotuneError
from autotune.loads.base import Load
from autotune.loads.headroom import SERVER, of_hosts
from autotune.loads.registry import chosen
from autotune.runtimes.systemd import Systemd
from autotune.services.base import Settings
from autotune.services.registry import expected_body
from autotune.space import space as spaces
from autotune.space.facts import HostFacts
from autotune.space.space import Space
from autotune.study.progress import Narrator
from autotune.target.read import TargetFile
from autotune.transports.base import Transport
from autotune.transports.facts import facts as host_facts
from autotune.transports.hosts import transports
from autotune.transports.local import LocalTransport
from autotune.transports.parallel import on_all

# Who Debian's web servers and PHP run as, and where configurations are tried on a host.
ACCOUNT = ("www-data", "www-data")
TRIALS = "/run/autotune"


@dataclass(frozen=True)
class SystemdBed:
    """A target on its own hosts: see `environments.base.Bed`."""

    file: TargetFile
    space: Space
    facts: Mapping[str, HostFacts]
    transports: Mapping[str, Transport]
    load_hosts: tuple[Transport, ...]
    load: Load
    stack: Stack
    dropped: tuple[str, ...] = ()

    def announce(self) -> str:
        target = self.file.target
        return (
            f"Load goes to http://{self.stack.entry}{target.load.path} and nowhere else: up to "
            f"{target.load.max_rate:g} requests/s for about {target.budget.time / 60:g} minutes.\n"
            f"Services of {', '.join(self.stack.hosts)} are reconfigured, reloaded and restarted "
            "meanwhile, and put back as they are now at the end."
        )

    def check(self) -> Checked:
        """Reach every host, and let its own software judge what every deployment would give it."""
        return checked(self)

    def headroom(self) -> str:
        """Each load host against a private server of its own that does nothing."""
        used = on_all(
            self.load_hosts, lambda way: installed(way, [SERVER])[SERVER.program]
        ).everywhere()
        found = of_hosts(self.load, self.load_hosts, used)
        wanted = self.file.target.load.max_rate
        names = ", ".join(way.name for way in self.load_hosts)
        made = f"{self.load.name} makes at least {min(found.rate, wanted):g} requests/s on {names}"
        return found.shortage(wanted) or made

    def preview(self) -> Preview:
        def files(settings: Settings) -> dict[str, bytes]:
            return want(
                settings, self.stack, lambda part: rendered(self.file, part, settings)
            ).files

        return Preview(
            entry=f"http://{self.stack.entry}{self.file.target.load.path}",
            servers=tuple(part.name for part in self.stack.parts if part.service.programs),
            files=files,
        )

    @contextmanager
    def opened(self, directory: Path, narrator: Narrator) -> Iterator[Equipment]:
        """Every host locked, and at the end unlocked and as it was found."""
        fleet = fleet_of(self, directory, narrator)
        try:
            with fit_load_hosts(self, directory, narrator):
                fleet.open()
                yield equipment(self, fleet)
        except AutotuneError as error:
            _put_back(fleet, error)
            raise
        except BaseException:
            _put_back(fleet, None)
            raise
        else:
            _put_back(fleet, None)
        finally:
            for transport in self.transports.values():
                transport.close()


def prepare(file: TargetFile) -> SystemdBed:
    """Look at the hosts and work out the space; read-only.

    Raises TargetError for a target that does not fit them, AutotuneError for missing programs and
    hosts that cannot be reached.
    """
    ways = transports(file)
    target = file.target
    facts = host_facts(target, ways, units=True)
    load = chosen(file)
    load_hosts = tuple(ways[name] for name in target.load.hosts) or (LocalTransport(),)
    on_all(load_hosts, lambda way: installed(way, [load])).everywhere()
    own = manifest.of(overrides(file))
    found = installed_services(target, ways)
    grounds = stack.Grounds(TRIALS, {}, {}, facts, *ACCOUNT, "systemd", found, own)
    laid = stack.build(target, grounds)
    manifest.check(own, [part.name for part in laid.parts])
    space = spaces.build(file, facts)
    bed = SystemdBed(file, space, facts, ways, load_hosts, load, laid)
    space, dropped = as_built(space, laid.parts, ways, partial(rendered, file))
    return replace(bed, space=space, dropped=dropped)


def fleet_of(bed: SystemdBed, directory: Path, narrator: Narrator) -> Deployment:
    """The hosts of a bed, for the study in ``directory``; none is locked yet."""

    def loaded(done: int, total: int) -> None:
        if done == total:
            narrator.note(f"loading data: {done} of {total} pairs")

    expect = expected_body(bed.file.target)
    return Deployment(
        bed.file.target,
        bed.space,
        bed.stack,
        Systemd({name: bed.transports[name] for name in bed.stack.hosts}, directory, narrator.note),
        directory.name,
        request=lambda: answer(bed),
        expect=expect,
        loads_data=expect is not None,
        overrides=overrides(bed.file),
        progress=loaded,
    )


def _put_back(fleet: Deployment, error: AutotuneError | None) -> None:
    """Whatever went wrong, the hosts are put back; if that fails too, both are told."""
    try:
        with uninterrupted():
            fleet.restore()
    except AutotuneError as another:
        if error is None:
            raise
        message = f"{error.message}\n{another.message}"
        raise AutotuneError(message, hint=another.hint) from error
