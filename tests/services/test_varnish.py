"""Varnish: what it prints, what follows from its counters, and which configuration is validated."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.services.base import AdoptedConfig, Endpoint, Placement, Role
from autotune.services.diagnosis import DiagnosisRule, InstanceActivity, InstanceReading, Resource
from autotune.services.varnish.diagnosis import DIAGNOSIS
from autotune.services.varnish.service import (
    SERVICES,
    parse_counters,
    parse_effective,
    parse_effective_storage,
)

FIXTURES = Path(__file__).parent / "fixtures"
SETTINGS = {"thread_pools": 2, "thread_pool_max": 10, "storage": 16}
SITE = Placement(
    tier="t", host="h", role=Role.HTTP_CACHE, directory="/run/t", listen=Endpoint("10.0.0.1", 80),
    installed=True, programs={name: f"/usr/sbin/{name}" for name in SERVICES[0].programs},
)  # fmt: skip


def test_values_in_effect() -> None:
    shown = parse_effective((FIXTURES / "varnishadm.txt").read_text())
    assert shown["thread_pool_min"] == 500
    assert shown["thread_pool_max"] == 600
    assert shown["workspace_client"] == 96
    assert shown["timeout_idle"] == 5
    assert "listen_depth" not in shown  # the kernel knows better
    assert parse_effective_storage((FIXTURES / "varnishstat.txt").read_text()) == {"storage": 16}


@pytest.mark.parametrize(
    "text",
    ["[" * 5000, '[{"implemented": false}]', '[{"name": "thread_pool_max", "value": 1e999}]',
     '[{"name": ["x"], "value": 1e300}]', '{"counters": [1]}', '{"counters": {"SMA.s0.g_bytes": 1}}',
     '{"counters": {"SMA.s0.g_bytes": {"value": 1e300}}}',
     '{"counters": {"SMA.s0.g_bytes": {"value": "x"}}}'],
)  # fmt: skip
def test_what_makes_no_sense_says_nothing(text: str) -> None:
    assert parse_effective(text) == parse_effective_storage(text) == parse_counters(text) == {}


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
         "60% of 100 requests missed: increase the storage size"),
        (DIAGNOSIS.cache_rules, {"n_lru_nuked": 90, "cache_miss": 5, "cache_hit": 95}, None, ""),
        (DIAGNOSIS.cache_rules, {"cache_miss": 60, "cache_hit": 40}, None, ""),
        (DIAGNOSIS.worker_rules, {"threads_limited": 9}, None, ""),
    ],
)  # fmt: skip
def test_what_its_counters_say(
    rules: tuple[DiagnosisRule, ...],
    counted: dict[str, float],
    resource: Resource | None,
    words: str,
) -> None:
    counters = {f"MAIN.{name}": value for name, value in counted.items()}
    activity = InstanceActivity("p", "t", "h", "varnish", Role.HTTP_CACHE, counters=counters)
    part = InstanceReading(
        activity, SETTINGS, failed_requests=0, errors_dominate=False, idle_fraction=0.5
    )
    findings = [finding for rule in rules if (finding := rule(part))]
    assert [finding.resource for finding in findings] == ([resource] if resource else [])
    assert all(words in finding.evidence for finding in findings)


@pytest.mark.parametrize(
    "wrapper",
    ["/usr/bin/nice -n 5", "/usr/bin/ionice -c 2 -n 0 nice", "-/usr/bin/chrt -r 20",
     "/usr/bin/env TZ=UTC"],
)  # fmt: skip
def test_programs_that_start_varnish_are_not_part_of_its_options(wrapper: str) -> None:
    unit = f"[Service]\nExecStart={wrapper} /x/varnishd -F -a :80 -s malloc,1m\n".encode()
    argv = SERVICES[0].build_validation(SITE, {"/etc/u.conf": unit})
    assert argv is not None
    assert argv[5:] == ("/usr/sbin/varnishd", "-a", "127.0.0.1:0", "-s", "malloc,1m")


def test_the_command_is_validated_and_asked_by_its_name() -> None:
    command = b'/x/varnishd -F -a :80 -n "shop" \\\n -P %%t/v.pid -s malloc,1m\n'
    unit = b"[Service]\nExecStart=\nExecStart=" + command
    argv = SERVICES[0].build_validation(SITE, {"/etc/u.conf": unit})
    assert argv is not None
    assert argv[4:6] == ("/etc/u.conf", "/usr/sbin/varnishd")
    assert " ".join(argv[6:]) == "-a 127.0.0.1:0 -n shop -P %t/v.pid -s malloc,1m"
    assert SERVICES[0].build_validation(SITE, {"/etc/u.conf": b""}) is None
    named = Placement(**{**vars(SITE), "adopted": AdoptedConfig(listen="shop")})
    assert SERVICES[0].list_readbacks(named)[0].argv[1:3] == ("-n", "shop")
