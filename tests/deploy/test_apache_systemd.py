"""Apache as the distribution's own unit on real hosts, beside nginx and PHP-FPM."""

from __future__ import annotations

from itertools import product

import pytest

from autotune.deploy.deploy_result import DeployFailed
from autotune.loads.base import Request
from autotune.loads.registry import LOAD_GENERATORS
from autotune.services.base import Action
from autotune.services.diagnosis import Resource
from autotune.target.slo import Slo
from tests.answers import fetched
from tests.deploy.lab import Ground, acted, diagnosed, settings

pytestmark = pytest.mark.lab
RIGHT = (200, b"found 0100 of 0100\n")
CHOICES = (
    ("service: nginx,", "service: [apache, nginx],"),
    ("service: nginx+php-fpm", "service: [apache+mod_php, nginx+php-fpm]"),
)
WITH_FPM = (("service: nginx+php-fpm", "service: apache+php-fpm"),)
SLOW = (
    ("uses: [cache, store]", "uses: [store]"),
    ("pairs: 2000", "pairs: 2000, store_latency: 100ms"),
    ("p99: 50ms", "p99: 400ms"),
)


def test_all_four_deployments_answer_and_hosts_are_put_back(ground: Ground) -> None:
    with ground.opened(*CHOICES) as fleet:
        for lb, web in product(("apache", "nginx"), ("apache+mod_php", "nginx+php-fpm")):
            fleet.deploy(settings(fleet, lb__service=lb, web__service=web))
            assert fetched(fleet.stack.entry, "/kv.php") == RIGHT
            assert ground.sh("fllb", "systemctl is-active apache2 nginx").split() == (
                ["active", "inactive"] if lb == "apache" else ["inactive", "active"]
            )
            assert ground.sh("flweb", "systemctl is-active apache2") == (
                "active" if web == "apache+mod_php" else "inactive"
            )


def test_it_is_reloaded_restarted_read_back_and_starved(ground: Ground) -> None:
    with ground.opened(*CHOICES, *SLOW) as fleet:
        pid = ground.sh("fllb", "systemctl show -P MainPID apache2")
        changed = {"lb__apache__ThreadsPerChild": 10, "web__apache__KeepAliveTimeout": 3,
                   "web__php_ini__opcache_memory_consumption": 48}  # fmt: skip
        reloaded = fleet.deploy(settings(fleet, **changed))
        assert acted(reloaded.actions) == {
            "lb.fllb.apache": Action.RELOAD, "web.flweb.apache": Action.RELOAD,
            "web.flweb.php_ini": Action.RELOAD,
        }  # fmt: skip
        # Mapped by Apache itself, anew: its own word for it.
        assert reloaded.effective["web.php_ini.opcache_memory_consumption"] == 48
        assert reloaded.effective["lb.apache.MaxRequestWorkers"] == 60
        assert reloaded.effective["web.apache.KeepAliveTimeout"] == 3
        assert ground.sh("fllb", "systemctl show -P MainPID apache2") == pid

        restarted = fleet.deploy(settings(fleet, **changed, lb__apache__ServerLimit=9))
        assert acted(restarted.actions) == {"lb.fllb.apache": Action.RESTART}
        assert restarted.effective["lb.apache.MaxRequestWorkers"] == 90

        wider = fleet.deploy(settings(fleet, **changed, lb__limits__nofile=20_000))
        assert "lb.limits.nofile" not in {d.parameter for d in wider.mismatches}
        assert fleet.deploy(
            settings(fleet, **changed, lb__limits__nofile=20_000)
        ).restarted_instances == (frozenset())

        # Five threads, of which each request takes one for 0.1 s.
        few = {"lb__apache__ServerLimit": 1, "lb__apache__ThreadsPerChild": 5,
               "lb__apache__StartServers": 1, "web__apache__MaxRequestWorkers": 30}  # fmt: skip
        fleet.deploy(settings(fleet, **few))
        request = Request(fleet.stack.entry, "/kv.php", RIGHT[1])
        bottleneck = diagnosed(
            ground, fleet, LOAD_GENERATORS["httperf"], request, Slo(limit=0.4), 100.0, "lb"
        )
        assert (bottleneck.tier, bottleneck.service) == ("lb", "apache")
        assert bottleneck.resource is Resource.WORKERS


def test_in_front_of_php_fpm_the_one_that_is_starved_is_named(ground: Ground) -> None:
    with ground.opened(*WITH_FPM, *SLOW) as fleet:
        assert fetched(fleet.stack.entry, "/kv.php") == RIGHT
        assert (
            ground.sh("flweb", "systemctl is-active apache2 php8.2-fpm").split() == ["active"] * 2
        )
        request = Request(fleet.stack.entry, "/kv.php", RIGHT[1])
        threads = {"web__apache__ServerLimit": 1, "web__apache__ThreadsPerChild": 5,
                   "web__apache__StartServers": 1, "web__php_fpm__max_children": 30,
                   "web__php_fpm__pm": "static"}  # fmt: skip
        children = {"web__php_fpm__max_children": 3, "web__php_fpm__pm": "static"}
        for few, service in ((threads, "apache"), (children, "php_fpm")):
            deployed = fleet.deploy(settings(fleet, **few))
            assert [str(d) for d in deployed.mismatches if d.parameter.startswith("web.")] == []
            bottleneck = diagnosed(
                ground, fleet, LOAD_GENERATORS["httperf"], request, Slo(limit=0.4), 100.0, "web"
            )
            assert (bottleneck.service, bottleneck.resource) == (service, Resource.WORKERS)


def test_its_own_words_say_why_a_configuration_is_refused(ground: Ground) -> None:
    with ground.opened(*CHOICES) as fleet:
        wrong = {**settings(fleet), "lb.apache.KeepAliveTimeout": "a while"}
        with pytest.raises(
            DeployFailed, match=r"(?s)lb\.fllb\.apache: .*KeepAliveTimeout takes one"
        ):
            fleet.deploy(wrong)
        assert fetched(fleet.stack.entry, "/kv.php") == RIGHT
