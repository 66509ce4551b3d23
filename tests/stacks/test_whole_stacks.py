"""Whole stacks: adopted, checked, planned, changed once and restored, with right answers at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autotune.cli import app
from autotune.environments.stack import prepare
from autotune.lab.plan import derive_names
from autotune.target.read_target import read_target
from tests.deploy.lab import Ground, News, differing, renewed
from tests.lab.shared import NETWORK, SharedLab
from tests.stacks import haproxy_apache, nginx_puma, varnish_django
from tests.stacks.site import Site, Stack

pytestmark = pytest.mark.lab
HOSTS = {"lb": ("fllb", 21), "web": ("flweb", 22), "db": ("flstore", 24)}
# Short boots and intervals; the long form has those of slow sites.
INTERVAL, BOOT = "1s", 3
# A stack, its page if it has one of its own, and a change that restarts the application.
CASES = {
    "haproxy-apache-mariadb": (
        haproxy_apache.build_short(INTERVAL),
        "/index.php?first=0",
        {"web.apache.MaxRequestWorkers": 20},
    ),
    "nginx-puma-postgresql": (
        nginx_puma.build_short(BOOT),
        nginx_puma.PAGE,
        {"app.puma.max_threads": 3},
    ),
    "varnish-nginx-gunicorn-postgresql": (
        varnish_django.build_short(INTERVAL),
        varnish_django.PAGE,
        {"app.gunicorn.workers": 3},
    ),
}


@pytest.fixture
def ground(shared_lab: SharedLab, tmp_path: Path) -> Iterator[Ground]:
    with renewed(shared_lab, tmp_path) as ground:
        yield ground


def build_site(ground: Ground, stack: Stack) -> Site:
    roles = {role: host for role, host in HOSTS.items() if role in stack.scripts}
    site = Site(
        stack,
        ground.lab,
        {role: ground.transports[name] for role, (name, _) in roles.items()},
        {role: f"{NETWORK}.{number}" for role, (_, number) in roles.items()},
        ground.directory,
    )
    site.install()
    return site


def run_command(*words: str) -> str:
    done = CliRunner().invoke(app, [*words])
    print(f"$ autotune {' '.join(words)}\n{done.output}")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("name", CASES)
def test_a_stack_is_adopted_changed_and_restored(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    stack, page, change = CASES[name]
    site = build_site(ground, stack)
    if stack.tls:
        monkeypatch.setenv("CURL_CA_BUNDLE", str(site.ca))
    before, rows, target = site.pictures(), site.digest(), ground.directory / "shop.yaml"
    config = str(derive_names(site.lab).ssh_config)
    run_command("init", "--from", ",".join(site.logins), "--ssh-config", config, "--path", page,
                "--out", str(target))  # fmt: skip
    print(target.read_text())
    run_command("check", str(target))
    run_command("plan", str(target))
    assert differing(before, site.pictures()) == []

    environment, news = prepare(read_target(target)), News()
    fleet = environment.create_deployment(ground.directory / "study", news.note)
    fleet.lock_hosts()
    try:
        fleet.deploy(fleet.space.build_candidate({}).settings)
        deployed = fleet.deploy(fleet.space.build_candidate(dict(change)).settings)
        assert site.wrong_answers(20) == []
        assert {key: deployed.effective.get(key) for key in change} == change
    finally:
        fleet.restore()
        fleet.confirm_restored()
        wrong = site.wrong_answers(200)
        for transport in environment.transports.values():
            transport.close()
    print(*news.notes, sep="\n")
    assert wrong == []
    assert differing(before, site.pictures()) == []
    assert site.digest() == rows
