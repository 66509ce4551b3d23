"""A tuner in a process of its own, to be killed: ``tuner.py tune|restore TARGET STUDY``.

``tune`` says "open" when its hosts are locked, then deploys one configuration after the other;
``restore`` says so before it begins.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

from autotune.deploy.restoring import restore_study
from autotune.environments import systemd
from autotune.target.read import read
from autotune.transports.hosts import transports
from tests.deploy.lab import News, settings

CHANGES = (
    {},
    {"web__php_fpm__max_children": 9, "lb__nginx__worker_processes": 3},
    {"cache__memcached__threads": 2, "web__limits__nofile": 7000},
    {"lb__sysctl__net__ipv4__tcp_fin_timeout": 33, "cache__sysctl__net__core__somaxconn": 2000},
)


def tune(target: Path, study: Path) -> None:
    bed = systemd.prepare(read(target))
    fleet = systemd.fleet_of(bed, study, News())  # type: ignore[arg-type]  # takes every call
    fleet.open()
    print("open", flush=True)
    for change in itertools.cycle(CHANGES):
        fleet.deploy(settings(fleet, **change))


def restore(target: Path, study: Path) -> None:
    file = read(target)
    used = {host for tier in file.target.tiers.values() for host in tier.hosts}
    ways = {name: way for name, way in transports(file).items() if name in used}
    print("open", flush=True)
    restore_study(study, ways)


if __name__ == "__main__":
    act = {"tune": tune, "restore": restore}[sys.argv[1]]
    act(Path(sys.argv[2]), Path(sys.argv[3]))
