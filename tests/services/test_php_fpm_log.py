"""What PHP-FPM shows of itself is in no log: pools have passwords in their environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.deploy.programs import find_local_programs
from autotune.services.base import Endpoint, Placement, Role
from autotune.services.php_fpm.service import PhpFpm
from autotune.transports.local import LocalTransport

POOL = """\
[www]
user = www-data
listen = HERE/pool.sock
pm = static
pm.max_children = 7
env[DB_PASSWORD] = hunter2
php_admin_value[session.save_path] = "tcp://cache?auth=hunter2"
"""


@pytest.mark.stack
def test_what_is_in_effect_is_shown_without_secrets_and_logged_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = find_local_programs([PhpFpm()])["php-fpm"]
    conf, log, pool = tmp_path / "php-fpm.conf", tmp_path / "fpm.log", tmp_path / "www.conf"
    pool.write_text(POOL.replace("HERE", str(tmp_path)))
    conf.write_text(f"[global]\nerror_log = {log}\ninclude={pool}\n")
    monkeypatch.setattr(PhpFpm, "config_path", lambda *_: str(conf))
    site = Placement(tier="web", host="h", role=Role.APP, directory=str(tmp_path), installed=True,
                listen=Endpoint("127.0.0.1", 80), programs={"php-fpm": program})  # fmt: skip
    shown = PhpFpm().list_readbacks(site)[0]
    done = LocalTransport().run(shown.argv)
    values = shown.parse(done.stdout)
    assert (values["pm"], values["max_children"]) == ("static", 7)
    assert "hunter2" not in done.stdout + done.stderr
    assert not log.exists() or "hunter2" not in log.read_text()
