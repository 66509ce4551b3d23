"""Debian's own nginx and PHP-FPM with a small site, adopted and tuned without a line by hand."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.deploy import templates
from autotune.deploy.deploy_result import DeployFailed
from autotune.discovery.target_writer import AdoptionSummary, adopt_hosts
from autotune.environments.stack import prepare
from autotune.errors import AutotuneError
from autotune.lab.lifecycle import build_ssh_host
from autotune.lab.plan import derive_names
from autotune.masking import has_placeholder, restore_secrets
from autotune.secret_detection import PLACEHOLDER_PATTERN
from autotune.services.base import Action
from autotune.services.registry import SHIPPED, find_outliner
from autotune.study import trial_context
from autotune.study.study_state import Phase
from autotune.target.read_target import read_target
from autotune.transports import curl
from autotune.transports.local import LocalTransport
from autotune.transports.ssh import SshTransport
from tests.answers import PATIENCE
from tests.deploy.lab import Ground, News, acted, differing
from tests.lab.shared import HOSTS, SharedLab

pytestmark = pytest.mark.lab
FIVE = {"web.nginx.worker_connections": 2000, "web.nginx.multi_accept": True,
        "web.nginx.access_log_buffer": 64,
        "web.php_fpm.max_children": 9, "web.php_fpm.max_spare_servers": 4}  # fmt: skip
LOG = "PLACEHOLDER"  # in place of masked values
# Content, bits and owner of all that nginx and PHP are configured by.
FILES = (
    "find /etc/nginx /etc/php -type f -exec stat -c '%n %a %U:%G' {} + -exec sha256sum {} + | sort"
)
DROP_IN = "/run/systemd/system/nginx.service.d"
(FRONT, FRONT_ADDRESS), (NAME, ADDRESS), (BACK, BACK_ADDRESS) = (
    (host.name, host.address) for host in HOSTS[:3]
)
# What its administrator did after `apt install nginx php-fpm`: the lines about PHP that Debian's
# site has in comments, and a page, of which five children make 250 a second on any machine.
_SITE = r"""
set -e
cd /etc/nginx/sites-available
sed -i -e '/location ~ \\\.php\$ {/,/^\t#}/ { s/^\t#/\t/; s/^\t\tfastcgi_pass 127/\t#&/ }' default
sed -i -e 's,/run/php/php[0-9.]*-fpm.sock,/run/php/php8.2-fpm.sock,' default
mkdir -p /var/www/html
echo '<?php usleep(20000); for ($i = 0, $s = ""; $i < 2000; $i++) $s = md5($s . $i); echo "site $s\n";' \
    >/var/www/html/index.php
nginx -t
systemctl restart php8.2-fpm nginx
"""
_BALANCER = f"""
set -e
cat >/etc/nginx/conf.d/back.conf <<END
upstream back {{
    server {BACK_ADDRESS};
    keepalive 8;
}}
END
sed -i 's,^\t\ttry_files .*,\t\tproxy_pass http://back;,' /etc/nginx/sites-available/default
systemctl restart nginx
"""
# As Debian has it: mpm_prefork and mod_php, which a machine lacks where Apache was installed after PHP's
# module. The host's own address in place of the loopback one.
_MOD_PHP = rf"""
set -e
a2dismod -qf mpm_event
a2enmod -q mpm_prefork php8.2
rm -f /var/www/html/index.html
echo '<?php echo "site ", PHP_VERSION, "\n";' >/var/www/html/index.php
sed -i 's/^-l 127.0.0.1/-l {BACK_ADDRESS}/' /etc/memcached.conf
systemctl restart apache2 memcached redis-server
"""
# What Debian's packages say after they are installed: `a2enmod proxy_fcgi setenvif`, `a2enconf`.
_APACHE_WITH_FPM = """
set -e
systemctl stop nginx
a2dismod -qf php8.2 mpm_prefork
a2enmod -q mpm_event proxy_fcgi setenvif
a2enconf -q php8.2-fpm
rm -f /var/www/html/index.html
systemctl restart php8.2-fpm apache2
"""


@pytest.fixture(scope="module")
def lab(shared_lab: SharedLab) -> Path:
    shared_lab.renew()
    return shared_lab.directory


@pytest.fixture(scope="module")
def ground(lab: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    transports = {name: SshTransport(build_ssh_host(lab, name)) for name in (NAME, FRONT, BACK)}
    ground = Ground(lab, tmp_path_factory.mktemp("targets"), transports)
    for name, script in ((NAME, _SITE), (FRONT, _BALANCER), (BACK, _MOD_PHP)):
        print(ground.sh(name, f"exec 2>&1\n{script}"))
    assert served().startswith("site ")
    assert served(FRONT_ADDRESS).startswith("site ")
    yield ground
    for transport in transports.values():
        transport.close()


@pytest.fixture(scope="module")
def written(ground: Ground) -> AdoptionSummary:
    before = ground.pictures()
    made = adopt_hosts(
        [ADDRESS], ground.directory / "mine.yaml", derive_names(ground.lab).ssh_config, None
    )
    assert differing(before, ground.pictures()) == []
    return made


def served(address: str = ADDRESS) -> str:
    got = curl.send_request(LocalTransport(), f"http://{address}/index.php", PATIENCE)
    return got if isinstance(got, str) else got.body.decode()


def test_what_is_found(written: AdoptionSummary) -> None:
    assert written.tier_summaries == (f"web: nginx+php-fpm on {NAME}, port 80",)
    target = read_target(written.target_file).target
    assert target.load.path == "/index.php"
    assert target.tiers["web"].app is None
    rules = target.parameters
    assert rules["web.nginx.worker_connections"].default == 768
    assert rules["web.php_fpm.max_children"].default == 5


def test_the_baseline_changes_nothing_and_others_are_validated_with_their_includes(
    ground: Ground, written: AdoptionSummary
) -> None:
    before = ground.pictures()
    page = served()
    bed = prepare(read_target(written.target_file))
    fleet = bed.create_deployment(ground.directory / "study", News().note)
    baseline = fleet.space.build_candidate({}).settings
    fleet.lock_hosts()
    try:
        done = fleet.deploy(baseline)
        assert set(done.actions.values()) == {Action.NONE}
        assert [str(one) for one in done.mismatches] == []
        assert [line for line in differing(before, ground.pictures())
                if "var/lib/autotune" not in line] == []  # fmt: skip

        changed = {"web.nginx.backlog": 2048, "web.nginx.reuseport": True,
                   "web.nginx.keepalive_requests": 77, "web.nginx.multi_accept": True,
                   "web.nginx.access_log_buffer": 64, "web.nginx.fastcgi_buffer_size": 16,
                   "web.nginx.worker_connections": 2000, "web.php_fpm.pm": "static",
                   "web.php_fpm.max_children": 7, "web.php_fpm.listen_backlog": 1000}  # fmt: skip
        done = fleet.deploy(fleet.space.build_candidate(changed).settings)
        assert [str(one) for one in done.mismatches] == []
        assert {name: done.effective[name] for name in changed if name in done.effective} == {
            name: value for name, value in changed.items() if name in done.effective
        }
        assert served() == page

        site = written.templates_directory / NAME / "etc/nginx/sites-available/default.j2"
        text = site.read_text()
        try:
            site.write_text(text.replace("server {", "server {\n\tnonsense {{ backlog }};", 1))
            templates._create_environment.cache_clear()  # as in a new process
            with pytest.raises(DeployFailed, match="nonsense"):
                fleet.deploy({**fleet.deployed_settings, "web.nginx.backlog": 1024})
        finally:
            site.write_text(text)
            templates._create_environment.cache_clear()
        assert served() == page
    finally:
        fleet.restore()
        for transport in bed.transports.values():
            transport.close()
    assert differing(before, ground.pictures()) == []


def test_a_balancer_with_apache_a_cache_and_a_store_behind_it(ground: Ground) -> None:
    before = ground.pictures()
    page = served(FRONT_ADDRESS)
    out = ground.directory / "four.yaml"
    config = derive_names(ground.lab).ssh_config
    written = adopt_hosts([FRONT_ADDRESS, f"root@{BACK_ADDRESS}"], out, config, None)
    assert written.tier_summaries == (
        f"lb: nginx on {FRONT}, port 80; forwards to web",
        f"web: apache+mod_php on {BACK}, port 80; uses cache, store",
        f"cache: memcached on {BACK}, port 11211",
        f"store: redis on {BACK}, port 6379",
    )
    text = out.read_text()
    assert "# Not restarted because memcached stores items only in memory" in text
    allowed = "    service: memcached\n    allow_data_loss: true\n"
    out.write_text(text.replace("    service: memcached\n", allowed))
    bed = prepare(read_target(out))
    fleet = bed.create_deployment(ground.directory / "four", News().note)
    fleet.lock_hosts()
    try:
        done = fleet.deploy(fleet.space.build_candidate({}).settings)
        assert set(done.actions.values()) == {Action.NONE}
        assert [line for line in differing(before, ground.pictures())
                if "var/lib/autotune" not in line] == []  # fmt: skip
        changed = {"lb.nginx.upstream_keepalive": 16, "lb.nginx.worker_connections": 1500,
                   "web.apache.MaxRequestWorkers": 40, "web.apache.ListenBacklog": 1024,
                   "web.apache.KeepAlive": False, "cache.memcached.threads": 2,
                   "cache.memcached.memory": 32, "store.redis.hz": 20}  # fmt: skip
        done = fleet.deploy(fleet.space.build_candidate(changed).settings)
        wanted = {name: value for name, value in changed.items() if name in done.effective}
        assert {name: done.effective[name] for name in wanted} == wanted
        assert {"cache.memcached.threads", "web.apache.ListenBacklog"} <= set(wanted)
        assert served(FRONT_ADDRESS) == page
    finally:
        fleet.restore()
        for transport in bed.transports.values():
            transport.close()
    assert differing(before, ground.pictures()) == []


def test_an_account_that_cannot_become_root_is_told_what_to_do(ground: Ground) -> None:
    ground.sh(
        NAME,
        """useradd -m adguest && mkdir -p ~adguest/.ssh &&
        cp ~/.ssh/authorized_keys ~adguest/.ssh/ && chown -R adguest: ~adguest/.ssh""",
    )
    config = derive_names(ground.lab).ssh_config
    with pytest.raises(AutotuneError) as raised:
        adopt_hosts([f"adguest@{ADDRESS}"], ground.directory / "no.yaml", config, None)
    assert "does not allow the account to become root" in raised.value.message
    assert "sudo -n" in (raised.value.hint or "")
    assert not (ground.directory / "no.yaml").exists()


@pytest.mark.timeout(1800)
def test_a_short_study_from_the_command_line(ground: Ground, written: AdoptionSummary) -> None:
    before = ground.pictures()
    page = served()
    target = written.target_file.with_name("short.yaml")
    text = written.target_file.read_text()
    target.write_text(
        text.replace("budget: {trials: 40, time: 45m}", "budget: {trials: 3, time: 1h}")
        .replace("p99: 50ms", "p50: 500ms")
    )  # fmt: skip
    assert "reachable, as root" in autotune("check", str(target))
    assert "max_children" in autotune("plan", str(target))
    for time in ("30s", "2m", "8m"):  # on a busy machine too little for the baseline
        studies = ground.directory / f"studies-{time}"
        words = ("run", str(target), "--yes", "--json", "--studies", str(studies), "--time", time)
        done = called(*words)
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stderr
    assert served() == page
    assert differing(before, ground.pictures()) == []
    exported = ground.directory / "exported"
    study = next(studies.iterdir()).name
    autotune("export", study, "--out", str(exported), "--studies", str(studies), "--trial", "0",
             "--all")  # fmt: skip
    found = [path for path in exported.rglob("*") if path.is_file()]
    pool = next(path for path in found if path.name == "www.conf")
    original = ground.sh(NAME, "cat /etc/php/8.2/fpm/pool.d/www.conf")
    own = f"{original}\n".encode()
    assert has_placeholder(pool.read_bytes())
    (service,) = SHIPPED.list_by_name("php_fpm")
    assert (
        restore_secrets(pool.read_bytes(), own, "www.conf", find_outliner(service, "www.conf"))
        == own
    )


def scripted(ground: Ground, text: str, *options: str) -> tuple[int, str]:
    """The exit status of a script on the host, and what it printed."""
    argv = ["sh", "-s", "--", *options]
    done = ground.transports[NAME].run(argv, input=text.encode(), timeout=240.0)
    return done.returncode, done.stdout + done.stderr


def called(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "autotune", *words],
        capture_output=True, text=True, timeout=580, check=False,
    )  # fmt: skip


def autotune(*words: str) -> str:
    done = called(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def exported(ground: Ground, written: AdoptionSummary) -> tuple[Path, str]:
    """The role of five edited directives, and the script of the host."""
    environment, study = (
        prepare(read_target(written.target_file)),
        ground.directory / "studies" / "one",
    )
    with trial_context.open_session(environment, study, News()) as opened:  # type: ignore[arg-type]  # takes every call
        trial_context.begin_study(environment, opened, study)
        settings = environment.space.build_candidate(FIVE)
        trial = opened.store.begin_trial(Phase.RECOMMENDED, settings)
        fleet = opened.session.fleet
        planned = fleet.preview_changes(settings.settings)[NAME].units
        assert {unit: change.action for unit, change in planned.items()} == {
            "nginx.service": "reload", "php8.2-fpm.service": "reload"}  # fmt: skip
        deployed = fleet.deploy(settings.settings)
        # What a plan says is what is done, in the first deployment too.
        assert acted(deployed.actions) == {f"web.{NAME}.nginx": Action.RELOAD,
                                           f"web.{NAME}.php_fpm": Action.RELOAD}  # fmt: skip
        opened.store.record_deployment(trial, deployed)
    role, script, patch = (ground.directory / name for name in ("role", "script", "patch"))
    words = ("export", "one", "--trial", str(trial.number), "--studies", str(study.parent))
    autotune(*words, "--format", "ansible", "--out", str(role))
    autotune(*words, "--format", "shell", "--out", str(script))
    autotune(*words, "--format", "patch", "--out", str(patch))
    files = role / "ansible/roles/autotune/files"
    text = (script / "shell" / f"{NAME}.sh").read_text()
    assert [str(path.relative_to(files)) for path in files.rglob("*")] == [f"{NAME}.sh"]
    assert (files / f"{NAME}.sh").read_text() == text
    edited = re.findall(r'(?m)^  "\$@" \d+ (\S+) .* edited \|\| return$', text)
    assert edited == ["/etc/php/8.2/fpm/pool.d/www.conf", "/etc/nginx/nginx.conf"]
    # A line with the path of the log changes: the host has the path, and the export does not.
    assert has_placeholder(text.encode())
    assert not [path for export in (role, script, patch) for path in export.rglob("*")
                if path.is_file() and b"access.log" in path.read_bytes()]  # fmt: skip
    return role, text


def test_an_exported_role_changes_those_directives_of_the_hosts_own_files_alone(
    ground: Ground, written: AdoptionSummary
) -> None:
    role, text = exported(ground, written)
    before, files_before = ground.pictures(), ground.sh(NAME, FILES)
    assert "/etc/nginx/nginx.conf" in files_before

    shown = played(role, "--check", "--diff")
    printed = (json.loads(line) for line in re.findall(r'(?m)^ +("[+-].*?"),?$', shown))
    changed = [PLACEHOLDER_PATTERN.sub(LOG, line) for line in printed
               if not line.startswith(("+++", "---"))]  # fmt: skip
    assert changed == ["-pm.max_children = 5", "+pm.max_children = 9",
                       "-pm.max_spare_servers = 3", "+pm.max_spare_servers = 4",
                       "+worker_rlimit_nofile 4064;",  # what so many connections need
                       "-\tworker_connections 768;", "+    multi_accept on;",
                       "+\tworker_connections 2000;", f"-\taccess_log {LOG};",
                       f"+\taccess_log {LOG} combined buffer=64k flush=5s;"]  # fmt: skip
    assert "access.log" not in shown
    assert differing(before, ground.pictures()) == []

    refuses_others_edits(ground, role, text)
    fails_and_restores(ground, text)

    process = "systemctl show -P MainPID nginx php8.2-fpm"
    running = ground.sh(NAME, process)
    played(role)
    assert ground.sh(NAME, process) == running  # all five take effect by a reload
    assert "worker_connections 2000" in ground.sh(NAME, "cat /etc/nginx/nginx.conf")
    files_applied = ground.sh(NAME, FILES)
    assert served().startswith("site ")
    assert re.search(rf"(?m)^{NAME} +: ok=\d+ +changed=0 ", played(role))
    read_me = (role / "README.md").read_text()
    typed = shlex.split(read_me.rpartition("```sh\n")[2].partition("```")[0].replace("HOST", NAME))
    assert typed[:6] == ["ssh", NAME, "sudo", "sh", "-s", "--"]
    rollback = (role / "ansible" / typed[-1].removeprefix("<")).read_text()
    code, restored = scripted(ground, rollback, *typed[6:-1])
    assert code == 0, restored
    ground.sh(NAME, "rm -r /var/backups/autotune-*")
    assert ground.sh(NAME, FILES) == files_before
    assert served().startswith("site ")
    is_patched(ground, files_before, files_applied)


def is_patched(ground: Ground, files_before: str, files_applied: str) -> None:
    """The host makes its patch, which has the effect of the role and can be taken back."""
    directory = ground.directory / "patch" / "patch"
    assert scripted(ground, (directory / f"{NAME}.paths.sh").read_text()) == (0, "")
    code, patch = scripted(ground, (directory / f"{NAME}.patch.sh").read_text())
    assert code == 0, patch
    for options, files in (("", files_applied), ("--reverse", files_before)):
        argv = ["sh", "-c", f"patch -p1 -d / {options}"]
        done = ground.transports[NAME].run(argv, input=patch.encode(), timeout=60.0)
        assert done.returncode == 0, done.stdout
        assert ground.sh(NAME, FILES) == files


def refuses_others_edits(ground: Ground, role: Path, text: str) -> None:
    ground.sh(NAME, "echo '# by hand' >>/etc/nginx/nginx.conf")
    assert "has changed since the study" in played(role, failing=True)
    for option in ("--check", "--force"):
        code, said = scripted(ground, text, option)
        assert code == 1
        assert "has changed since the study" in said
    ground.sh(NAME, "sed -i '$d' /etc/nginx/nginx.conf")


def fails_and_restores(ground: Ground, text: str) -> None:
    """nginx starts, and reloads, with the old configuration alone."""
    ground.sh(
        NAME,
        f"""mkdir -p {DROP_IN} && cat >{DROP_IN}/no.conf <<'END'
[Service]
ExecStartPre=/bin/sh -c '! grep -q "worker_connections 2000" /etc/nginx/nginx.conf'
ExecReload=/bin/sh -c '! grep -q "worker_connections 2000" /etc/nginx/nginx.conf'
END
systemctl daemon-reload""",
    )
    code, failed = scripted(ground, text)
    assert code == 1
    assert "restored: /etc/nginx/nginx.conf" in failed
    assert "restored: nginx.service, disabled active" in failed
    assert "worker_connections 768" in ground.sh(NAME, "cat /etc/nginx/nginx.conf")
    assert served().startswith("site ")
    ground.sh(NAME, f"rm -r {DROP_IN} /var/backups/autotune-*; systemctl daemon-reload")


def test_apache_in_front_of_php_fpm_as_debian_has_it(ground: Ground) -> None:
    print(ground.sh(NAME, f"exec 2>&1\n{_APACHE_WITH_FPM}"))
    page = served()
    assert page.startswith("site ")
    with ground.adopted(ADDRESS, path="/index.php") as (written, fleet):
        assert written.tier_summaries == (f"web: apache+php-fpm on {NAME}, port 80",)
        done = fleet.deploy(fleet.space.build_candidate({}).settings)
        assert set(done.actions.values()) == {Action.NONE}
        changed = {"web.apache.ServerLimit": 4, "web.apache.ThreadsPerChild": 20,
                   "web.apache.ListenBacklog": 1024, "web.php_fpm.max_children": 7}  # fmt: skip
        done = fleet.deploy(fleet.space.build_candidate(changed).settings)
        assert [str(difference) for difference in done.mismatches] == []
        assert done.effective["web.php_fpm.max_children"] == 7
        assert done.effective["web.apache.ListenBacklog"] == 1024
        limits = ground.sh(NAME, "grep MaxRequestWorkers /etc/apache2/mods-enabled/mpm_event.conf")
        assert limits.split()[-1] == "80"
        assert served() == page


def played(export: Path, *options: str, failing: bool = False) -> str:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "inventory.yml", "site.yml",
         *options],
        cwd=export / "ansible", capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "HOME": str(export.parent / "home"), "ANSIBLE_NOCOLOR": "1",
             "ANSIBLE_PIPELINING": str(not failing)},
    )  # fmt: skip
    assert (done.returncode != 0) is failing, done.stdout + done.stderr
    return done.stdout + done.stderr
