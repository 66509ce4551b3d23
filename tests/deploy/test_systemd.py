"""A fleet of real hosts: deployed, reloaded, broken, rolled back, put back bit for bit."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE

import pytest

from autotune.deploy import boot_times
from autotune.deploy.deploy_result import DeployFailed
from autotune.deploy.deployment import Deployment
from autotune.deploy.host_commands import SUDOERS_RULE, Command, run_commands
from autotune.deploy.managed_hosts import ManagedHosts, restore_hosts
from autotune.errors import AutotuneError, LockedError
from autotune.lab.lifecycle import build_ssh_host, halt_host, start_lab
from autotune.runtimes.systemd import SERVICE_MANAGER
from autotune.services.base import Action
from autotune.transports.ssh import SshTransport
from tests import soak
from tests.answers import fetched
from tests.deploy.lab import Ground, acted, differing, give_up_soon, renewed, settings
from tests.lab.pictures import of_files
from tests.lab.shared import HOSTS, SharedLab

pytestmark = pytest.mark.lab
KILLS = 6
FULL = """
cp -a /etc/nginx /run/nginx
mount -t tmpfs -o size=64k,mode=755 none /etc/nginx
cp -a /run/nginx/nginx.conf /etc/nginx
head -c 1M /dev/zero >/etc/nginx/full
"""
# A socket where no directory is: its own test does not look.
NOWHERE = "listen = {{ '/nowhere/s' if max_children == 13 else site.socket_name }}"
MAIN = "systemctl show -P MainPID nginx"
RIGHT = (200, b"found 0100 of 0100\n")


@pytest.fixture
def ground(shared_lab: SharedLab, tmp_path: Path) -> Iterator[Ground]:
    """Hosts some of which have services running already, as the distribution set them up."""
    with renewed(shared_lab, tmp_path) as ground:
        ground.sh("fllb", "systemctl start nginx")
        ground.sh("flstore", "systemctl start redis-server && redis-cli set mine 1")
        yield ground
        # What is as it was booted need not be booted for the next test.
        ground.sh("fllb", "systemctl stop nginx")
        ground.sh("flstore", "systemctl stop redis-server; rm -f /var/lib/redis/dump.rdb")


def templates(ground: Ground, path: str, line: str) -> tuple[str, str]:
    """A target's change: the shipped template with a line more at its end."""
    shipped = Path(__file__).parents[2] / "templates" / path
    mine = ground.directory / "mine" / path
    mine.parent.mkdir(parents=True)
    mine.write_text(f"{shipped.read_text()}{line}\n")
    return ("app: reference", "templates: mine, app: reference")


def test_least_action_what_is_in_effect_and_everything_put_back(
    ground: Ground, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = {}
    with ground.opened() as fleet:
        assert fetched(fleet.stack.entry, "/kv.php") == RIGHT
        steps = {
            "nothing": ({}, {}),
            "reload": (
                {"web__php_fpm__max_children": 9, "lb__nginx__worker_processes": 3},
                {"web.flweb.php_fpm": Action.RELOAD, "lb.fllb.nginx": Action.RELOAD},
            ),
            "kernel": (
                {"lb__sysctl__net__ipv4__tcp_fin_timeout": 33},
                {"lb.fllb.sysctl": Action.RELOAD, "web.flweb.php_fpm": Action.RELOAD,
                 "lb.fllb.nginx": Action.RELOAD},
            ),
            "queue": (
                {"cache__sysctl__net__core__somaxconn": 2000, "cache__memcached__backlog": 3000},
                {"cache.flcache.sysctl": Action.RELOAD, "cache.flcache.memcached": Action.RESTART,
                 "lb.fllb.sysctl": Action.RELOAD},
            ),
            "limits": (
                {"web__limits__nofile": 7000},
                {"web.flweb.limits": Action.RELOAD, "web.flweb.php_fpm": Action.RESTART,
                 "web.flweb.nginx": Action.RESTART, "cache.flcache.sysctl": Action.RELOAD,
                 "cache.flcache.memcached": Action.RESTART},
            ),
        }  # fmt: skip
        for name, (changed, expected) in steps.items():
            start = time.monotonic()
            deployed = fleet.deploy(settings(fleet, **changed))
            seconds[name] = time.monotonic() - start
            assert acted(deployed.actions) == expected, name
            for parameter, value in changed.items():
                effective = deployed.effective[parameter.replace("__", ".")]
                capped = parameter == "cache__memcached__backlog"
                assert effective == (2000 if capped else value), name
        assert ground.sh("flstore", "ls /var/lib/redis/autotune.rdb") != ""
    assert ground.sh("flstore", "redis-cli get mine") == "1"
    with capsys.disabled():
        print("\nfour hosts:", ", ".join(f"{name} {took:.2f} s" for name, took in seconds.items()))


def test_what_the_space_offers_of_descriptors_a_unit_can_have(ground: Ground) -> None:
    bed = ground.bed()
    high = {d.name: d.high for d in bed.space.dimensions}
    most = {name: high[name] for name in ("cache.limits.nofile", "cache.memcached.connections")}
    with ground.opened() as fleet:
        effective = fleet.deploy({**settings(fleet), **most}).effective
        connections = most["cache.memcached.connections"]
        assert effective["cache.memcached.connections"] == connections
        # memcached lowers its own limit to what its connections take
        assert connections <= effective["cache.limits.nofile"] <= most["cache.limits.nofile"]


def test_a_store_that_is_found_as_it_ought_to_be_and_empty(ground: Ground) -> None:
    first = ground.fleet(ground.bed(), "first")
    first.lock_hosts()
    first.deploy(settings(first))
    first.keep_deployed()
    first.restore()
    ground.sh("flstore", f"redis-cli -h {HOSTS[3].address} flushall")
    second = ground.fleet(ground.bed(), "second")
    second.lock_hosts()
    try:
        second.deploy(settings(second))
        assert fetched(second.stack.entry, "/kv.php") == RIGHT
    finally:
        second.restore()
        restore_hosts(
            ground.directory / "first",
            ground.transports,
            SERVICE_MANAGER,
            prefers_host_copies=False,
        )


def test_what_does_not_validate_changes_nothing(ground: Ground) -> None:
    with ground.opened() as fleet:
        before = ground.pictures()
        broken = {**settings(fleet), "lb.nginx.keepalive_timeout": "a while"}
        with pytest.raises(DeployFailed, match=r"lb\.fllb\.nginx: .*keepalive_timeout"):
            fleet.deploy({**broken, "web.php_fpm.max_children": 9})
        with pytest.raises(DeployFailed, match=r"cache\.flcache\.memcached: .*threads"):
            fleet.deploy({**settings(fleet), "cache.memcached.threads": "none"})
        assert differing(before, ground.pictures()) == []
        assert acted(fleet.deploy(settings(fleet)).actions) == {}


@pytest.mark.parametrize(
    ("path", "line", "said"),
    [
        ("php_fpm/php-fpm.conf.j2", NOWHERE, r"flweb: .*nowhere"),
        # An address the host does not have: the trial start listens elsewhere.
        ("memcached/memcached.conf.j2", "{% if threads == 3 %}\n-l 203.0.113.7\n{% endif %}",
         r"flcache: .*memcached"),
    ],
)  # fmt: skip
def test_what_validates_and_does_not_start_is_rolled_back_everywhere(
    ground: Ground, path: str, line: str, said: str
) -> None:
    with ground.opened(templates(ground, path, line)) as fleet:
        before = ground.pictures()
        give_up_soon(fleet)
        with pytest.raises(DeployFailed, match=f"(?s){said}"):
            fleet.deploy(
                settings(
                    fleet,
                    web__php_fpm__max_children=13,
                    cache__memcached__threads=3,
                    lb__nginx__worker_processes=2,
                    lb__sysctl__net__ipv4__tcp_fin_timeout=31,
                )
            )
        after = ground.pictures()
        assert differing(_without_times(before), _without_times(after)) == []
        assert fetched(fleet.stack.entry, "/kv.php") == RIGHT
        assert acted(fleet.deploy(settings(fleet)).actions) == {}


def test_what_starts_and_answers_wrong_is_rolled_back(ground: Ground) -> None:
    trap = "{% if max_children == 13 %}\nphp_admin_value[disable_functions] = printf\n{% endif %}"
    with ground.opened(templates(ground, "php_fpm/php-fpm.conf.j2", trap)) as fleet:
        give_up_soon(fleet)
        with pytest.raises(DeployFailed, match="does not respond correctly"):
            fleet.deploy(settings(fleet, web__php_fpm__max_children=13))
        assert fetched(fleet.stack.entry, "/kv.php") == RIGHT


def test_a_kernel_value_that_is_refused(ground: Ground) -> None:
    with ground.opened() as fleet:
        asked = settings(fleet, cache__memcached__threads=2)
        with pytest.raises(DeployFailed, match=r"flcache: .*fs.file-max"):
            fleet.deploy({**asked, "cache.sysctl.fs.file-max": 123456})
        assert acted(fleet.deploy(settings(fleet)).actions) == {}


def test_old_workers_that_finish_connections_are_named_and_not_waited_for(ground: Ground) -> None:
    with ground.opened() as fleet, socket.create_connection((HOSTS[0].address, 80)) as client:
        notes = hear(fleet, "fllb")
        client.sendall(b"GET / HTTP/1.1\r\nHost: slow\r\n")  # and not yet the end of it
        deployed = fleet.deploy(settings(fleet, lb__nginx__worker_processes=3))
        assert deployed.effective["lb.nginx.worker_processes"] == 3
        (note,) = notes
        assert "still served by 1 old worker of nginx.service" in note
        assert str(client.getsockname()[1]) in note
        assert fetched(fleet.stack.entry, "/kv.php") == RIGHT
        client.sendall(b"Connection: close\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1")


def test_what_only_reloaded_is_rolled_back_by_a_reload(ground: Ground) -> None:
    with ground.opened() as fleet, socket.create_connection((HOSTS[0].address, 80)) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: slow\r\n")
        (main, right) = (ground.sh("fllb", MAIN), fleet.readiness.probe.send)
        tried = []

        def request() -> tuple[int, bytes] | str:
            tried.append(ground.sh("fllb", "grep -c 'worker_processes 3' /etc/nginx/nginx.conf; :"))
            return (500, b"") if tried[-1].strip() == "1" else right()

        fleet.readiness.probe = replace(fleet.readiness.probe, send=request)
        give_up_soon(fleet)
        with pytest.raises(DeployFailed, match="does not respond correctly"):
            fleet.deploy(settings(fleet, lb__nginx__worker_processes=3))
        assert ground.sh("fllb", MAIN) == main
        client.sendall(b"Connection: close\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1")


def hear(fleet: Deployment, host: str) -> list[str]:
    """The notes on a host from now on."""
    hosts, notes = fleet.hosts, list[str]()
    assert isinstance(hosts, ManagedHosts)
    hosts[host].note = notes.append
    return notes


@pytest.mark.parametrize(
    ("fault", "mend", "said"),
    [
        ("mount --bind /etc/nginx /etc/nginx && mount -o remount,ro,bind /etc/nginx",
         "umount /etc/nginx", "Read-only file system"),
        (FULL, "umount /etc/nginx; rm -r /run/nginx", "No space left on device"),
    ],
)  # fmt: skip
def test_a_host_that_cannot_be_written_stops_the_study(
    ground: Ground, fault: str, mend: str, said: str
) -> None:
    with ground.opened() as fleet:
        ground.sh("fllb", fault)
        with pytest.raises(AutotuneError, match=f"fllb: .*{said}") as raised:
            fleet.deploy(
                settings(fleet, lb__nginx__worker_processes=3, web__php_fpm__max_children=9)
            )
        assert not isinstance(raised.value, DeployFailed)
        ground.sh("fllb", mend)
        assert acted(fleet.deploy(settings(fleet)).actions) == {}


def test_what_ends_a_trial_before_its_value_is_on_record(ground: Ground) -> None:
    with ground.opened() as fleet:
        fleet.verify()
        ground.sh("flcache", "systemctl restart memcached")
        with pytest.raises(DeployFailed, match=r"flcache: memcached\.service"):
            fleet.verify()
        fleet.deploy(settings(fleet))
        fleet.verify()
        hosts = fleet.hosts
        assert isinstance(hosts, ManagedHosts)
        lock = hosts["flweb"].lock
        for other in ({"token": "another"}, {"boot": "an earlier one"}):
            record = json.dumps({**json.loads(lock.record), **other})
            run_commands(ground.transports["flweb"], [Command(("claim", lock.record, record))])
            if "boot" in other:
                lock.record = record
            with pytest.raises(AutotuneError, match=r"flweb.*(no longer holds|booted)"):
                fleet.verify()
            if "token" in other:
                run_commands(ground.transports["flweb"], [Command(("claim", record, lock.record))])


def test_two_tuners_at_once(ground: Ground) -> None:
    with ground.opened() as first:
        before = ground.pictures()
        second = ground.fleet(ground.bed(), "second")
        with pytest.raises(LockedError, match=r"fl\w+ is being tuned by .*process \d+, since"):
            second.lock_hosts()
        assert differing(before, ground.pictures()) == []
        assert acted(first.deploy(settings(first)).actions) == {}


def restored_after_outage(ground: Ground, fleet: Deployment, before: dict[str, list[str]]) -> None:
    """Every host runs again, the tuner is gone, and `restore` makes the files those before."""
    start_lab(HOSTS, ground.lab)
    ground.killed(fleet)
    assert (
        restore_hosts(
            ground.directory / "study",
            ground.transports,
            SERVICE_MANAGER,
            prefers_host_copies=False,
        )
        != []
    )
    assert differing(_of_files(before), _of_files(ground.pictures())) == []


def test_a_host_that_goes_down_during_a_deployment(ground: Ground) -> None:
    before = ground.pictures()
    fleet = ground.fleet(ground.bed())
    fleet.lock_hosts()
    fleet.deploy(settings(fleet))
    staged = fleet._validate_hosts

    def stage_and_lose(*given: object) -> None:
        staged(*given)  # type: ignore[arg-type]
        halt_host(ground.lab, "flweb")

    fleet._validate_hosts = stage_and_lose  # type: ignore[method-assign]
    changed = settings(fleet, web__php_fpm__max_children=9, cache__memcached__threads=2)
    with pytest.raises(AutotuneError, match="flweb") as raised:
        fleet.deploy(changed)
    assert not isinstance(raised.value, DeployFailed)
    assert "-t 4" in ground.sh("flcache", "cat /etc/memcached.conf")  # the others are rolled back
    with pytest.raises(AutotuneError, match="not restored: flweb"):
        fleet.restore()
    restored_after_outage(ground, fleet, before)


def test_a_host_that_is_down_before_anything_is_done(ground: Ground) -> None:
    before = ground.pictures()
    fleet = ground.fleet(ground.bed())
    halt_host(ground.lab, "flcache")
    with pytest.raises(AutotuneError, match="flcache"):
        fleet.lock_hosts()
    start_lab(HOSTS, ground.lab)
    assert differing(_of_files(before), _of_files(ground.pictures())) == []
    fleet.lock_hosts()  # nothing is locked any more
    fleet.restore()


def test_a_host_that_goes_down_between_deployments(ground: Ground) -> None:
    before = ground.pictures()
    fleet = ground.fleet(ground.bed())
    fleet.lock_hosts()
    fleet.deploy(settings(fleet))
    halt_host(ground.lab, "flstore")
    with pytest.raises(AutotuneError, match="flstore"):
        fleet.deploy(settings(fleet, web__php_fpm__max_children=9))
    with pytest.raises(AutotuneError, match="not restored: flstore"):
        fleet.restore()
    restored_after_outage(ground, fleet, before)


def test_sshd_killed_again_and_again_while_files_are_uploaded(ground: Ground) -> None:
    over = threading.Event()

    def kill_sessions() -> None:
        while not over.wait(0.1):
            transport = SshTransport(build_ssh_host(ground.lab, "flweb"))
            with suppress(AutotuneError):
                transport.run(["pkill", "-f", "sshd: root"], timeout=60.0)
            with suppress(AutotuneError):
                transport.close()

    with ground.opened() as fleet:
        killer = threading.Thread(target=kill_sessions)
        killer.start()
        try:
            for children in (7, 9, 11):
                # One lost connection is made again; more of them end the deployment, rolled back.
                with suppress(AutotuneError):
                    fleet.deploy(settings(fleet, web__php_fpm__max_children=children))
        finally:
            over.set()
            killer.join()
        deployed = fleet.deploy(settings(fleet, web__php_fpm__max_children=8))
        assert deployed.effective["web.php_fpm.max_children"] == 8
        assert fetched(fleet.stack.entry, "/kv.php") == RIGHT


def test_originals_from_the_hosts_alone(ground: Ground) -> None:
    before = ground.pictures()
    fleet = ground.fleet(ground.bed())
    fleet.lock_hosts()
    fleet.deploy(settings(fleet, lb__sysctl__net__ipv4__tcp_fin_timeout=31))
    ground.killed(fleet)
    shutil.rmtree(ground.directory / "study")
    assert (
        restore_hosts(
            ground.directory / "study", ground.transports, SERVICE_MANAGER, prefers_host_copies=True
        )
        != []
    )
    assert differing(before, ground.pictures()) == []
    assert (
        restore_hosts(
            ground.directory / "study", ground.transports, SERVICE_MANAGER, prefers_host_copies=True
        )
        == []
    )


NGINX = """
systemctl show -p NeedDaemonReload -p ActiveState nginx
ls /etc/systemd/system/nginx.service.d 2>/dev/null
grep 'open files' "/proc/$(systemctl show -P MainPID nginx)/limits"
"""


def test_a_restoring_that_was_cut_before_systemd_was_told_is_completed(ground: Ground) -> None:
    before, as_found = ground.pictures(), ground.sh("fllb", NGINX)
    fleet = ground.fleet(ground.bed())
    fleet.lock_hosts()
    fleet.deploy(settings(fleet, lb__limits__nofile=7000))
    assert "7000" in ground.sh("fllb", NGINX)
    ground.killed(fleet)
    dying = f"{SERVICE_MANAGER.shell_functions}\nreread() {{ kill -KILL $$; }}\n"
    study = ground.directory / "study"
    with pytest.raises(AutotuneError, match="stopped early"):
        restore_hosts(
            study,
            ground.transports,
            replace(SERVICE_MANAGER, shell_functions=dying),
            prefers_host_copies=False,
        )
    assert "NeedDaemonReload=yes" in ground.sh("fllb", NGINX)  # the drop-in is gone, and not read
    restore_hosts(study, ground.transports, SERVICE_MANAGER, prefers_host_copies=False)
    assert ground.sh("fllb", NGINX) == as_found
    assert differing(before, ground.pictures()) == []


@pytest.mark.soak  # the rollback waits minutes for an entry that never answers right
def test_what_is_rolled_back_are_no_files_that_their_software_refuses(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boot_times, "MIN_LATE_SECONDS", 5.0)  # the entry never answers right
    ground.sh("fllb", "cd /etc/nginx; cp -a nginx.conf /root/; echo 'no directive;' >>nginx.conf")
    fleet = ground.fleet(ground.bed(templates(ground, "php_fpm/php-fpm.conf.j2", NOWHERE)))
    fleet.lock_hosts()
    fleet.boot_times.fixed_limit = 3.0
    with pytest.raises(AutotuneError, match=r"fllb: nginx.service refuses its original files"):
        fleet.deploy(settings(fleet, web__php_fpm__max_children=13))
    assert ground.sh("fllb", "systemctl is-active nginx; nginx -t 2>&1").startswith("active")
    assert "test is successful" in ground.sh("fllb", "nginx -t 2>&1")
    ground.killed(fleet)
    ground.sh("fllb", "mv /root/nginx.conf /etc/nginx/")


WATCHED = (HOSTS[1].name, HOSTS[3].name)  # hosts of which each exchange is one to be killed at


# What a host may still do when a restoring has already found nothing on it: take the lock, or keep a
# record of how it is, of a tuner that has ended. The next one finds it is nobody's.
ALONE = ("claim", "lock_state", "fence keep")
RENEWAL = "fence"  # of a lock, by the clock: in no other run there need be one


def exchanges(
    tuners: subprocess.Popen[str], ground: Ground, what: str, study: Path
) -> dict[str, str]:
    """What a tuner or a restoring asks a host → the first host that it asks this."""
    first: dict[str, str] = {}
    for host in WATCHED:
        if what == "restore":
            _deployed(tuners, ground, study)
        for line in _tuner(tuners, what, ground, study, host, "none")[1].splitlines():
            asked = line.removeprefix("exchange ")
            if asked not in (line, RENEWAL):
                first.setdefault(asked, host)
        restore_hosts(study, ground.transports, SERVICE_MANAGER, prefers_host_copies=False)
    return first


PARTS = [4, pytest.param(1, marks=pytest.mark.soak)]  # of the steps: each fourth, and all of them


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", PARTS)
def test_killed_at_each_step_of_a_deployment_hosts_can_be_put_back(
    ground: Ground, tuners: subprocess.Popen[str], part: int
) -> None:
    ground.bed()  # writes the target
    before = ground.pictures()
    steps = exchanges(tuners, ground, "tune", ground.directory / "whole")
    asked = {word for said in steps for word in said.split()}
    assert asked >= {"claim", "look", "keep", "stage", "swap", "restart", "up"}, steps
    for number, (said, host) in enumerate(soak.slice_of(steps, part).items()):
        study = ground.directory / f"killed{number}"
        code, _ = _tuner(tuners, "tune", ground, study, host, said)
        assert code == -signal.SIGKILL
        if number % 2:  # the controller's copy is lost with some studies
            shutil.rmtree(study, ignore_errors=True)
            restore_hosts(study, ground.transports, SERVICE_MANAGER, prefers_host_copies=True)
        _restore_and_compare(study, ground, before, said)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", PARTS)
def test_a_restoring_killed_at_each_step_is_completed_by_another(
    ground: Ground, tuners: subprocess.Popen[str], part: int
) -> None:
    ground.bed()  # writes the target
    before = ground.pictures()
    study = ground.directory / "study"
    steps = exchanges(tuners, ground, "restore", study)
    asked = {word for said in steps for word in said.split()}
    assert asked >= {"claim", "look", "stage", "swap", "unlock"}, steps
    for said, host in soak.slice_of(steps, part).items():
        _deployed(tuners, ground, study)
        assert _tuner(tuners, "restore", ground, study, host, said)[0] == -signal.SIGKILL
        _restore_and_compare(study, ground, before, said)


def _deployed(tuners: subprocess.Popen[str], ground: Ground, study: Path) -> None:
    """A configuration, by a tuner that was killed then."""
    assert _tuner(tuners, "tune", ground, study, WATCHED[0], "first")[0] == -signal.SIGKILL


def _restore_and_compare(
    study: Path, ground: Ground, before: Mapping[str, list[str]], asked: str
) -> None:
    restore_hosts(study, ground.transports, SERVICE_MANAGER, prefers_host_copies=False)
    deadline = time.monotonic() + 60
    while (found := differing(before, ground.pictures())) and asked in ALONE:
        assert time.monotonic() < deadline, found
        restore_hosts(study, ground.transports, SERVICE_MANAGER, prefers_host_copies=False)
    assert found == [], asked


@pytest.fixture(scope="session")
def tuners() -> Iterator[subprocess.Popen[str]]:
    """Starts tuners, each a process of its own."""
    argv = [sys.executable, "-m", "tests.deploy.tuner", "serve"]
    with subprocess.Popen(
        argv, stdin=PIPE, stdout=PIPE, cwd=Path(__file__).parents[2], text=True
    ) as process:
        yield process
        process.kill()


def _tuner(
    tuners: subprocess.Popen[str], what: str, ground: Ground, study: Path, *at: str
) -> tuple[int, str]:
    """A tuner of its own process to its end: its exit status and what it said."""
    assert tuners.stdin is not None
    assert tuners.stdout is not None
    words = [what, str(ground.directory / "target.yaml"), str(study), *at]
    print(json.dumps(words), file=tuners.stdin, flush=True)
    (status, said) = json.loads(tuners.stdout.readline())
    return status, said


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_a_tuner_killed_at_any_moment_leaves_hosts_that_can_be_put_back(ground: Ground) -> None:
    ground.bed()  # writes the target
    before = ground.pictures()
    moments = soak.moments()
    for number in range(soak.kills(KILLS)):
        study = ground.directory / f"killed{number}"
        delay = moments.uniform(0.0, 8.0)
        _killed("tune", ground, study, delay)
        again = moments.uniform(0.0, 2.0)
        _killed("restore", ground, study, again)
        restore_hosts(study, ground.transports, SERVICE_MANAGER, prefers_host_copies=False)
        found = differing(before, ground.pictures())
        assert found == [], f"killed after {delay:.3f} s, its restoring after {again:.3f} s"


def _killed(what: str, ground: Ground, study: Path, delay: float) -> None:
    """A tuner of its own process, killed so long after it has begun with the hosts."""
    words = [sys.executable, "-m", "tests.deploy.tuner", what]
    argv = [*words, str(ground.directory / "target.yaml"), str(study)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as tuner:
        assert tuner.stdout is not None
        assert tuner.stdout.readline() == b"open\n"
        with suppress(subprocess.TimeoutExpired):
            tuner.wait(delay)
        tuner.kill()


@pytest.fixture
def guest(ground: Ground) -> Iterator[tuple[str, str]]:
    """An account of the balancer that is not root, as a change of the target."""
    ground.sh(
        "fllb",
        "useradd -m guest; install -d -o guest -m 700 /home/guest/.ssh; "
        "install -o guest -m 600 /root/.ssh/authorized_keys /home/guest/.ssh/",
    )
    yield ("fllb: {address:", "fllb: {user: guest, address:")
    ground.sh("fllb", "userdel -r guest; rm -f /etc/sudoers.d/autotune")


def test_an_account_without_sudo_is_told_what_is_missing(
    ground: Ground, guest: tuple[str, str]
) -> None:
    with pytest.raises(
        AutotuneError, match="fllb does not allow the account to become root"
    ) as raised:
        ground.bed(guest)
    assert SUDOERS_RULE in (raised.value.hint or "")


def test_one_line_of_sudoers_is_enough_to_tune_and_to_restore(
    ground: Ground, guest: tuple[str, str]
) -> None:
    ground.sh("fllb", "printf '%s\\n' \"$1\" >/etc/sudoers.d/autotune", f"guest {SUDOERS_RULE}")
    before = ground.pictures()
    bed = ground.bed(guest)
    fleet = ground.fleet(bed)
    fleet.lock_hosts()
    deployed = fleet.deploy(settings(fleet, lb__sysctl__net__ipv4__tcp_fin_timeout=31))
    assert deployed.effective["lb.sysctl.net.ipv4.tcp_fin_timeout"] == 31
    ground.killed(fleet)
    by_guest = {**ground.transports, "fllb": bed.transports["fllb"]}
    restore_hosts(ground.directory / "study", by_guest, SERVICE_MANAGER, prefers_host_copies=False)
    assert differing(before, ground.pictures()) == []
    ground.sh("fllb", "rm /etc/sudoers.d/autotune")
    with pytest.raises(
        AutotuneError, match="fllb does not allow the account to become root"
    ) as raised:
        restore_hosts(
            ground.directory / "study", by_guest, SERVICE_MANAGER, prefers_host_copies=True
        )
    assert SUDOERS_RULE in (raised.value.hint or "")


def _without_times(pictures: dict[str, list[str]]) -> dict[str, list[str]]:
    """Files that were written again with the same bytes are the same; so is autotune's own record,
    which gains the digests of what was written."""
    return {
        host: [
            " ".join(word for word in line.split(" ") if "." not in word or "/" in word)
            for line in lines
            if not line.startswith("var/lib/autotune/")
        ]
        for host, lines in pictures.items()
    }


def _of_files(pictures: dict[str, list[str]]) -> dict[str, list[str]]:
    """A host that was booted again has its units and its kernel as at boot."""
    return {host: of_files(lines) for host, lines in pictures.items()}
