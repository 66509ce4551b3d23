"""The exported role against real hosts: it shows first, changes then, and does what `apply` does."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from autotune.deploy.in_effect import read_back
from autotune.environments.systemd import SystemdBed
from autotune.lab.hosts import LabHost
from autotune.lab.lifecycle import down, up
from autotune.lab.status import access
from autotune.services.base import Value
from autotune.study import applying, session, start
from autotune.study.records import Phase
from autotune.transports import curl
from autotune.transports.local import LocalTransport
from autotune.transports.ssh import SshTransport
from tests.deploy import lab as fleet_lab
from tests.deploy.lab import Ground, News, differing, marks

pytestmark = [*marks, pytest.mark.timeout(1500)]
NETWORK = (fleet_lab.NETWORK, "198.18.9")
HOSTS = [LabHost(host.name.replace("fl", "ex"), host.address.replace(*NETWORK))
         for host in fleet_lab.HOSTS]  # fmt: skip
CHANGES = (
    NETWORK,
    *((theirs.name, ours.name) for theirs, ours in zip(fleet_lab.HOSTS, HOSTS, strict=True)),
    ("service: nginx,", "service: [nginx, apache],"),
    ("service: nginx+php-fpm", "service: [nginx+php-fpm, apache+mod_php]"),
)
NGINX = {"lb.service": "nginx", "web.service": "nginx+php-fpm"}
APACHE = {"lb.service": "apache", "web.service": "apache+mod_php"}
RECAP = re.compile(r"^(\w+) +: ok=\d+ +changed=(\d+) +unreachable=0 +failed=0 ", re.MULTILINE)
BOOT = re.compile(r"etc/rc\w\.d/|\.wants/")
InEffect = Mapping[str, Mapping[str, Value]]


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """Hosts some of which have services running already, as the distribution set them up."""
    lab = tmp_path_factory.mktemp("exported") / "lab"
    try:
        up(HOSTS, lab)
        ways = {host.name: SshTransport(access(lab, host.name)) for host in HOSTS}
        ground = Ground(lab, tmp_path_factory.mktemp("targets"), ways)
        for name in ways:  # the machine below may have labs there, whose directory shows through
            ground.sh(name, "rmdir /var/lib/autotune 2>&1 || :")
        ground.sh("exlb", "systemctl start nginx")
        ground.sh("exstore", "systemctl start redis-server")
        yield ground
        for way in ways.values():
            way.close()
    finally:
        down(lab)


def autotune(ground: Ground, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "autotune", *words, "--studies", str(ground.directory / "studies")],
        capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def exported(ground: Ground, bed: SystemdBed, deployment: dict[str, Value]) -> Path:
    """The role of what is recommended for a deployment, as a study of the hosts recorded it.

    It is deployed and not measured: how much load it carries matters to nothing here.
    """
    name = str(deployment["lb.service"])
    before = ground.pictures()
    directory = ground.directory / "studies" / name
    candidate = bed.space.candidate(bed.space.preset("recommended", deployment))
    with session.opened(bed, directory, News()) as bench:  # type: ignore[arg-type]  # takes every call
        start.open_study(bed, bench, directory)
        trial = bench.store.begin(Phase.RECOMMENDED, candidate)
        bench.store.deployed(trial, bench.equipment.fleet.deploy(candidate.settings))
    assert differing(before, ground.pictures()) == []
    out = ground.directory / name
    words = ("--format", "ansible", "--trial", str(trial.number), "--out", str(out))
    autotune(ground, "export", name, *words)
    return out


def in_effect(ground: Ground, bed: SystemdBed, export: Path) -> InEffect:
    """What `apply` reads back, host by host; changes nothing."""
    fleet = ground.fleet(bed, "reading")
    wanted = fleet._wanted(applying.wanted(bed, export))
    return {host: read_back(wanted, fleet._hosts[host])[1] for host in fleet.stack.hosts}


def applied(ground: Ground, bed: SystemdBed, export: Path) -> InEffect:
    """What is in effect after `apply`; afterwards the hosts are as before."""
    before = ground.pictures()
    words = ("apply", str(export), str(bed.file.path), "--yes", "--json")
    made = json.loads(autotune(ground, *words))
    found = in_effect(ground, bed, export)
    autotune(ground, "restore", made["study"])
    assert differing(before, ground.pictures()) == []
    return found


def played(export: Path, *options: str) -> tuple[str, dict[str, int]]:
    """What the playbook printed, and how much it changed of each host."""
    home = export.parent / "home"
    done = subprocess.run(
        [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "inventory.yml", "site.yml",
         *options],
        cwd=export / "ansible", capture_output=True, text=True, timeout=600, check=False,
        env={**os.environ, "HOME": str(home), "ANSIBLE_NOCOLOR": "1", "ANSIBLE_PIPELINING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, {host: int(changed) for host, changed in RECAP.findall(done.stdout)}


@pytest.mark.parametrize(
    ("deployment", "shows"), [(NGINX, "worker_connections"), (APACHE, "ServerLimit")]
)
def test_the_role_puts_the_same_in_effect_as_apply(
    ground: Ground, deployment: dict[str, Value], shows: str
) -> None:
    bed = ground.bed(*CHANGES)
    try:
        export = exported(ground, bed, deployment)
        expected = applied(ground, bed, export)
        assert set(expected) == {host.name for host in HOSTS}
        before = ground.pictures()
        found = in_effect(ground, bed, export)
        lacking = {host for host in expected if found[host] != expected[host]}
        assert {"exlb", "exweb"} <= lacking  # the role before this one may have seen to the others

        shown, changes = played(export, "--check", "--diff")
        assert differing(before, ground.pictures()) == []
        assert set(changes) == set(expected)
        assert all(changes[host] for host in lacking), changes
        assert re.search(rf"^\+.*{shows} ", shown, re.MULTILINE)

        _, changes = played(export)
        assert all(changes[host] for host in lacking), changes
        assert in_effect(ground, bed, export) == expected
        after = ground.pictures()
        assert kept(before).items() <= kept(after).items()
        answer = curl.answer(LocalTransport(), f"http://{bed.stack.entry}/kv.php")
        assert not isinstance(answer, str)
        assert answer.body == b"found 0000 of 0100\n"  # through every tier: a role loads no data

        _, changes = played(export)
        assert set(changes.values()) == {0}, changes
        assert differing(after, ground.pictures()) == []
    finally:
        for way in bed.transports.values():
            way.close()


def kept(pictures: Mapping[str, list[str]]) -> dict[str, str]:
    """Bits and owner of everything that a host has, by its path.

    Not of the links that start a service at boot: the role takes those of the services that
    its own replace.
    """
    found = {}
    for host, lines in pictures.items():
        for line in lines:
            if match := re.match(r"(\S*/\S*) (\d+ \d+:\d+|\d+ \w+:\w+)", line):
                if BOOT.search(match[1]):
                    continue
                found[f"{host}:{match[1]}"] = match[2]
    return found
