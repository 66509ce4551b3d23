"""What `autotune plan` says of a target with a choice, on this machine; nothing is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.environments.preparation import prepare
from autotune.study.run_plan import build_plan, format_plan
from autotune.target.read_target import read_target

pytestmark = pytest.mark.stack
LOCAL = (Path(__file__).parents[2] / "targets" / "local.yaml").read_text()


def test_every_deployment_and_what_holds_it_back(tmp_path: Path) -> None:
    path = tmp_path / "target.yaml"
    both = LOCAL.replace("service: nginx+php-fpm", "service: [nginx+php-fpm, apache+mod_php]")
    path.write_text(f"{both}constraints: [web.workers * count(web.hosts) <= 40]\n")
    planned = build_plan(prepare(read_target(path)))
    nginx, apache = planned["deployments"]
    assert nginx["services"] == {"web.service": "nginx+php-fpm"}
    assert {"web.here.nginx", "web.here.php_fpm"} <= set(nginx["servers"])
    assert "web.here.apache" in apache["servers"]
    assert not {"web.here.nginx", "web.here.php_fpm"} & set(apache["servers"])
    rule = "(web.workers * count(web.hosts) <= 40: 256 * 1 = 256 <= 40)"
    assert f"web.apache.MaxRequestWorkers: 256 → 40 {rule}" in apache["bindings"]
    assert any("<= 80% of memory(here)" in limit for limit in planned["limits"])
    # The diff is that of the baseline's own deployment.
    assert "web.here.apache" not in planned["diff"]
    said = format_plan(planned)
    assert "2 choices of software. Each is tried with its recommended settings first:" in said
    assert "web.service apache+mod_php" in said
