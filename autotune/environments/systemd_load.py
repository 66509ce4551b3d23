"""Where the load on hosts of one's own is made, and how a study loads and watches them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.deploy.deployment import Deployment
from autotune.deploy.load_hosts import LoadHosts
from autotune.environments.base import Equipment
from autotune.environments.interruption import uninterrupted
from autotune.environments.load_meter import Gauge
from autotune.loads import kernel
from autotune.loads.base import Request
from autotune.monitor.watch import WatchedHost, hosts_of
from autotune.services.registry import expected_body
from autotune.study.progress import Narrator
from autotune.transports import curl
from autotune.transports.base import Transport
from autotune.transports.local import LocalTransport

if TYPE_CHECKING:
    from autotune.environments.systemd import SystemdBed


@contextmanager
def fit_load_hosts(bed: SystemdBed, directory: Path, narrator: Narrator) -> Iterator[None]:
    """Those that only make load, fit for it."""
    hosts = LoadHosts(_apart(bed), directory)
    try:
        hosts.open(kernel.NAMES, kernel.fit, narrator.note)
        yield
    finally:
        with uninterrupted():
            hosts.restore()


def answer(bed: SystemdBed) -> tuple[int, bytes] | str:
    """One request from where the load is made: this machine need not reach the stack at all."""
    url = f"http://{bed.stack.entry}{bed.file.target.load.path}"
    got = curl.answer(bed.load_hosts[0], url)
    return got if isinstance(got, str) else (got.status, got.body)


def equipment(bed: SystemdBed, fleet: Deployment) -> Equipment:
    """The effects of trials: deploying over SSH, loading from the load hosts, watching all of them."""
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


def _apart(bed: SystemdBed) -> list[Transport]:
    """Load hosts that are not tuned themselves, nor this machine."""
    return [way for way in bed.load_hosts
            if way.name not in bed.stack.hosts and not isinstance(way, LocalTransport)]  # fmt: skip
