"""The exported role against real hosts: it shows first, changes then, and does what `apply` does."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path

import pytest

from autotune.deploy.read_back import read_back_host
from autotune.environments.stack import StackEnvironment
from autotune.lab.lifecycle import halt_host, start_lab
from autotune.lab.plan import derive_names
from autotune.services.base import Value
from autotune.study import apply_export, trial_context
from autotune.study.study_state import Phase
from tests.answers import fetched
from tests.deploy.lab import Ground, News, differing, renewed
from tests.lab.pictures import below, of_files
from tests.lab.shared import HOSTS, SharedLab
from tests.printed import printed

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1500)]
CHANGES = (
    ("service: nginx,", "service: [nginx, apache],"),
    ("service: nginx+php-fpm", "service: [nginx+php-fpm, apache+mod_php]"),
)
NGINX = {"lb.service": "nginx", "web.service": "nginx+php-fpm"}
APACHE = {"lb.service": "apache", "web.service": "apache+mod_php"}
RECAP = re.compile(r"^(\w+) +: ok=\d+ +changed=(\d+) +unreachable=0 +failed=0 ", re.MULTILINE)
BOOT = re.compile(r"etc/rc\w\.d/|\.wants/")
CONF = "etc/nginx/nginx.conf"
QUICKLY = (
    "-C -o ControlMaster=auto -o ControlPersist=5 -o ServerAliveInterval=1 -o ServerAliveCountMax=3"
)
InEffect = Mapping[str, Mapping[str, Value]]


@pytest.fixture
def ground(shared_lab: SharedLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """Hosts some of which have services running already, as the distribution set them up."""
    # The path of a socket of ssh, somewhere below, may have a hundred characters and no more.
    with renewed(shared_lab, tmp_path_factory.mktemp("role")) as ground:
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


def exported(
    ground: Ground, bed: StackEnvironment, deployment: dict[str, Value], kernel: str = ""
) -> Path:
    """The role of what is recommended for a deployment, as a study of the hosts recorded it.

    Of the kernel's values those only whose names hold ``kernel``: each takes Ansible a second or more.

    It is deployed and not measured: how much load it carries matters to nothing here.
    """
    name = str(deployment["lb.service"])
    before = ground.pictures()
    directory = ground.directory / "studies" / name
    recommended = bed.space.preset_settings("recommended", deployment)
    left_out = {name for name in recommended if ".sysctl." in name and kernel not in name}
    candidate = bed.space.build_candidate(
        {n: recommended[n] for n in recommended.keys() - left_out}
    )
    with trial_context.open_session(bed, directory, News()) as bench:  # type: ignore[arg-type]  # takes every call
        trial_context.begin_study(bed, bench, directory)
        trial = bench.store.begin_trial(Phase.RECOMMENDED, candidate)
        bench.store.record_deployment(trial, bench.session.fleet.deploy(candidate.settings))
    assert differing(before, ground.pictures()) == []
    out = ground.directory / name
    words = ("--format", "ansible", "--trial", str(trial.number), "--out", str(out))
    autotune(ground, "export", name, *words)
    return out


def in_effect(ground: Ground, bed: StackEnvironment, export: Path) -> InEffect:
    """What `apply` reads back, host by host; changes nothing."""
    fleet = ground.fleet(bed, "reading")
    wanted = fleet.build_desired_state(apply_export.read_applicable_settings(bed, export))
    return {host: read_back_host(wanted, fleet.hosts[host])[1] for host in fleet.stack.hosts}


def applied(ground: Ground, bed: StackEnvironment, export: Path) -> InEffect:
    """What is in effect after `apply`; afterwards the hosts are as before."""
    before = ground.pictures()
    words = ("apply", str(export), str(bed.file.path), "--yes", "--json")
    made = printed("applied", autotune(ground, *words))
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


# Minutes each: in each run the one that replaces services of the distribution. All of its hosts are
# configured; those with replaced services are played in check mode before, and once more after.
@pytest.mark.parametrize(
    ("deployment", "kernel", "shows", "again"),
    [
        pytest.param(NGINX, "", "worker_connections", (), marks=pytest.mark.soak),
        (APACHE, "net.core.somaxconn", "ServerLimit", ("--limit", "fllb,flweb")),
    ],
)
def test_the_role_puts_the_same_in_effect_as_apply(
    ground: Ground, deployment: dict[str, Value], kernel: str, shows: str, again: tuple[str, ...]
) -> None:
    bed = ground.bed(*CHANGES)
    try:
        export = exported(ground, bed, deployment, kernel)
        expected = applied(ground, bed, export)
        assert set(expected) == {host.name for host in HOSTS}
        before = ground.pictures()
        found = in_effect(ground, bed, export)
        lacking = {host for host in expected if found[host] != expected[host]}
        assert {"fllb", "flweb"} <= lacking  # the role before this one may have seen to the others

        shown, changes = played(export, "--check", "--diff", *again)
        assert differing(before, ground.pictures()) == []
        assert set(changes) == ({"fllb", "flweb"} if again else set(expected))
        assert all(changes[host] for host in lacking & set(changes)), changes
        assert re.search(rf'^ +"\+.*{shows} ', shown, re.MULTILINE)

        _, changes = played(export)
        assert set(changes) == set(expected)
        assert all(changes[host] for host in lacking), changes
        assert in_effect(ground, bed, export) == expected
        after = ground.pictures()
        assert not_kept(before, after) == []
        answer = fetched(ground.fleet(bed).stack.entry, "/kv.php")
        assert answer == (500, b"found 0000 of 0100\n")  # through every tier: a role loads no data

        _, changes = played(export, *again)
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


# -- a role that fails --------------------------------------------------------------------------


@pytest.fixture
def role(ground: Ground) -> Iterator[Path]:
    bed = ground.bed(*CHANGES)
    yield exported(ground, bed, NGINX)
    for transport in bed.transports.values():
        transport.close()


def playing(role: Path, *options: str) -> subprocess.Popen[str]:
    own = {"HOME": str(role.parent / "home"), "ANSIBLE_NOCOLOR": "1", "ANSIBLE_SSH_ARGS": QUICKLY}
    return subprocess.Popen(
        [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "inventory.yml", "site.yml",
         *options],
        cwd=role / "ansible", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, **own, "ANSIBLE_PIPELINING": "1"},
    )  # fmt: skip


def failing(role: Path, *options: str) -> str:
    """What a playbook says that does not come to its end."""
    play = playing(role, *options)
    told = play.communicate(timeout=600)[0]
    assert play.returncode != 0, told
    return told


def lasting(pictures: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Without times, which a copy that was put back has of its own, links of units, and backups."""

    def timeless(line: str) -> str:
        return re.sub(r"( file \S+ \S+) [\d.]+", r"\1", line)

    def counts(line: str) -> bool:
        as_new = " file " in line and timeless(below(line.split(maxsplit=1)[0]) or "") == timeless(
            line
        )
        return not (as_new or BOOT.search(line) or "var/backups" in line)

    return {host: [timeless(line) for line in filter(counts, lines)]
            for host, lines in pictures.items()}  # fmt: skip


@pytest.mark.soak
def test_a_role_that_fails_leaves_every_host_as_it_was(
    ground: Ground, role: Path, shared_lab: SharedLab
) -> None:
    before = lasting(ground.pictures())
    told = failing(role, "-e", "autotune_health_url=http://127.0.0.1:9/")
    assert (
        "was rolled back, because this task failed: Request the address of the health check" in told
    )
    assert differing(before, lasting(ground.pictures())) == [], told

    script = role / "ansible/roles/autotune/files/flweb.sh"
    right = script.read_text()
    script.write_text(with_nonsense(right))
    told = failing(role, "--limit", "flweb")
    script.write_text(right)
    assert "nonsense" in told
    assert "the software refuses the new configuration; nothing was changed" in told
    assert differing(before, lasting(ground.pictures())) == [], told

    ground.sh("flweb", "systemctl mask --runtime php8.2-fpm")
    told = failing(role, "--limit", "flweb")
    ground.sh("flweb", "systemctl unmask --runtime php8.2-fpm")
    assert "flweb was rolled back, because this task failed: Restart php8.2-fpm.service" in told
    assert differing(before, lasting(ground.pictures())) == [], told

    goes_down(role, shared_lab)
    played(role, "--limit", "fllb")
    assert played(role, "--limit", "fllb")[1] == {"fllb": 0}
    assert differing({"flweb": before["flweb"]}, lasting(ground.pictures())) == []


def with_nonsense(script: str) -> str:
    """The script with a line that nginx refuses."""
    listed = re.search(rf'"\$@" (\d+) /{CONF} 0644 (\w{{64}})', script)
    assert listed
    content = re.search(rf"\n  {listed[1]}\)\n    cat <<'AUTOTUNE'\n(.*?)AUTOTUNE\n", script, re.S)
    assert content
    assert sha256(content[1].encode()).hexdigest() == listed[2]
    wrong = f"{content[1]}nonsense;\n"
    digest = sha256(wrong.encode()).hexdigest()
    return script.replace(content[1], wrong, 1).replace(listed[2], digest)


def goes_down(role: Path, lab: SharedLab) -> None:
    """The load balancer, as soon as its file is written."""
    on_host = derive_names(lab.directory).get_machine_directory("fllb") / "upper" / CONF
    files = json.loads((role / "manifest.json").read_text())["hosts"]["fllb"]["files"]
    new = next(file["after"] for file in files if file["path"] == f"/{CONF}")
    play = playing(role, "--limit", "fllb")
    while not on_host.exists() or sha256(on_host.read_bytes()).hexdigest() != new:
        assert play.poll() is None, play.communicate()[0]
        time.sleep(0.01)
    halt_host(lab.directory, "fllb")
    told = play.communicate(timeout=300)[0]
    assert play.returncode != 0
    assert "unreachable=1" in told, told
    start_lab(HOSTS, lab.directory)
