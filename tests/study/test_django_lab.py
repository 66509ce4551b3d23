"""A site in Django that nobody made for autotune: adopted, tuned, kept and restored.

nginx, gunicorn and PostgreSQL: ``AUTOTUNE_MINUTES=30 make test-soak`` (of the study; 7 at least).
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.lab.plan import derive_names
from tests.deploy.lab import differing
from tests.lab.pictures import picture
from tests.printed import printed
from tests.study import django_site, wordpress
from tests.study.django_site import PACKAGES, PASSWORD, Site
from tests.study.test_wordpress_lab import autotune
from tests.test_documented_commands import commands

pytestmark = [pytest.mark.lab, pytest.mark.soak, pytest.mark.timeout(7200)]
MINUTES = int(os.environ.get("AUTOTUNE_MINUTES", "15"))
NETWORK = "198.18.42"
PAGE = Path(__file__).parents[2] / "docs" / "django.md"
# A day of visitors in a minute: the list most, then offers by their price.
_VISITS = """
curl -sS -o /dev/null --parallel --parallel-max 2 $(
    for first in $(seq 0 50 900); do
        for _ in $(seq $((1 + first / 100))); do echo "http://@WEB@/from/$first/"; done
    done
    for _ in $(seq 20); do echo "http://@WEB@/"; done)
"""


@pytest.fixture
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("packages")
    wordpress.download(directory, PACKAGES)
    return directory


@pytest.fixture
def site(tmp_path: Path, packages: Path) -> Iterator[Site]:
    with django_site.running(tmp_path / "shop", NETWORK, packages) as site:
        yield site


def pictures(site: Site) -> dict[str, list[str]]:
    """Of hosts whose services write logs and a database of their own."""
    own = ("var/lib/postgresql", "var/lib/nginx", "srv/shop/__pycache__", "srv/shop/offers")
    return {
        name: [line for line in picture(derive_names(site.lab), name) if not line.startswith(own)]
        for name in site.transports
    }


def target(text: str, site: Site) -> str:
    """What `init --from` wrote, with the objective, the load and the budget of the site."""
    load = "load: {generator: httperf, hosts: load, requests: visits.yaml, max_rate: 2000/s, timeout: 5s}"
    text = re.sub(r"(?m)^load: .*", load, text)
    text = re.sub(r"(?m)^slo: .*", "slo: {p99: 1s, errors: 1%}", text)
    text = re.sub(r"(?m)^budget: .*", f"budget: {{trials: 60, time: {MINUTES}m}}", text)
    return text.replace("hosts:\n", f"hosts:\n  load: {{address: {site.addresses['load']}}}\n", 1)


def test_a_site_is_adopted_tuned_kept_and_restored(site: Site, tmp_path: Path) -> None:
    """As docs/django.md has it, command by command."""
    user = tmp_path / "user"
    user.mkdir()
    page = commands(PAGE)

    def type_next(*more: str) -> str:
        command = next(page).replace("/var/log/nginx/access.log", "shop.log")
        for host in ("web", "db"):
            command = command.replace(f"root@{host}1", f"root@{site.addresses[host]}")
        return autotune(user, *shlex.split(command)[1:], *more)

    site.sh("load", _VISITS.replace("@WEB@", site.addresses["web"]))
    (user / "shop.log").write_text(site.sh("web", "cat /var/log/nginx/access.log"))
    type_next()
    before, data = pictures(site), site.data()
    type_next("--ssh-config", str(derive_names(site.lab).ssh_config))
    text = (user / "shop.yaml").read_text()
    for tier, service in (("lb", "nginx"), ("app", "gunicorn"), ("db", "postgresql")):
        assert re.search(rf"(?m)^  {tier}:\n(    .*\n)*    service: {service}\b", text)
    assert re.search(r"(?m)^  app:\n(    .*\n)*    uses: .*\bdb\b", text)
    (user / "shop.yaml").write_text(target(text, site))
    type_next()
    type_next()
    type_next("--yes")
    assert differing(before, pictures(site)) == []
    assert site.data() == data

    type_next()
    report = printed("study", autotune(user, "report", "shop", "--json"))
    print(json.dumps(report, indent=1)[:3000])
    written = b"".join(p.read_bytes() for p in user.rglob("*") if p.is_file())
    assert PASSWORD.encode() not in written
    trial = str((report["best"] or {"trial": 1})["trial"] or 1)
    type_next("--trial", trial)
    # The command of gunicorn's unit is not repeated in a role.
    changed = "gunicorn" in (user / "winner" / "changes.diff").read_text()
    role = ("export", "shop", "--trial", trial, "--format", "ansible", "--out", "role")
    autotune(user, *role, codes=(1,) if changed else (0,))
    # Against what published rules advise for such hosts, which may not meet the SLO at all.
    autotune(user, "measure", "shop.yaml", "--config", "winner", "--against", "advised",
             "--repeat", "8", "--yes", codes=(0, 1))  # fmt: skip
    type_next("--yes")
    assert differing(before, pictures(site)) != []
    assert site.data() == data
    type_next()
    assert list(page) == []
    assert differing(before, pictures(site)) == []
    assert site.data() == data
