"""Varnish: what it prints, what follows from its counters, and which configuration is validated."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.services.base import Endpoint, Own, Role, Site
from autotune.services.diagnosis import PartActivity, PartReading, Resource, Rule
from autotune.services.varnish.diagnosis import DIAGNOSIS
from autotune.services.varnish.service import SERVICES, counters, in_effect, storage_in_effect

FIXTURES = Path(__file__).parent / "fixtures"
SETTINGS = {"thread_pools": 2, "thread_pool_max": 10, "storage": 16}
SITE = Site(
    tier="t", host="h", role=Role.HTTP_CACHE, directory="/run/t", listen=Endpoint("10.0.0.1", 80),
    installed=True, programs={name: f"/usr/sbin/{name}" for name in SERVICES[0].programs},
)  # fmt: skip


def test_values_in_effect() -> None:
    shown = in_effect((FIXTURES / "varnishadm.txt").read_text())
    assert shown["thread_pool_min"] == 500
    assert shown["thread_pool_max"] == 600
    assert shown["workspace_client"] == 96
    assert shown["timeout_idle"] == 5
    assert "listen_depth" not in shown  # the kernel knows better
    assert storage_in_effect((FIXTURES / "varnishstat.txt").read_text()) == {"storage": 16}


@pytest.mark.parametrize(
    "text",
    ["[" * 5000, '[{"implemented": false}]', '[{"name": "thread_pool_max", "value": 1e999}]',
     '[{"name": ["x"], "value": 1e300}]', '{"counters": [1]}', '{"counters": {"SMA.s0.g_bytes": 1}}',
     '{"counters": {"SMA.s0.g_bytes": {"value": 1e300}}}',
     '{"counters": {"SMA.s0.g_bytes": {"value": "x"}}}'],
)  # fmt: skip
def test_what_makes_no_sense_says_nothing(text: str) -> None:
    assert in_effect(text) == storage_in_effect(text) == counters(text) == {}


@pytest.mark.parametrize(
    ("rules", "counted", "resource", "words"),
    [
        (DIAGNOSIS.worker_rules, {"threads_limited": 9, "sess_queued": 40}, Resource.WORKERS,
         "2 pools of 10 threads"),
        (DIAGNOSIS.refusal_rules, {"threads_limited": 9, "sess_dropped": 7}, Resource.WORKERS,
         "7 dropped: raise thread_pool_max"),
        (DIAGNOSIS.refusal_rules, {"threads_failed": 3}, Resource.MEMORY, "3 threads"),
        (DIAGNOSIS.refusal_rules, {"backend_busy": 4}, Resource.CONNECTIONS, ".max_connections"),
        (DIAGNOSIS.cache_rules, {"n_lru_nuked": 90, "cache_miss": 60, "cache_hit": 40}, Resource.CACHE,
         "60% of 100 requests missed: raise storage"),
        (DIAGNOSIS.cache_rules, {"n_lru_nuked": 90, "cache_miss": 5, "cache_hit": 95}, None, ""),
        (DIAGNOSIS.cache_rules, {"cache_miss": 60, "cache_hit": 40}, None, ""),
        (DIAGNOSIS.worker_rules, {"threads_limited": 9}, None, ""),
    ],
)  # fmt: skip
def test_what_its_counters_say(
    rules: tuple[Rule, ...], counted: dict[str, float], resource: Resource | None, words: str
) -> None:
    counters = {f"MAIN.{name}": value for name, value in counted.items()}
    activity = PartActivity("p", "t", "h", "varnish", Role.HTTP_CACHE, counters=counters)
    part = PartReading(activity, SETTINGS, failed=0, mostly_errors=False, idle=0.5)
    findings = [finding for rule in rules if (finding := rule(part))]
    assert [finding.resource for finding in findings] == ([resource] if resource else [])
    assert all(words in finding.evidence for finding in findings)


def test_the_command_is_validated_and_asked_by_its_name() -> None:
    command = b'/x/varnishd -F -a :80 -n "shop" \\\n -P %%t/v.pid -s malloc,1m\n'
    unit = b"[Service]\nExecStart=\nExecStart=" + command
    argv = SERVICES[0].validate(SITE, {"/etc/u.conf": unit})
    assert argv is not None
    assert argv[4:6] == ("/etc/u.conf", "/usr/sbin/varnishd")
    assert " ".join(argv[6:]) == "-a 127.0.0.1:0 -n shop -P %t/v.pid -s malloc,1m"
    assert SERVICES[0].validate(SITE, {"/etc/u.conf": b""}) is None
    named = Site(**{**vars(SITE), "own": Own(listen="shop")})
    assert SERVICES[0].effective(named)[0].argv[1:3] == ("-n", "shop")
