"""ReadingContext → verdict, as data; and how the readings around a peak are weighed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from autotune.diagnose.bottleneck import Bottleneck
from autotune.diagnose.context import ReadingContext, compute_php_seconds
from autotune.diagnose.diagnosis import (
    find_first_bottleneck,
    list_recommended_changes,
    select_bottleneck,
)
from autotune.measure.reading import Reading
from autotune.monitor.activity import HostActivity
from autotune.services import registry
from autotune.services.base import Role
from autotune.services.diagnosis import InstanceActivity, Resource
from autotune.services.registry import SHIPPED
from autotune.target.slo import Slo

CASES: list[dict[str, Any]] = YAML(typ="safe").load(
    (Path(__file__).parent / "bottleneck_cases.yaml").read_text()
)
TIERS = {
    "mariadb": ("db", Role.DATABASE),
    "lb.nginx": ("lb", Role.PROXY),
    "web.nginx": ("web", Role.WEB),
    "lb.apache": ("lb", Role.PROXY),
    "web.apache": ("web", Role.WEB),
    "php_fpm": ("web", Role.APP),
    "php_ini": ("web", Role.HOST),
    "memcached": ("cache", Role.CACHE),
    "redis": ("store", Role.STORE),
    "postgresql": ("db", Role.DATABASE),
}


def part(name: str, values: dict[str, Any]) -> InstanceActivity:
    tier, role = TIERS[name]
    host = values.pop("host", "here")
    service = name.rpartition(".")[2]
    runs = any(
        s.runs_application
        for s in registry.SHIPPED.list_by_name(service)
        if role in (s.role, Role.APP)
    )
    return InstanceActivity(f"{tier}.{host}.{service}", tier, host, service, role, runs, **values)


def case(values: dict[str, Any]) -> ReadingContext:
    hosts = values.get("hosts", {})
    reading = dict(values["reading"])
    if "answered" in values:
        reading["errors"] = {"timeout": round(reading["intended"] - 3 * values["answered"])}
    return ReadingContext(
        Reading(**reading),
        Slo(),
        values.get("settings", {}),
        {name: HostActivity(name, **host) for name, host in hosts.items()},
        tuple(part(name, dict(found)) for name, found in values["parts"].items()),
        forwards_to=values.get("forwards_to", {}),
    )


@pytest.mark.parametrize("values", CASES, ids=lambda c: c["name"])
def test_verdict(values: dict[str, Any]) -> None:
    found = find_first_bottleneck(case(values))
    if values["verdict"] is None:
        assert found is None
        return
    assert found is not None
    assert [found.tier, found.service, found.resource] == values["verdict"]
    assert values.get("evidence", "") in found.evidence
    assert values.get("not_evidence", "\n") not in found.evidence
    assert "\n" not in found.evidence
    assert 0.4 <= found.confidence <= 1.0


@pytest.mark.parametrize("values", [c for c in CASES if "first" in c], ids=lambda c: c["name"])
def test_the_change_against_the_cause_comes_first(values: dict[str, Any]) -> None:
    found = find_first_bottleneck(case(values))
    assert found is not None
    moves = list_recommended_changes(found)
    assert moves[0] == values["first"]
    assert "then" not in values or values["then"] in moves


def test_every_resource_has_a_case() -> None:
    verdicts = {c["verdict"][2] for c in CASES if c["verdict"]}
    related = {
        str(s.resource)
        for c in CASES
        for s in getattr(find_first_bottleneck(case(c)), "related", ())
    }
    assert verdicts | related == {str(r) for r in Resource}


def test_both_sides_are_told_to_keep_their_connections_open() -> None:
    found = find_first_bottleneck(named("a proxy that opens a connection"))
    existing = {
        "lb.nginx.upstream_keepalive",
        "web.nginx.keepalive_timeout",
        "web.nginx.worker_connections",
    }
    assert list_recommended_changes(found, existing) == (
        "lb.nginx.upstream_keepalive+", "web.nginx.keepalive_timeout+",
    )  # fmt: skip


def named(name: str) -> ReadingContext:
    return case(next(c for c in CASES if c["name"].startswith(name)))


def at(one: ReadingContext, rate: float, **changes: Any) -> ReadingContext:
    return replace(one, reading=replace(one.reading, rate=rate, **changes))


def test_the_misses_of_all_hosts_of_a_cache_are_the_cause() -> None:
    whole = named("five children wait for the misses")
    (cache,) = whole.instances_with_role(Role.CACHE)
    others = tuple(instance for instance in whole.instances if instance is not cache)
    counters = {"cmd_get": 60_000.0, "get_misses": 480.0, "evictions": 400.0}
    verdicts = []
    for count in (1, 4):
        share = {name: value / count for name, value in counters.items()}
        hosts = tuple(replace(cache, host=f"cache{n}", counters=share) for n in range(count))
        verdicts.append(find_first_bottleneck(replace(whole, instances=(*others, *hosts))))
    assert verdicts[0] == verdicts[1]
    assert resource(verdicts[0]) == "cache"
    assert verdicts[0] is not None
    assert verdicts[0].gain > 3.0


@pytest.mark.parametrize(
    ("is_kept", "queued_fraction", "seconds"),
    [(False, 0.0, 0.2), (True, 0.0, 0.04), (True, 0.5, 0.12), (True, 1.0, 0.2)],
)
def test_idle_connections_are_no_requests_in_php(
    is_kept: bool, queued_fraction: float, seconds: float
) -> None:
    context = case(
        {
            "settings": {"web.nginx.fastcgi_keep_conn": is_kept, "web.nginx.fastcgi_keepalive": 8},
            "reading": {"rate": 200.0, "seconds": 3.0, "intended": 600, "violations": 0},
            "parts": {
                "php_fpm": {
                    "workers": 64,
                    "accepted_connections": 40.0,
                    "queued_fraction": queued_fraction,
                },
                "web.nginx": {"workers": 4},
            },
        }
    )
    assert compute_php_seconds(context) == pytest.approx(seconds)


def test_connections_that_may_all_be_idle_show_no_time_in_php() -> None:
    settings = {"web.nginx.fastcgi_keep_conn": True, "web.nginx.fastcgi_keepalive": 8}
    parts = {"php_fpm": {"accepted_connections": 30.0, "workers": 64}, "web.nginx": {"workers": 4}}
    reading = {"rate": 200.0, "seconds": 3.0, "intended": 600, "violations": 0}
    assert (
        compute_php_seconds(case({"settings": settings, "reading": reading, "parts": parts}))
        is None
    )


WORKERS = named("stock settings")
CPU = named("plenty of children")
LIMITED = named("a generator")
SILENT = named("nothing to be seen")
REFUSED = named("memcached turns")
STORE = named("a store that takes 50 ms")
SWIFT = replace(
    STORE, instances=tuple(replace(p, accepted_connections=0.2) for p in STORE.instances)
)
FINE = {"violations": 0, "errors": {}}


def resource(found: Bottleneck | None) -> str | None:
    return None if found is None else str(found.resource)


@pytest.mark.parametrize(
    ("readings", "verdict"),
    [
        ([], None),
        ([at(WORKERS, 900)], "workers"),
        ([at(CPU, 2000), at(WORKERS, 900)], "workers"),  # one each: the nearer to the peak
        ([at(WORKERS, 900), at(CPU, 1000), at(CPU, 1100)], "cpu"),
        ([at(WORKERS, 900), *(at(CPU, rate) for rate in (5000, 6000))], "cpu"),
        # far above the peak there is only debris: the three nearest decide
        ([at(WORKERS, r) for r in (900, 950)] + [at(CPU, r) for r in (990, 5000, 6000)], "workers"),
        ([at(WORKERS, 900), at(LIMITED, 3000)], "workers"),
        ([at(WORKERS, 500, **FINE), at(LIMITED, 3000)], "generator"),
        # what a server said of itself outweighs what was concluded
        ([at(WORKERS, 900), at(REFUSED, 1000)], "connections"),
        ([at(SILENT, 500)], None),
        ([at(STORE, 300)], "store"),
        # long waits in an overload alone are no slow store
        ([at(SWIFT, 60, **FINE), at(STORE, 300)], None),
        ([at(WORKERS, 500, **FINE)], "workers"),  # none failed: what the highest rate shows
    ],
)
def test_readings_around_the_peak(readings: list[ReadingContext], verdict: str | None) -> None:
    assert resource(select_bottleneck(readings)) == verdict
    assert resource(select_bottleneck(readings[::-1])) == verdict


def test_confidence_is_shared_by_readings_that_disagree() -> None:
    alone, apart = (
        select_bottleneck([at(WORKERS, 900)]),
        select_bottleneck([at(WORKERS, 900), at(SILENT, 950)]),
    )
    assert alone is not None
    assert apart is not None
    assert apart.confidence == pytest.approx(alone.confidence / 2)


def found(service: str, resource: Resource) -> Bottleneck:
    return Bottleneck("web", service, "web1", resource, "said so", 0.9)


def test_moves_name_parameters_of_the_tier_in_full() -> None:
    assert list_recommended_changes(found("memcached", Resource.CACHE)) == (
        "web.memcached.memory+",
    )
    assert list_recommended_changes(found("php_fpm", Resource.WORKERS))[:2] == (
        "web.php_fpm.max_children+",
        "web.php_fpm.pm=static",
    )
    assert "web.limits.nofile+" in list_recommended_changes(found("nginx", Resource.DESCRIPTORS))


@pytest.mark.parametrize("resource", [Resource.GENERATOR, Resource.WRONG_ANSWERS])
def test_what_no_setting_mends_has_none(resource: Resource) -> None:
    assert list_recommended_changes(found("nginx", resource)) == ()
    assert list_recommended_changes(None) == ()


def test_every_move_is_one_of_the_catalogue() -> None:
    known: dict[str, set[str]] = {}
    for service in SHIPPED.services:
        known.setdefault(service.name, set()).update(p.name for p in service.parameters)
    diagnoses = {name: SHIPPED.find_diagnosis(name) for name in known}
    named = [(name, move) for name, diagnosis in diagnoses.items()
             for told in diagnosis.recommended_changes.values() for move in told]  # fmt: skip
    assert len(named) > 20
    for name, move in named:
        assert move.rstrip("+-").partition("=")[0] in known[name], (name, move)
