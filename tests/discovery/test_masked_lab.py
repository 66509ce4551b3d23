"""Secrets in files that were adopted from a host: deployed as they are, and written nowhere else."""

from __future__ import annotations

import base64
import subprocess
import sys
import threading
from collections.abc import Iterator
from hashlib import md5
from pathlib import Path
from typing import Any

import psutil
import pytest

from autotune.discovery.target_writer import adopt_hosts
from autotune.environments.stack import prepare
from autotune.lab.lifecycle import build_ssh_host
from autotune.lab.plan import derive_names
from autotune.study import trial_context
from autotune.study.study_state import Phase
from autotune.target.read_target import read_target
from autotune.transports import curl
from autotune.transports.local import LocalTransport
from autotune.transports.ssh import SshTransport
from tests.answers import PATIENCE
from tests.deploy.lab import Ground, News, differing
from tests.lab.shared import HOSTS, SharedLab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]
NAME, ADDRESS = HOSTS[1].name, HOSTS[1].address
TOKEN, PASSWORD = "tR4v3rse-9QzL0pW", "hunter2-k8Vn3xB1"
SECRETS = (TOKEN, PASSWORD)
CHANGES = {"web.php_fpm.max_children": 9}
FILES = ("/etc/nginx/sites-available/default", "/etc/php/8.2/fpm/pool.d/www.conf")
# A token for the application in nginx's site, a password in PHP's pool; the page shows digests.
_SITE = rf"""
set -e
cd /etc/nginx/sites-available
sed -i -e '/location ~ \\\.php\$ {{/,/^\t#}}/ {{ s/^\t#/\t/; s/^\t\tfastcgi_pass 127/\t#&/ }}' default
sed -i -e 's,/run/php/php[0-9.]*-fpm.sock,/run/php/php8.2-fpm.sock,' default
sed -i -e 's,^\t\tfastcgi_pass unix.*,&\n\t\tfastcgi_param API_TOKEN "{TOKEN}";,' default
echo 'env[DB_PASSWORD] = {PASSWORD}' >>/etc/php/8.2/fpm/pool.d/www.conf
chmod 640 default /etc/php/8.2/fpm/pool.d/www.conf
mkdir -p /var/www/html
echo '<?php echo md5($_SERVER["API_TOKEN"] . getenv("DB_PASSWORD")), "\n";' >/var/www/html/index.php
nginx -t
systemctl restart php8.2-fpm nginx
"""
RIGHT = f"{md5((TOKEN + PASSWORD).encode(), usedforsecurity=False).hexdigest()}\n"


@pytest.fixture
def ground(shared_lab: SharedLab, tmp_path: Path) -> Iterator[Ground]:
    shared_lab.renew()
    transports = {NAME: SshTransport(build_ssh_host(shared_lab.directory, NAME))}
    ground = Ground(shared_lab.directory, tmp_path, transports)
    print(ground.sh(NAME, f"exec 2>&1\n{_SITE}"))
    assert served() == RIGHT
    yield ground
    for transport in transports.values():
        transport.close()


def served() -> str:
    got = curl.send_request(LocalTransport(), f"http://{ADDRESS}/index.php", PATIENCE)
    return got if isinstance(got, str) else got.body.decode()


class Onlooker(threading.Thread):
    """Looks at what every process of this machine and of its lab hosts is called with."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.over, self.told = threading.Event(), set[str]()

    def run(self) -> None:
        while not self.over.wait(0.1):
            for pid in psutil.pids():
                try:
                    raw = Path(f"/proc/{pid}/cmdline").read_bytes()
                except OSError:  # it has ended
                    continue
                words = raw.replace(b"\0", b" ").decode(errors="replace")
                if leaks(words):
                    self.told.add(words)


def leaks(text: str) -> list[str]:
    """Secrets in a text, as they are or in base64 at any offset."""
    coded = {secret: [base64.b64encode(b"." * n + secret.encode())[4 if n else 0 : -4].decode()
                      for n in range(3)] for secret in SECRETS}  # fmt: skip
    return [secret for secret in SECRETS
            if secret in text or any(code in text for code in coded[secret])]  # fmt: skip


def in_files(directory: Path) -> list[str]:
    return [str(path) for path in directory.rglob("*")
            if path.is_file() and leaks(path.read_bytes().decode(errors="replace"))]  # fmt: skip


def autotune(place: Path, *words: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "autotune", *words],
        cwd=place, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=240, check=False,
    ).stdout  # fmt: skip


def deployed(ground: Ground, target: Path) -> None:
    """Two configurations on record as a study of the host has them; then it is restored.

    They are not measured: how much load they carry matters to nothing here.
    """
    bed, study = prepare(read_target(target)), ground.directory / "studies" / "mine"
    news: Any = News()
    with trial_context.open_session(bed, study, news) as bench:
        trial_context.begin_study(bed, bench, study)
        for phase, changes in ((Phase.BASELINE, {}), (Phase.SEARCH, CHANGES)):
            candidate = bed.space.build_candidate(changes)
            trial = bench.store.begin_trial(phase, candidate)
            bench.store.record_deployment(trial, bench.session.fleet.deploy(candidate.settings))
            files = ground.sh(NAME, 'cat -- "$@"', *FILES)
            assert all(secret in files for secret in SECRETS)
            assert served() == RIGHT
    assert "pm.max_children = 9" in files
    assert served() == RIGHT


def test_secrets_are_deployed_and_shown_nowhere(ground: Ground) -> None:
    before, place, target = ground.pictures(), ground.directory, ground.directory / "mine.yaml"
    onlooker = Onlooker()
    onlooker.start()
    adopt_hosts([ADDRESS], target, derive_names(ground.lab).ssh_config, None)
    assert in_files(place) == []
    deployed(ground, target)
    told = autotune(place, "plan", "mine.yaml") + autotune(place, "report", "mine")
    told += autotune(place, "diff", "mine", "0", "1")
    assert "max_children" in told
    for form in ("files", "ansible", "shell"):
        out = ("--format", form, "--out", f"export-{form}")
        told += autotune(place, "export", "mine", "--trial", "1", *out)
    onlooker.over.set()
    onlooker.join()
    assert leaks(told) == []
    assert in_files(place) == []
    assert onlooker.told == set()
    logs = ground.sh(NAME, "journalctl --no-pager -o cat; cat /var/log/*.log /var/log/*/*.log; "
                           "find /run /tmp /var/tmp /var/lib/autotune -type f -size -1000k "
                           "-exec cat {} + 2>/dev/null")  # fmt: skip
    assert leaks(logs) == []
    assert differing(before, ground.pictures()) == []
