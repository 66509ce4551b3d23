"""Whole stacks with slow boots and rare health checks: tuned, applied, restored, and killed halfway.

Each takes half an hour: ``AUTOTUNE_MINUTES=15 make test-soak`` (the minutes of the study).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from autotune.lab.plan import derive_names
from tests import soak
from tests.deploy.lab import differing
from tests.printed import printed
from tests.stacks import haproxy_apache, nginx_puma, site, varnish_django
from tests.stacks.databases import PASSWORD
from tests.stacks.site import Site, Stack
from tests.study.test_wordpress_lab import autotune

pytestmark = [pytest.mark.lab, pytest.mark.soak, pytest.mark.timeout(7200)]
MINUTES = int(os.environ.get("AUTOTUNE_MINUTES", "15"))
INTERVAL, BOOT = "10s", 20
AT_ONCE = 200  # requests right after a restore


@dataclass(frozen=True)
class Case:
    """A stack in ``network``, the page that `init` is told, and its SLO."""

    stack: Stack
    network: str
    slo: str
    page: str | None = None


CASES = {
    "haproxy-apache-mariadb": Case(
        haproxy_apache.build_long(INTERVAL), "198.18.43", "{p90: 1s, errors: 1%}"
    ),
    "nginx-puma-postgresql": Case(
        nginx_puma.build_long(BOOT), "198.18.44", "{p90: 300ms, errors: 1%}", nginx_puma.PAGE
    ),
    "varnish-nginx-gunicorn-postgresql": Case(
        varnish_django.build_long(INTERVAL),
        "198.18.45",
        "{p90: 500ms, errors: 1%}",
        varnish_django.GRAPHITE_PAGE,
    ),
}


@pytest.fixture
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Case, Site]]:
    case = CASES[request.param]
    with site.running(case.stack, tmp_path, case.network) as started:
        yield case, started


@dataclass(frozen=True)
class Original:
    """How the site was before: pictures of its hosts, and a digest of its rows."""

    site: Site
    pictures: dict[str, list[str]]
    rows: str

    @classmethod
    def of(cls, site: Site) -> Original:
        return cls(site, site.pictures(), site.digest())

    def expect(self) -> None:
        """Right answers at once, and nothing that differs."""
        assert self.site.wrong_answers(AT_ONCE) == []
        assert differing(self.pictures, self.site.pictures()) == []
        assert self.site.digest() == self.rows


def complete_target(text: str, case: Case, site: Site) -> str:
    """What `init --from` wrote, with an SLO, a load host and a budget, and nothing else."""
    load = f"hosts:\n  load: {{address: {site.addresses['load']}}}\n"
    text = text.replace("hosts:\n", load, 1)
    text = text.replace("load: {generator: httperf, ", "load: {generator: httperf, hosts: load, ")
    text = re.sub(r"(?m)^slo: .*", f"slo: {case.slo}", text)
    return re.sub(r"(?m)^budget: .*", f"budget: {{trials: 40, time: {MINUTES}m}}", text)


@pytest.mark.parametrize("running", CASES, indirect=True)
def test_a_stack_is_tuned_applied_restored_and_survives_kills(
    running: tuple[Case, Site], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, site = running
    user = tmp_path / "user"
    user.mkdir()
    if case.stack.tls:
        monkeypatch.setenv("CURL_CA_BUNDLE", str(site.ca))
    original = Original.of(site)
    adopt(user, case, site)
    autotune(user, "check", "shop.yaml")
    autotune(user, "plan", "shop.yaml")
    autotune(user, "run", "shop.yaml", "--yes", "--name", "shop")
    original.expect()

    report = printed("study", autotune(user, "report", "shop", "--json"))
    print(json.dumps(report, indent=1)[:3000], autotune(user, "report", "shop"))
    assert report["baseline"]["requests"] > 0
    written = b"".join(path.read_bytes() for path in user.rglob("*") if path.is_file())
    assert PASSWORD.encode() not in written
    trial = str((report["best"] or {"trial": 1})["trial"] or 1)
    autotune(user, "export", "shop", "--trial", trial, "--out", "winner")
    seconds = apply(user, original)
    began = time.monotonic()
    print(autotune(user, "restore", "shop.yaml"))
    restore_seconds = time.monotonic() - began
    original.expect()

    moments = soak.moments()
    kill(user, seconds * moments.uniform(0.3, 0.9), "apply", "winner", "shop.yaml", "--yes")
    autotune(user, "restore", "shop.yaml")
    original.expect()
    apply(user, original)
    kill(user, restore_seconds * moments.uniform(0.3, 0.9), "restore", "shop.yaml")
    autotune(user, "restore", "shop.yaml")
    original.expect()


def adopt(user: Path, case: Case, site: Site) -> None:
    path = ("--path", case.page) if case.page else ()
    config = str(derive_names(site.lab).ssh_config)
    autotune(user, "init", "--from", ",".join(site.logins), "--ssh-config", config, *path,
             "--out", "shop.yaml")  # fmt: skip
    target = user / "shop.yaml"
    target.write_text(complete_target(target.read_text(), case, site))
    print(target.read_text())


def apply(user: Path, original: Original) -> float:
    """The seconds until the export is in effect and the site answers right."""
    began = time.monotonic()
    autotune(user, "apply", "winner", "shop.yaml", "--yes")
    seconds = time.monotonic() - began
    assert original.site.wrong_answers(AT_ONCE) == []
    assert differing(original.pictures, original.site.pictures()) != []
    assert original.site.digest() == original.rows
    return seconds


def kill(user: Path, seconds: float, *words: str) -> None:
    """Start a command, and end it after so many seconds by `kill -9`."""
    tuner = subprocess.Popen([sys.executable, "-m", "autotune", *words], cwd=user)
    time.sleep(seconds)
    assert tuner.poll() is None, f"{words} ended within {seconds:.1f} s"
    tuner.kill()
    tuner.wait()
    print(f"killed `autotune {' '.join(words)}` after {seconds:.1f} s")
