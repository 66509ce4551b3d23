"""A stack of the distribution's own services, on hosts reached over SSH."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from autotune.deploy import manifest, stack
from autotune.deploy.deployment import Deployment
from autotune.deploy.desired_state import DesiredState, desired_state
from autotune.deploy.host_lock import look, oneself, why_stale
from autotune.deploy.load_hosts import LoadHosts
from autotune.deploy.programs import installed, installed_services
from autotune.deploy.runtime import Invalid
from autotune.deploy.stack import Part, Stack
from autotune.deploy.validation import validate_all
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
from autotune.errors import AutotuneError
from autotune.loads import load_host
from autotune.loads.base import Load
from autotune.loads.headroom import SERVER, of_hosts
from autotune.loads.registry import chosen
from autotune.monitor.watch import WatchedHost
from autotune.runtimes.systemd import Units
from autotune.services.base import Settings
from autotune.services.registry import expected_body
from autotune.space import space as spaces
from autotune.space.facts import HostFacts
from autotune.space.space import Space
from autotune.target.read import TargetFile
from autotune.transports import curl
from autotune.transports.base import Transport
from autotune.transports.facts import facts as host_facts
from autotune.transports.hosts import transports
from autotune.transports.local import LocalTransport
from autotune.transports.parallel import run_on_all

# Who Debian's web servers and PHP run as, and where configurations are tried on a host.
ACCOUNT = ("www-data", "www-data")
TRIALS = "/run/autotune"


@dataclass(frozen=True)
class SystemdEnvironment:
    """A target on its own hosts: see `environments.base.Environment`."""

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
        """Reach every host, and let its own software validate what each deployment would give it."""
        space = self.space
        for deployment in space.deployments:
            for settings in (deployment, space.preset("recommended", deployment)):
                self._validate(space.candidate(settings).settings)
        programs = {
            Path(path).name for part in self.stack.parts for path in part.site.programs.values()
        }
        return Checked(
            held=(
                size(self.file, space),
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
        servers = run_on_all(
            self.load_hosts, lambda host: installed(host, [SERVER])[SERVER.program]
        ).unwrap()
        measured = of_hosts(self.load, self.load_hosts, servers)
        names = ", ".join(host.name for host in self.load_hosts)
        return headroom(self.file, self.load, measured, f"on {names}")

    def preview(self) -> Preview:
        return preview(self.file, self.stack, lambda settings: self._desired(settings).files)

    @contextmanager
    def session(self, directory: Path, note: Note, history: History) -> Iterator[LoadSession]:
        """Every host locked, and at the end unlocked and as it was found."""
        fleet = fleet_of(self, directory, note)
        try:
            with self._fit_load_hosts(directory, note):
                fleet.open()
                yield self._load_session(fleet, history)
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

    def answer(self) -> tuple[int, bytes] | str:
        """One request from where the load is made: this machine need not reach the stack at all."""
        url = f"http://{self.stack.entry}{self.file.target.load.path}"
        answer = curl.answer(self.load_hosts[0], url)
        return answer if isinstance(answer, str) else (answer.status, answer.body)

    def _load_session(self, fleet: Deployment, history: History) -> LoadSession:
        return load_session(
            self.file,
            fleet,
            self.stack,
            self.load,
            history,
            facts=self.facts,
            in_place=lambda: fleet.in_place,
            load_hosts=self.load_hosts,
            transports=self.transports,
            generators=tuple(
                WatchedHost(host.name, self.facts[host.name].cpus, (), host)
                for host in self._generators
            ),
        )

    @property
    def _generators(self) -> list[Transport]:
        """Load hosts that are not tuned themselves, nor this machine."""
        return [
            host
            for host in self.load_hosts
            if host.name not in self.stack.hosts and not isinstance(host, LocalTransport)
        ]

    @contextmanager
    def _fit_load_hosts(self, directory: Path, note: Note) -> Iterator[None]:
        """Those that only make load, fit for it."""
        hosts = LoadHosts(self._generators, directory)
        try:
            hosts.open(load_host.NAMES, load_host.fit, note)
            yield
        finally:
            with uninterrupted():
                hosts.restore()

    def _desired(self, settings: Settings) -> DesiredState:
        return desired_state(settings, self.stack, lambda part: rendered(self.file, part, settings))

    def _validate(self, settings: Settings) -> None:
        """Raises Invalid with the parts whose software refuses their files, and its words."""
        desired = self._desired(settings)

        def ask(host: Transport) -> None:
            cases = [(part, desired.rendered[part.name]) for part in desired.parts_on(host.name)]
            for (part, _), message in zip(cases, validate_all(host, cases), strict=True):
                if message is not None:
                    raise Invalid(f"{part.name}: {message}")

        used = dict.fromkeys(part.site.host for part in desired.parts)
        run_on_all([self.transports[host] for host in used], ask).unwrap()

    def _locks(self) -> Iterator[str]:
        here = oneself("").place
        for host in self.stack.hosts:
            lock = look(self.transports[host])
            if lock.record and why_stale(lock, here) is None:
                yield f"{host}: being tuned by {lock.holder}, so that a run would be refused now"


def prepare(file: TargetFile) -> SystemdEnvironment:
    """Look at the hosts and work out the space; read-only.

    Raises TargetError for a target that does not fit them, AutotuneError for missing programs and
    hosts that cannot be reached.
    """
    hosts = transports(file)
    target = file.target
    facts = host_facts(target, hosts, units=True)
    load = chosen(file)
    load_hosts = tuple(hosts[name] for name in target.load.hosts) or (LocalTransport(),)
    run_on_all(load_hosts, lambda host: installed(host, [load])).unwrap()
    own = manifest.of(overrides(file))
    services = installed_services(target, hosts)
    context = stack.StackContext(
        TRIALS, {}, {}, facts, *ACCOUNT, installed=True, programs_by_host=services, own=own
    )
    laid = stack.build(target, context)
    manifest.check(own, [part.name for part in laid.parts])
    space = spaces.build(file, facts)
    environment = SystemdEnvironment(file, space, facts, hosts, load_hosts, load, laid)
    space, dropped = without_refused(space, laid.parts, partial(_refusals, file, hosts))
    return replace(environment, space=space, dropped=dropped)


def fleet_of(environment: SystemdEnvironment, directory: Path, note: Note) -> Deployment:
    """The hosts of an environment, for the study in ``directory``; none is locked yet."""
    target, stack = environment.file.target, environment.stack
    hosts = {name: environment.transports[name] for name in stack.hosts}
    expect = expected_body(target)
    return Deployment(
        target,
        environment.space,
        stack,
        Units(hosts, directory, note),
        directory.name,
        request=environment.answer,
        expect=expect,
        loads_data=expect is not None,
        overrides=overrides(environment.file),
        progress=data_progress(note),
    )


def _refusals(
    file: TargetFile, hosts: Mapping[str, Transport], part: Part, tried: Sequence[Settings]
) -> list[str | None]:
    """What the program on the part's host says against each of these settings."""
    cases = [(part, rendered(file, part, settings)) for settings in tried]
    messages = validate_all(hosts[part.site.host], cases)
    return [message and message.splitlines()[0] for message in messages]


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
