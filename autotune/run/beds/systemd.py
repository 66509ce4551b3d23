"""A stack of the distribution's own services, on hosts reached over SSH."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from autotune.deploy import manifest, stack
from autotune.deploy.host_lock import look, oneself, why_stale
from autotune.deploy.inventory import installed
from autotune.deploy.load_hosts import LoadHosts
from autotune.deploy.render import render
from autotune.deploy.stack import Part, Stack
from autotune.deploy.systemd import SystemdFleet
from autotune.deploy.wanted import want
from autotune.errors import AutotuneError
from autotune.loads import kernel
from autotune.loads.base import Load, Request
from autotune.loads.headroom import of_hosts
from autotune.loads.registry import chosen
from autotune.measure.watch import WatchedHost, hosts_of
from autotune.run.acceptance import as_built, insist_on_acceptance
from autotune.run.bed import Checked, Equipment, Preview
from autotune.run.gauge import Gauge
from autotune.run.interruption import uninterrupted
from autotune.run.narrator import Narrator
from autotune.run.templates import overrides
from autotune.services.base import Settings
from autotune.services.nginx import Nginx
from autotune.services.placement import placed
from autotune.services.registry import expected_body
from autotune.space import space as spaces
from autotune.space.facts import HostFacts
from autotune.space.space import Space
from autotune.target.model import Target
from autotune.target.read import TargetFile
from autotune.transports import curl
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
    """A target on its own hosts: see `run.bed.Bed`."""

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
        target, space = self.file.target, self.space
        for deployment in space.deployments:
            for settings in (deployment, space.preset("recommended", deployment)):
                self._accepted(space.candidate(settings).settings)
        programs = {Path(path).name for part in self.stack.parts
                    for path in part.site.programs.values()}  # fmt: skip
        return Checked(
            held=(
                (
                    f"{self.file.path}: {len(target.tiers)} tiers, {len(space.dimensions)} "
                    f"parameters, {len(space.tunable)} of them tunable, "
                    f"{len(space.constraints)} rules"
                ),
                f"reachable, as root: {', '.join(self.stack.hosts)}",
                f"programs: {', '.join(sorted(programs))}",
                *self._locks(),
                (
                    f"deployments: {len(space.deployments)}, at their defaults and as recommended "
                    "accepted by the hosts' own software"
                ),
            ),
            left_out=self.dropped,
            not_checked=("whether the stack answers and what it carries: `autotune measure` does",),
        )

    def headroom(self) -> str:
        """Each load host against a private server of its own that does nothing."""
        used = on_all(self.load_hosts, lambda way: installed(way, [Nginx()])["nginx"]).everywhere()
        found = of_hosts(self.load, self.load_hosts, used)
        wanted = self.file.target.load.max_rate
        names = ", ".join(way.name for way in self.load_hosts)
        made = f"{self.load.name} makes at least {min(found.rate, wanted):g} requests/s on {names}"
        return found.shortage(wanted) or made

    def preview(self) -> Preview:
        def files(settings: Settings) -> dict[str, bytes]:
            return want(settings, self.stack, lambda part: _rendered(self, part, settings)).files

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
            with _load_hosts(self, directory, narrator):
                fleet.open()
                yield _equipment(self, fleet)
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

    def _accepted(self, settings: Settings) -> None:
        wanted = want(settings, self.stack, lambda part: _rendered(self, part, settings))
        insist_on_acceptance(wanted.parts, wanted.rendered, self.transports)

    def _locks(self) -> Iterator[str]:
        here = oneself("").place
        for host in self.stack.hosts:
            seen = look(self.transports[host])
            if seen.record and why_stale(seen, here) is None:
                yield f"{host}: being tuned by {seen.holder}, so that a run would be refused now"


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
    found = _installed(target, ways)
    grounds = stack.Grounds(TRIALS, {}, {}, facts, *ACCOUNT, "systemd", found, own)
    laid = stack.build(target, grounds)
    manifest.check(own, [part.name for part in laid.parts])
    space = spaces.build(file, facts)
    bed = SystemdBed(file, space, facts, ways, load_hosts, load, laid)
    space, dropped = as_built(space, laid.parts, ways, partial(_rendered, bed))
    return replace(bed, space=space, dropped=dropped)


def _installed(target: Target, ways: Mapping[str, Transport]) -> dict[str, dict[str, str]]:
    """What of the services' programs is on each host that has a tier."""
    services = {host: [place.service for name, tier in target.tiers.items() if host in tier.hosts
                       for place in placed(name, tier)] for host in ways}  # fmt: skip
    used = {ways[host].name: host for host, needed in services.items() if needed}
    found = on_all(
        [ways[host] for host in used.values()],
        lambda transport: installed(transport, services[used[transport.name]]),
    ).everywhere()
    return {used[name]: programs for name, programs in found.items()}


def _rendered(bed: SystemdBed, part: Part, settings: Settings) -> dict[str, bytes]:
    return render(part.service, part.site, settings, bed.file.target.data, overrides(bed.file))


def _put_back(fleet: SystemdFleet, error: AutotuneError | None) -> None:
    """Whatever went wrong, the hosts are put back; if that fails too, both are told."""
    try:
        with uninterrupted():
            fleet.restore()
    except AutotuneError as another:
        if error is None:
            raise
        message = f"{error.message}\n{another.message}"
        raise AutotuneError(message, hint=another.hint) from error


def fleet_of(bed: SystemdBed, directory: Path, narrator: Narrator) -> SystemdFleet:
    """The hosts of a bed, for the study in ``directory``; none is locked yet."""

    def loaded(done: int, total: int) -> None:
        if done == total:
            narrator.note(f"loading data: {done} of {total} pairs")

    return SystemdFleet(
        bed.file.target,
        bed.space,
        bed.stack,
        directory,
        bed.transports,
        request=lambda: _answer(bed),
        expect=expected_body(bed.file.target),
        overrides=overrides(bed.file),
        progress=loaded,
        note=narrator.note,
    )


@contextmanager
def _load_hosts(bed: SystemdBed, directory: Path, narrator: Narrator) -> Iterator[None]:
    """Those that only make load, fit for it."""
    hosts = LoadHosts(_apart(bed), directory)
    try:
        hosts.open(kernel.NAMES, kernel.fit, narrator.note)
        yield
    finally:
        with uninterrupted():
            hosts.restore()


def _apart(bed: SystemdBed) -> list[Transport]:
    """Load hosts that are not tuned themselves, nor this machine."""
    return [way for way in bed.load_hosts
            if way.name not in bed.stack.hosts and not isinstance(way, LocalTransport)]  # fmt: skip


def _answer(bed: SystemdBed) -> tuple[int, bytes] | str:
    """One request from where the load is made: this machine need not reach the stack at all."""
    url = f"http://{bed.stack.entry}{bed.file.target.load.path}"
    got = curl.answer(bed.load_hosts[0], url)
    return got if isinstance(got, str) else (got.status, got.body)


def _equipment(bed: SystemdBed, fleet: SystemdFleet) -> Equipment:
    target = bed.file.target
    slo, path = target.slo.slo, target.load.path
    gauge = Gauge(
        bed.load,
        Request(bed.stack.entry, path, expected_body(target) if target.load.one_page else None),
        slo,
        bed.load_hosts,
        bed.stack,
        hosts_of(
            bed.stack, {name: facts.cpus for name, facts in bed.facts.items()}, bed.transports
        ),
        timeout=target.load.timeout,
        in_place=lambda: fleet.in_place,
        generators=tuple(
            WatchedHost(way.name, bed.facts[way.name].cpus, (), way) for way in _apart(bed)
        ),
    )
    return Equipment.measuring(fleet, gauge, target.load.max_rate)
