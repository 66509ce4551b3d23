"""Apache in each of its roles, with the real servers, in place of nginx and of PHP-FPM."""

from __future__ import annotations

import time
from itertools import product
from pathlib import Path

import psutil
import pytest

from autotune.deploy.deploy_result import DeployFailed
from autotune.services.base import Action
from autotune.study.trial_context import TrialContext
from tests.answers import fetched
from tests.deploy.conftest import Opened
from tests.deploy.test_embedded import RIGHT, answer, fleet, settings
from tests.meanwhile import asked_meanwhile

pytestmark = pytest.mark.stack

APACHES = (
    ("service: nginx, forwards_to", "service: apache, forwards_to"),
    ("nginx+php-fpm", "apache+mod_php"),
)
LB, WEB = "lb.here.apache", "web.here.apache"


def masters(bench: TrialContext) -> dict[str, int]:
    """Tier → process id of its Apache's first process."""
    sites = (
        part.placement for part in fleet(bench).stack.instances if part.service.name == "apache"
    )
    return {
        site.tier: int(Path(site.directory, "apache.pid-of").read_text().split()[0])
        for site in sites
    }


def test_both_roles_answer_and_take_the_least_action(opened: Opened) -> None:
    with opened(*APACHES) as bench:
        first = fleet(bench).deploy(settings(bench))
        assert set(first.actions.values()) == {Action.RESTART}
        assert answer(bench) == RIGHT
        assert first.mismatches == ()
        of_apache = {n for n in settings(bench) if n.startswith(("lb.apache.", "web.apache."))}
        assert of_apache - set(first.effective) <= {"lb.apache.proxy_ttl"}  # 0 is not written
        begun = masters(bench)

        again = fleet(bench).deploy(settings(bench))
        assert set(again.actions.values()) == {Action.NONE}

        changed = {"lb__apache__ThreadsPerChild": 10, "web__apache__KeepAliveTimeout": 3}
        reloaded = fleet(bench).deploy(settings(bench, **changed))
        acted = {n: a for n, a in reloaded.actions.items() if a is not Action.NONE}
        assert acted == {LB: Action.RELOAD, WEB: Action.RELOAD}
        assert reloaded.effective["lb.apache.ThreadsPerChild"] == 10
        assert reloaded.effective["lb.apache.MaxRequestWorkers"] == 60
        assert reloaded.effective["web.apache.KeepAliveTimeout"] == 3
        assert reloaded.mismatches == ()
        assert masters(bench) == begun
        assert answer(bench) == RIGHT

        restarted = fleet(bench).deploy(settings(bench, **changed, lb__apache__ServerLimit=9))
        acted = {n: a for n, a in restarted.actions.items() if a is not Action.NONE}
        assert acted == {LB: Action.RESTART}
        assert restarted.effective["lb.apache.MaxRequestWorkers"] == 90
        assert restarted.mismatches == ()
        assert masters(bench)["lb"] != begun["lb"]
        assert masters(bench)["web"] == begun["web"]
        assert answer(bench) == RIGHT


def test_as_many_processes_serve_as_the_settings_allow(opened: Opened) -> None:
    """After a reload with fewer processes, Apache would start no more, whatever it is asked for."""
    with opened(*APACHES) as bench:
        for limit in (12, 2, 6):
            spare = dict.fromkeys(("StartServers", "MinSpareServers"), limit)
            values = {"MaxRequestWorkers": limit, **spare}
            deployed = fleet(bench).deploy(
                settings(bench, **{f"web__apache__{name}": v for name, v in values.items()})
            )
            assert deployed.actions[WEB] is Action.RESTART
            assert deployed.effective["web.apache.MaxRequestWorkers"] == limit
            master = psutil.Process(masters(bench)["web"])
            while len(master.children()) != limit:
                time.sleep(0.1)


def test_in_front_of_php_fpm_each_is_reloaded_by_itself(opened: Opened) -> None:
    with opened(("nginx+php-fpm", "apache+php-fpm")) as bench:
        first = fleet(bench).deploy(settings(bench))
        assert set(first.actions.values()) == {Action.RESTART}
        assert answer(bench) == RIGHT
        assert first.mismatches == ()
        of_apache = {name for name in settings(bench) if name.startswith("web.apache.")}
        assert of_apache <= set(first.effective)
        assert not [name for name in of_apache if "proxy" in name or "lbmethod" in name]
        begun = masters(bench)

        changed = {"web__apache__ThreadsPerChild": 10, "web__php_fpm__max_children": 3}
        for values, expected in (
            ({"web__apache__ThreadsPerChild": 10}, {WEB: Action.RELOAD}),
            (changed, {"web.here.php_fpm": Action.RELOAD}),
        ):
            reloaded = fleet(bench).deploy(settings(bench, **values))
            acted = {n: a for n, a in reloaded.actions.items() if a is not Action.NONE}
            assert acted == expected
            assert reloaded.mismatches == ()
            assert answer(bench) == RIGHT
        assert reloaded.effective["web.apache.MaxRequestWorkers"] == 60
        assert reloaded.effective["web.php_fpm.max_children"] == 3
        assert masters(bench) == begun


def test_a_reload_loses_no_request(opened: Opened) -> None:
    with opened(*APACHES) as bench:
        fleet(bench).deploy(settings(bench))
        with asked_meanwhile(lambda: answer(bench)) as answers:
            for threads in (10, 20, 30):
                fleet(bench).deploy(settings(bench, lb__apache__ThreadsPerChild=threads))
        assert answers
        assert set(answers) == {RIGHT}


def test_what_apache_lowers_shows_as_a_difference(opened: Opened) -> None:
    somaxconn = int(Path("/proc/sys/net/core/somaxconn").read_text())
    with opened(*APACHES) as bench:
        asked = {
            **settings(bench),
            "lb.apache.MaxRequestWorkers": 1000,  # six processes of 25 threads are allowed
            "web.apache.MaxRequestWorkers": 300,  # 256 processes are
            "web.apache.ListenBacklog": somaxconn + 1,
        }
        deployed = fleet(bench).deploy(asked)
        assert {str(difference) for difference in deployed.mismatches} == {
            "lb.apache.MaxRequestWorkers: requested 1000, effective 150",
            "web.apache.MaxRequestWorkers: requested 300, effective 256",
            f"web.apache.ListenBacklog: requested {somaxconn + 1}, effective {somaxconn}",
        }


def test_a_refused_configuration_changes_nothing_and_says_why(opened: Opened) -> None:
    with opened(*APACHES) as bench:
        fleet(bench).deploy(settings(bench))
        begun = masters(bench)
        for wrong, message in (
            ({"lb.apache.KeepAliveTimeout": "a while"}, "KeepAliveTimeout takes one argument"),
            ({"web.apache.StartServers": "2 3"}, "StartServers takes one argument"),
            ({"lb.apache.lbmethod": "luck"}, r"mod_lbmethod_luck\.so"),
        ):
            with pytest.raises(DeployFailed, match=message):
                fleet(bench).deploy({**settings(bench), **wrong})
        assert masters(bench) == begun
        assert answer(bench) == RIGHT
        assert set(fleet(bench).deploy(settings(bench)).actions.values()) == {Action.NONE}


def test_its_state_is_told_under_a_name_of_its_own_alone(opened: Opened) -> None:
    with opened(*APACHES) as bench:
        fleet(bench).deploy(settings(bench))
        for part in fleet(bench).stack.instances:
            if part.service.name == "apache":
                for page in ("/server-status", "/server-info"):
                    got = fetched(part.placement.listen, page)
                    assert isinstance(got, tuple)
                    assert got[0] == 404


@pytest.mark.parametrize("other", ["apache+mod_php", "apache+php-fpm"])
def test_each_deployment_of_both_tiers_takes_the_other_ones_place(
    opened: Opened, other: str
) -> None:
    choices = (
        ("service: nginx, forwards_to", "service: [nginx, apache], forwards_to"),
        ("service: nginx+php-fpm", f"service: [nginx+php-fpm, {other}]"),
    )
    with opened(*choices) as bench:
        for lb, web in product(("nginx", "apache"), ("nginx+php-fpm", other)):
            deployed = fleet(bench).deploy(settings(bench, lb__service=lb, web__service=web))
            assert answer(bench) == RIGHT
            assert deployed.mismatches == ()
            apaches = (lb == "apache") + (web == other)
            assert sum(name.endswith(".apache") for name in deployed.actions) == apaches
            assert ("web.here.php_fpm" in deployed.actions) == web.endswith("php-fpm")
