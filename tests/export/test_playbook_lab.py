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

from autotune.deploy.deployment import read_back
from autotune.environments.stack import StackEnvironment
from autotune.services.base import Value
from autotune.study import applying, context
from autotune.study.records import Phase
from autotune.transports import curl
from autotune.transports.local import LocalTransport
from tests.deploy.lab import Ground, News, differing, renewed
from tests.lab.pictures import below, of_files
from tests.lab.shared import HOSTS, SharedLab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1500)]
CHANGES = (
    ("service: nginx,", "service: [nginx, apache],"),
    ("service: nginx+php-fpm", "service: [nginx+php-fpm, apache+mod_php]"),
)
NGINX = {"lb.service": "nginx", "web.service": "nginx+php-fpm"}
APACHE = {"lb.service": "apache", "web.service": "apache+mod_php"}
RECAP = re.compile(r"^(\w+) +: ok=\d+ +changed=(\d+) +unreachable=0 +failed=0 ", re.MULTILINE)
BOOT = re.compile(r"etc/rc\w\.d/|\.wants/")
InEffect = Mapping[str, Mapping[str, Value]]


@pytest.fixture
def ground(shared_lab: SharedLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """Hosts some of which have services running already, as the distribution set them up."""
    # The path of a socket of ssh, somewhere below, may have a hundred characters and no more.
    with renewed(shared_lab, tmp_path_factory.mktemp("role")) as ground:
        for name in ground.transports:  # this machine may have labs there, which would show through
            ground.sh(name, "rmdir /var/lib/autotune 2>&1 || :")
        ground.sh("fllb", "systemctl start nginx")
        ground.sh("flstore", "systemctl start redis-server")
        yield ground


def autotune(ground: Ground, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "autotune", *words, "--studies", str(ground.directory / "studies")],
        capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def exported(ground: Ground, bed: StackEnvironment, deployment: dict[str, Value]) -> Path:
    """The role of what is recommended for a deployment, as a study of the hosts recorded it.

    It is deployed and not measured: how much load it carries matters to nothing here.
    """
    name = str(deployment["lb.service"])
    before = ground.pictures()
    directory = ground.directory / "studies" / name
    candidate = bed.space.candidate(bed.space.preset("recommended", deployment))
    with context.opened(bed, directory, News()) as bench:  # type: ignore[arg-type]  # takes every call
        context.open_study(bed, bench, directory)
        trial = bench.store.begin(Phase.RECOMMENDED, candidate)
        bench.store.deployed(trial, bench.session.fleet.deploy(candidate.settings))
    assert differing(before, ground.pictures()) == []
    out = ground.directory / name
    words = ("--format", "ansible", "--trial", str(trial.number), "--out", str(out))
    autotune(ground, "export", name, *words)
    return out


def in_effect(ground: Ground, bed: StackEnvironment, export: Path) -> InEffect:
    """What `apply` reads back, host by host; changes nothing."""
    fleet = ground.fleet(bed, "reading")
    wanted = fleet.desired(applying.settings_of(bed, export))
    return {host: read_back(wanted, fleet.hosts[host])[1] for host in fleet.stack.hosts}


def applied(ground: Ground, bed: StackEnvironment, export: Path) -> InEffect:
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
        assert {"fllb", "flweb"} <= lacking  # the role before this one may have seen to the others

        shown, changes = played(export, "--check", "--diff")
        assert differing(before, ground.pictures()) == []
        assert set(changes) == set(expected)
        assert all(changes[host] for host in lacking), changes
        assert re.search(rf"^\+.*{shows} ", shown, re.MULTILINE)

        _, changes = played(export)
        assert all(changes[host] for host in lacking), changes
        assert in_effect(ground, bed, export) == expected
        after = ground.pictures()
        assert not_kept(before, after) == []
        answer = curl.answer(LocalTransport(), f"http://{ground.fleet(bed).stack.entry}/kv.php")
        assert not isinstance(answer, str)
        assert answer.body == b"found 0000 of 0100\n"  # through every tier: a role loads no data

        _, changes = played(export)
        assert set(changes.values()) == {0}, changes
        assert differing(after, ground.pictures()) == []
    finally:
        for transport in bed.transports.values():
            transport.close()


def not_kept(before: Mapping[str, list[str]], after: Mapping[str, list[str]]) -> list[str]:
    """What a host had and has no more, or with other bits or another owner.

    Not of the links that start a service at boot: the role takes those of the services that
    its own replace.
    """
    lost = []
    for host in before:
        was, now = ({line.split()[0]: line.split()[1:] for line in of_files(picture[host])}
                    for picture in (before, after))  # fmt: skip
        for path in sorted({*was, *now}):
            unchanged = (below(path) or "").split()[1:]
            old, new = was.get(path, unchanged), now.get(path, unchanged)
            if old not in ([], ["absent"]) and old[:3] != new[:3] and not BOOT.search(path):
                lost.append(f"{host}: {path}")
    return lost
