"""A stack on lab hosts for tests: a target, its fleet, and the state of its hosts as text."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.deploy.deployment import Deployment
from autotune.deploy.host_commands import Command, run_commands
from autotune.deploy.managed_hosts import ManagedHosts
from autotune.diagnose.bottleneck import Bottleneck
from autotune.discovery.target_writer import AdoptionSummary, adopt_hosts
from autotune.environments.load_meter import LoadMeter
from autotune.environments.stack import StackEnvironment, prepare
from autotune.errors import AutotuneError
from autotune.lab.lifecycle import build_ssh_host
from autotune.lab.plan import derive_names
from autotune.loads.base import LoadGenerator, Request
from autotune.monitor.host_watch import build_watched_hosts
from autotune.services.base import Action, Settings
from autotune.services.diagnosis import Resource
from autotune.target.read_target import read_target
from autotune.target.slo import Slo
from autotune.transports.base import Transport
from autotune.transports.local import LocalTransport
from autotune.transports.ssh import SshTransport
from tests.lab.pictures import picture
from tests.lab.shared import HOSTS, NETWORK, SharedLab
from tests.undisturbed import undisturbed

TARGET = f"""\
name: fleet
slo: {{p99: 50ms, errors: 0.1%}}
hosts:
  fllb: {{address: {NETWORK}.21}}
  flweb: {{address: {NETWORK}.22}}
  flcache: {{address: {NETWORK}.23}}
  flstore: {{address: {NETWORK}.24}}
ssh: {{config: CONFIG}}
replace: true
tiers:
  lb:    {{hosts: fllb, service: nginx, forwards_to: web}}
  web:   {{hosts: flweb, service: nginx+php-fpm, app: reference, uses: [cache, store]}}
  cache: {{hosts: flcache, service: memcached}}
  store: {{hosts: flstore, service: redis}}
load: {{generator: httperf, path: /kv.php}}
data: {{pairs: 2000}}
"""


class News:
    """A reporter that stores the progress."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    __call__ = note

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


@dataclass(frozen=True)
class Ground:
    """A running lab, and the directory for targets and studies of tests."""

    lab: Path
    directory: Path
    transports: Mapping[str, Transport]

    def bed(self, *changes: tuple[str, str]) -> StackEnvironment:
        text = TARGET.replace("CONFIG", str(derive_names(self.lab).ssh_config))
        for change in changes:
            assert change[0] in text
            text = text.replace(*change)
        path = self.directory / "target.yaml"
        path.write_text(text)
        return prepare(read_target(path))

    def fleet(self, bed: StackEnvironment, study: str = "study", news: Any = None) -> Deployment:
        return bed.create_deployment(self.directory / study, (news or News()).note)

    def killed(self, fleet: Deployment) -> None:
        """Simulate a killed tuner: nothing is restored or unlocked."""
        hosts = fleet.hosts
        assert isinstance(hosts, ManagedHosts)
        hosts._lease.stop()
        for host in [host for host in hosts._hosts.values() if host.lock.is_locked]:
            ended = {**json.loads(host.lock.record), "pid": 2**22 + 1}
            with suppress(AutotuneError):
                claim = Command(("claim", host.lock.record, json.dumps(ended)))
                run_commands(host.transport, [claim])

    @contextmanager
    def opened(self, *changes: tuple[str, str], study: str = "study") -> Iterator[Deployment]:
        """Yield a fleet with its baseline deployed. Restore its hosts afterwards."""
        before = self.pictures()
        bed = self.bed(*changes)
        fleet = self.fleet(bed, study)
        fleet.lock_hosts()
        try:
            fleet.deploy(settings(fleet))
            yield fleet
        finally:
            fleet.restore()
            for transport in bed.transports.values():
                transport.close()
        left = differing(before, self.pictures())
        assert not left, left

    @contextmanager
    def adopted(self, *hosts: str, path: str) -> Iterator[tuple[AdoptionSummary, Deployment]]:
        """Yield the fleet of the services on these hosts, as written by `init --from`. Restore the
        hosts afterwards.
        """
        before = self.pictures()
        out = self.directory / "own.yaml"
        written = adopt_hosts(hosts, out, derive_names(self.lab).ssh_config, path)
        environment = prepare(read_target(out))
        fleet = environment.create_deployment(self.directory / "own", News().note)
        fleet.lock_hosts()
        try:
            yield written, fleet
        finally:
            fleet.restore()
            for transport in environment.transports.values():
                transport.close()
        left = differing(before, self.pictures())
        assert not left, left

    def pictures(self) -> dict[str, list[str]]:
        return {name: picture(derive_names(self.lab), name) for name in self.transports}

    def sh(self, host: str, script: str, *words: str) -> str:
        done = self.transports[host].run(["sh", "-c", script, "sh", *words], timeout=240.0)
        return done.stdout.strip()


@contextmanager
def renewed(shared_lab: SharedLab, directory: Path) -> Iterator[Ground]:
    """Yield the session's hosts in their original state."""
    shared_lab.renew()
    lab = shared_lab.directory
    transports = {host.name: SshTransport(build_ssh_host(lab, host.name)) for host in HOSTS}
    yield Ground(lab, directory, transports)
    for transport in transports.values():
        transport.close()


def diagnosed(
    ground: Ground,
    fleet: Deployment,
    load: LoadGenerator,
    request: Request,
    slo: Slo,
    rate: float,
    tier: str,
    resource: Resource = Resource.WORKERS,
) -> Bottleneck:
    """Return the bottleneck of the deployed settings, from two readings at a ``rate`` above their
    capacity.

    The readings are repeated if they show another tier or resource, because a busy machine may lack
    free ports, or CPU time for the generator.
    """
    hosts = build_watched_hosts(
        fleet.stack, dict.fromkeys(ground.transports, 2.0), ground.transports
    )
    starved = fleet.deployed_settings
    meter = LoadMeter(
        load, request, slo, (LocalTransport(),), fleet.stack, hosts,
        timeout=2.0, max_rate=20_000.0, read_deployed_settings=lambda: starved,
    )  # fmt: skip
    return shown(
        lambda: meter.find_bottleneck(starved, [meter.take_reading(rate, 2.0) for _ in range(2)]),
        tier,
        resource,
    )


def shown(diagnose: Callable[[], Bottleneck | None], tier: str, resource: Resource) -> Bottleneck:
    """Return the diagnosis of new readings, repeated until it shows this tier and resource."""

    def right(found: Bottleneck | None) -> bool:
        return found is not None and (found.tier, found.resource) == (tier, resource)

    bottleneck = undisturbed(diagnose, right, most=25)
    assert bottleneck is not None
    assert (bottleneck.tier, bottleneck.resource) == (tier, resource), bottleneck
    return bottleneck


def differing(before: Mapping[str, list[str]], after: Mapping[str, list[str]]) -> list[str]:
    """Return the lines about hosts that occur in only one of two states."""
    return [
        f"{host}: {line}" for host in before for line in sorted({*before[host]} ^ {*after[host]})
    ]


def settings(fleet: Deployment, **changed: Any) -> Settings:
    """Return the baseline with some values changed. In keywords, ``__`` represents a dot."""
    wanted = {name.replace("__", "."): value for name, value in changed.items()}
    return fleet.space.build_candidate(wanted).settings


def give_up_soon(fleet: Deployment) -> None:
    """Do not wait for wrong responses after the next deployment. Its rollback keeps the usual time
    limit.
    """
    roll_back, patience = fleet._roll_back, fleet.boot_times.fixed_limit

    def back(*changes: Any) -> None:
        fleet.boot_times.fixed_limit = patience
        roll_back(*changes)

    fleet.boot_times.fixed_limit, fleet._roll_back = 3.0, back  # type: ignore[method-assign]


def acted(actions: Mapping[str, Action]) -> dict[str, Action]:
    return {name: action for name, action in actions.items() if action is not Action.NONE}


def redeployed(fleet: Deployment, part: str, **values: object) -> tuple[Settings, Settings]:
    """Return the settings with these values of an instance (``tier.host.service``), and their
    effective values. Check that only this instance was restarted, or nothing if there are no
    values.
    """
    tier, _, service = part.split(".")
    candidate = fleet.space.build_candidate({f"{tier}.{service}.{n}": v for n, v in values.items()})
    result = fleet.deploy(candidate.settings)
    differences = [str(d) for d in result.mismatches if service in d.parameter]
    assert not differences, differences
    assert acted(result.actions) == ({part: Action.RESTART} if values else {})
    return candidate.settings, result.effective


def autotune(*words: str, cwd: Path) -> subprocess.Popen[str]:
    """Run the command in a separate process. ``stdout`` contains its output and errors."""
    return subprocess.Popen(
        [sys.executable, "-m", "autotune", *words],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
