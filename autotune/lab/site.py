"""The application of a target on the hosts of its lab, as an admin would have put it there.

Files, units and data are put up once, by the transaction that a study deploys with, and are the hosts'
own from then on: a study edits them in place, as on any other host. `templates/lab` has the files that
an admin would write differently from a study, which writes down every value.
"""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import replace
from pathlib import Path

from autotune.deploy.managed_hosts import ManagedHosts
from autotune.environments.stack import prepare, uninterrupted
from autotune.lab.disk import SITE
from autotune.lab.plan import Names
from autotune.services.base import Role
from autotune.target.model import Target
from autotune.target.read import TargetFile
from autotune.target.shipped import shipped


def put_up(file: TargetFile, names: Names) -> bool:
    """Put up what a target edits in its lab; whether anything had to be done.

    Does nothing where the target writes whole files itself, has no application, or has hosts outside
    the lab. Raises AutotuneError; the hosts are then as they were.
    """
    target = file.target
    hosts = {host for tier in target.tiers.values() for host in tier.hosts}
    edited = any(tier.app and target.edits(name) for name, tier in target.tiers.items())
    if not edited or any(target.hosts[host].transport != "ssh" for host in hosts):
        return False
    marks = [names.machine(host) / SITE for host in hosts]
    described = _described(target)
    if all(mark.exists() and mark.read_text(encoding="ascii") == described for mark in marks):
        return False
    _deploy(_whole(file, names))
    for mark in marks:
        mark.write_text(described, encoding="ascii")
    return True


def _described(target: Target) -> str:
    """A digest that tells one site from another."""
    text = target.model_dump_json(include={"hosts", "tiers", "data", "parameters"})
    return hashlib.sha256(text.encode()).hexdigest()


def _whole(file: TargetFile, names: Names) -> TargetFile:
    """The target for hosts that have nothing yet, reached as the lab is."""
    templates = {"templates": str(shipped("templates/lab"))}
    tiers = {name: t.model_copy(update=templates) for name, t in file.target.tiers.items()}
    ssh = file.target.ssh.model_copy(update={"config": str(names.ssh_config)})
    return replace(file, target=file.target.model_copy(update={"tiers": tiers, "ssh": ssh}))


def _deploy(file: TargetFile) -> None:
    """Deploy the baseline to stay, and leave the hosts without a trace of how they were before."""
    environment = prepare(file)
    with tempfile.TemporaryDirectory(prefix="autotune-lab-") as directory:
        fleet = environment.fleet(Path(directory, "lab-up"), lambda _: None)
        hosts = fleet.hosts
        assert isinstance(hosts, ManagedHosts)
        # Kernels and limits stay as they are.
        parts = (part for part in fleet.stack.parts if part.site.role is not Role.HOST)
        fleet.stack = replace(fleet.stack, parts=tuple(parts))
        try:
            fleet.open()
            fleet.deploy(environment.space.candidate({}).settings)
            fleet.keep()
            hosts.gather(fleet.stack.hosts, lambda host: host.forget()).unwrap()
        finally:
            with uninterrupted():
                fleet.restore()
            for transport in environment.transports.values():
                transport.close()
