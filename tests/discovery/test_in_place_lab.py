"""A target written by hand over hosts that run something: their files are edited, never replaced."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.environments.stack import prepare
from autotune.errors import TargetError
from autotune.lab.lifecycle import build_ssh_host
from autotune.lab.plan import derive_names
from autotune.services.base import Action
from autotune.study import start, trial_context
from autotune.study.study_state import Phase
from autotune.target.read_target import read_target
from autotune.transports.ssh import SshTransport
from tests.answers import fetched
from tests.deploy.lab import Ground, News, acted, differing
from tests.lab.shared import HOSTS, SharedLab
from tests.meanwhile import asked_meanwhile
from tests.printed import printed

pytestmark = pytest.mark.lab
(WEB, WEB_ADDRESS), _, (CACHE, CACHE_ADDRESS), (STORE, STORE_ADDRESS) = (
    (host.name, host.address) for host in HOSTS
)
PASSWORD = "korrekt-Pferd-7"  # of a lab host
KEYS = 500
_SITE = """
set -e
rm /etc/nginx/sites-enabled/default
cat >/etc/nginx/sites-available/shop <<'END'
server {
    listen 80 default_server;   # nobody else's
    root /srv/shop;
    location / { try_files $uri $uri/ =404; }
}
END
ln -s ../sites-available/shop /etc/nginx/sites-enabled/shop
mkdir -p /srv/shop
echo 'the shop' >/srv/shop/index.html
systemctl restart nginx
"""
_LINKED = r"""
set -e
mkdir -p /srv/git
mv /etc/nginx/nginx.conf /srv/git/main.conf
ln -s /srv/git/main.conf /etc/nginx/nginx.conf
printf '# Gr\366\337e\n' >>/srv/git/main.conf
systemctl reload nginx
"""
_STORE = f"""
set -e
sed -i -e 's/^bind .*/bind {STORE_ADDRESS}/' -e 's/^appendonly no/appendonly yes/' \
    -e 's,^# aclfile .*,aclfile /etc/redis/users.acl,' /etc/redis/redis.conf
echo 'requirepass {PASSWORD}' >>/etc/redis/redis.conf
install -o redis -g redis -m 640 /dev/stdin /etc/redis/users.acl <<'END'
user default on >{PASSWORD} ~* &* +@all
user shop on >shop-{PASSWORD} ~shop:* +get
END
systemctl restart redis-server
REDISCLI_AUTH={PASSWORD} redis-cli -h {STORE_ADDRESS} EVAL \
    "for i = 1, {KEYS} do redis.call('SET', 'shop:' .. i, i) end" 0
"""
_CACHE = f"""
set -e
sed -i 's/^-l .*/-l {CACHE_ADDRESS}/' /etc/memcached.conf
systemctl restart memcached
"""
TARGET = f"""\
name: stranger
slo: {{p99: 500ms, errors: 0.1%}}
hosts:
  {WEB}: {{address: {WEB_ADDRESS}}}
  {CACHE}: {{address: {CACHE_ADDRESS}}}
  {STORE}: {{address: {STORE_ADDRESS}}}
ssh: {{config: CONFIG}}
tiers:
  web:   {{hosts: {WEB}, service: [nginx, haproxy], uses: [cache, store]}}
  cache: {{hosts: {CACHE}, service: memcached}}
  store: {{hosts: {STORE}, service: redis}}
load: {{path: /, max_rate: 200/s}}
"""


@pytest.fixture(scope="module")
def ground(shared_lab: SharedLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    shared_lab.renew()
    lab = shared_lab.directory
    transports = {name: SshTransport(build_ssh_host(lab, name)) for name in (WEB, CACHE, STORE)}
    ground = Ground(lab, tmp_path_factory.mktemp("targets"), transports)
    for name, script in ((WEB, _SITE), (CACHE, _CACHE), (STORE, _STORE)):
        print(ground.sh(name, f"exec 2>&1\n{script}"))
    assert counted(ground) == KEYS
    yield ground
    for transport in transports.values():
        transport.close()


def target(ground: Ground, *changes: tuple[str, str]) -> Path:
    text = TARGET.replace("CONFIG", str(derive_names(ground.lab).ssh_config))
    for change in changes:
        assert change[0] in text
        text = text.replace(*change)
    path = ground.directory / "stranger.yaml"
    path.write_text(text)
    return path


def counted(ground: Ground) -> int:
    return int(ground.sh(STORE, f"REDISCLI_AUTH={PASSWORD} redis-cli -h {STORE_ADDRESS} DBSIZE"))


def stranger() -> bytes:
    """What the store says to somebody without a password."""
    try:
        with socket.create_connection((STORE_ADDRESS, 6379), timeout=30) as client:
            client.sendall(b"GET shop:1\r\n")
            return client.recv(100)
    except OSError:
        return b""


def test_own_files_are_edited_and_no_store_is_ever_weaker(ground: Ground) -> None:
    before = ground.pictures()
    config = ground.sh(STORE, "cat /etc/redis/redis.conf")
    bed = prepare(read_target(target(ground)))
    fleet = bed.create_deployment(ground.directory / "study", News().note)
    fleet.lock_hosts()
    try:
        with asked_meanwhile(stranger, every=0.05) as answers:
            done = fleet.deploy(fleet.space.build_candidate({}).settings)
            assert set(done.actions.values()) == {Action.NONE}
            assert [line for line in differing(before, ground.pictures())
                    if "var/lib/autotune" not in line] == []  # fmt: skip
            changed = {"web.nginx.worker_connections": 2000, "store.redis.maxclients": 3000,
                       "store.redis.hz": 20}  # fmt: skip
            done = fleet.deploy(fleet.space.build_candidate(changed).settings)
            assert acted(done.actions)[f"store.{STORE}.redis"] is Action.RESTART
            assert {name: done.effective.get(name) for name in changed
                    if name.startswith("store")} == {"store.redis.maxclients": 3000,
                                                     "store.redis.hz": 20}  # fmt: skip
            lines = ground.sh(STORE, "cat /etc/redis/redis.conf").splitlines()
            assert [line for line in lines if line not in config.splitlines()] == [
                "hz 20", "maxclients 3000"]  # fmt: skip
            assert counted(ground) == KEYS
            assert fetched(fleet.stack.entry, "/") == (200, b"the shop\n")
            assert PASSWORD not in str(done.files)
            fleet.restore()
        assert len(answers) > 20
        assert {answer[:7] for answer in answers} <= {b"-NOAUTH", b""}
    finally:
        for transport in bed.transports.values():
            transport.close()
    assert counted(ground) == KEYS
    assert differing(before, ground.pictures()) == []


def test_a_link_is_edited_at_its_target_and_keeps_its_bytes(ground: Ground) -> None:
    print(ground.sh(WEB, _LINKED))
    before = ground.pictures()
    bed = prepare(read_target(target(ground)))
    fleet = bed.create_deployment(ground.directory / "linked", News().note)
    fleet.lock_hosts()
    try:
        done = fleet.deploy(
            fleet.space.build_candidate({"web.nginx.worker_connections": 2000}).settings
        )
        assert done.effective.get("web.nginx.worker_connections") == 2000
        assert ground.sh(WEB, "readlink /etc/nginx/nginx.conf") == "/srv/git/main.conf"
        assert (
            ground.sh(WEB, "LC_ALL=C grep -c 'worker_connections 2000' /srv/git/main.conf") == "1"
        )
        last = ground.sh(WEB, "tail -n 1 /srv/git/main.conf | od -An -tx1")
        assert last.split() == [f"{byte:02x}" for byte in b"# Gr\xf6\xdfe\n"]
        fleet.restore()
    finally:
        for transport in bed.transports.values():
            transport.close()
    assert differing(before, ground.pictures()) == []


def test_a_cache_is_restarted_only_where_the_target_allows_it(ground: Ground) -> None:
    started = ground.sh(CACHE, "systemctl show -P ExecMainStartTimestamp memcached")
    bed = prepare(read_target(target(ground)))
    left = "\n".join(bed.excluded)
    assert (
        "cache: settings that need a restart are not tuned, because memcached stores items" in left
    )
    assert "`allow_data_loss: true`" in left
    assert not [
        d.name for d in bed.space.tunable_dimensions if d.name.startswith("cache.memcached")
    ]
    fleet = bed.create_deployment(ground.directory / "cache", News().note)
    fleet.lock_hosts()
    fleet.deploy(fleet.space.build_candidate({"web.nginx.worker_connections": 2000}).settings)
    fleet.restore()
    for transport in bed.transports.values():
        transport.close()
    assert ground.sh(CACHE, "systemctl show -P ExecMainStartTimestamp memcached") == started
    asked = ("load:", "parameters: {cache.memcached.threads: {fixed: 3}}\nload:")
    with pytest.raises(TargetError, match="needs a restart, but memcached stores items"):
        prepare(read_target(target(ground, asked)))


def test_a_site_of_their_own_is_not_the_reference_application(ground: Ground) -> None:
    asked = ("uses: [cache, store]}", "app: reference, uses: [cache, store]}")
    with pytest.raises(TargetError, match=r"/var/www/autotune/kv\.php does not exist") as raised:
        prepare(read_target(target(ground, asked)))
    assert "remove `app:`" in (raised.value.hint or "")


def spared_a_handshake(directory: Path) -> bool:
    """Whether a client that comes again over TLS resumes its session."""

    def connect(option: str) -> str:
        command = (
            "openssl",
            "s_client",
            "-connect",
            f"{WEB_ADDRESS}:443",
            "-tls1_2",
            option,
            "session",
        )
        return subprocess.run(command, cwd=directory, input="", capture_output=True, text=True,
                              check=True, timeout=60).stdout  # fmt: skip

    connect("-sess_out")
    return "Reused, TLSv1.2" in connect("-sess_in")


def test_a_tls_site_keeps_sessions_while_it_is_told_to(ground: Ground) -> None:
    certified = subprocess.run(
        ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
         "-subj", "/CN=shop.example", "-keyout", "-", "-out", "-"),
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    site = (
        "server { listen 443 ssl; root /srv/shop; ssl_session_tickets off;"
        " ssl_certificate /etc/nginx/shop.pem; ssl_certificate_key /etc/nginx/shop.pem; }"
    )
    ground.sh(WEB, f"set -e\necho '{certified}' >/etc/nginx/shop.pem\n"
                   f"echo '{site}' >/etc/nginx/conf.d/tls.conf\nsystemctl reload nginx")  # fmt: skip
    before = ground.pictures()
    bed = prepare(read_target(target(ground)))
    fleet = bed.create_deployment(ground.directory / "tls", News().note)
    fleet.lock_hosts()
    try:
        fleet.deploy(fleet.space.build_candidate({}).settings)
        assert not spared_a_handshake(ground.directory)
        changed = {"web.nginx.ssl_session_cache": 10, "web.nginx.ssl_session_timeout": 600,
                   "web.nginx.ssl_buffer_size": 4, "web.nginx.gzip_comp_level": 4}  # fmt: skip
        done = fleet.deploy(fleet.space.build_candidate(changed).settings)
        assert acted(done.actions) == {f"web.{WEB}.nginx": Action.RELOAD}
        assert {name: done.effective.get(name) for name in changed} == changed
        assert spared_a_handshake(ground.directory)
        fleet.restore()
    finally:
        for transport in bed.transports.values():
            transport.close()
    assert not spared_a_handshake(ground.directory)
    assert differing(before, ground.pictures()) == []
    ground.sh(WEB, "rm /etc/nginx/conf.d/tls.conf /etc/nginx/shop.pem && systemctl reload nginx")


def test_a_cache_bound_to_one_address_is_bound_to_no_other_at_any_moment(ground: Ground) -> None:
    before = ground.pictures()
    observer = SshTransport(build_ssh_host(ground.lab, CACHE))

    def bound() -> str:
        return observer.run(["ss", "-ltnH", "sport", "=", ":11211"], timeout=60).stdout

    allowed = ("service: memcached", "service: memcached, allow_data_loss: true")
    bed = prepare(read_target(target(ground, allowed)))
    fleet = bed.create_deployment(ground.directory / "bound", News().note)
    fleet.lock_hosts()
    try:
        with asked_meanwhile(bound, every=0.05) as sockets:
            done = fleet.deploy(
                fleet.space.build_candidate({"cache.memcached.threads": 3}).settings
            )
            assert done.effective["cache.memcached.threads"] == 3
            fleet.restore()
        places = [line.split()[3] for listening in sockets for line in listening.splitlines()]
        assert set(places) == {f"{CACHE_ADDRESS}:11211"}
    finally:
        fleet.restore()
        for transport in (observer, *bed.transports.values()):
            transport.close()
    assert differing(before, ground.pictures()) == []


def test_check_and_plan_speak_of_the_files_on_the_hosts(ground: Ground) -> None:
    path = target(ground)
    before = ground.pictures()
    checked = autotune("check", str(path))
    assert "✓ the hosts' files match the baseline exactly" in checked
    assert f"✓ GET http://{WEB_ADDRESS}:80/: status 200, " in checked
    assert "cache: settings that need a restart are not tuned" in checked

    words = autotune("plan", str(path))
    assert "Private" not in words
    assert "Existing services to reconfigure: " in words
    assert "Their files are restored at the end." in words
    assert ": \n" not in words
    assert f"A trial may restart redis-server.service on {STORE}." in words
    assert "A trial may restart memcached" not in words
    assert f"Now GET http://{WEB_ADDRESS}:80/: status 200, " in words
    assert f"  restart redis-server.service on {STORE}, for maxclients" in words or (
        f"  restart redis-server.service on {STORE}, for tcp_backlog" in words
    )
    assert PASSWORD not in words
    planned = printed("plan", autotune("plan", str(path), "--json", "--exit-code", code=6))
    assert planned["installed"]
    assert f"web.{WEB}.nginx" in planned["servers"]
    assert {f"web.{WEB}.sysctl", f"web.{WEB}.limits"} <= set(planned["host_settings"])
    assert planned["hosts"][WEB]["units"]["nginx.service"]["action"] in ("reload", "restart")
    assert "memcached.service" not in planned["hosts"][CACHE]["units"]
    diff = planned["hosts"][STORE]["diff"]
    assert diff.startswith(f"--- now/{STORE}/etc/redis/redis.conf\n")
    assert "\n+tcp-backlog 4096\n" in diff
    assert "requirepass" not in "".join(re.findall(r"(?m)^[+-].*\n", diff))
    assert differing(before, ground.pictures()) == []

    moved = ground.directory / "moved.yaml"
    moved.write_text(path.read_text().replace("path: /,", "path: /nothing-here,"))
    refused = autotune("check", str(moved), code=1, error=True)
    assert f"GET http://{WEB_ADDRESS}:80/nothing-here: status 404" in refused


def test_a_study_goes_on_with_what_it_found_and_its_winner_is_applied(ground: Ground) -> None:
    before, path = ground.pictures(), target(ground)
    environment, study = prepare(read_target(path)), ground.directory / "studies" / "one"
    with trial_context.open_session(environment, study, News()) as opened:  # type: ignore[arg-type]  # takes every call
        trial_context.begin_study(environment, opened, study)
        settings = environment.space.build_candidate({"store.redis.hz": 20})
        trial = opened.store.begin_trial(Phase.RECOMMENDED, settings)
        opened.store.record_deployment(trial, opened.session.fleet.deploy(settings.settings))
    assert differing(before, ground.pictures()) == []
    assert PASSWORD not in (study / "events.jsonl").read_text()
    words = (str(trial.number), "--studies", str(study.parent))
    shown = autotune("diff", "one", "hosts", *words)
    assert re.findall(r"(?m)^[+-](?![+-]).*", shown) == ["-hz 10", "+hz 20"]

    ground.sh(STORE, "echo 'hz 30' >>/etc/redis/redis.conf")
    again = start.prepare_unfinished(study)
    assert again.space.baseline == environment.space.baseline
    assert again.file.adopted == environment.file.adopted
    ground.sh(STORE, "sed -i '$d' /etc/redis/redis.conf")
    before = ground.pictures()  # the file has another time

    out = ground.directory / "winner"
    autotune("export", "one", "--out", str(out), "--trial", *words)
    with asked_meanwhile(stranger, every=0.05) as answers:
        applied = autotune("apply", str(out), str(path), "--yes", *words[1:], error=True)
        assert "\n+hz 20\n" in applied
        assert f"\n  restart redis-server.service on {STORE}, for hz\n" in applied
        assert "hz 20" in ground.sh(STORE, "cat /etc/redis/redis.conf").splitlines()
        autotune("restore", "stranger-applied", *words[1:])
    assert {answer[:7] for answer in answers} <= {b"-NOAUTH", b""}
    assert counted(ground) == KEYS
    assert differing(before, ground.pictures()) == []


def autotune(*words: str, code: int = 0, error: bool = False) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "autotune", *words],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done.stdout + (done.stderr if error else "")
