"""What readings that met the SLO tell of each part's capacity."""

from __future__ import annotations

from dataclasses import replace
from math import exp
from pathlib import Path
from typing import Any

import pytest

from autotune.diagnose.capacities import (
    MIN_USED_SHARE,
    ResourceUsage,
    build_cpu_usages,
    list_resource_usages,
    pool_capacities,
)
from autotune.diagnose.context import ReadingContext
from autotune.environments.preparation import prepare
from autotune.environments.simulated import ModelMeter, SimulatedEnvironment
from autotune.measure.reading import Reading
from autotune.monitor.activity import HostActivity
from autotune.services.base import Role
from autotune.services.diagnosis import InstanceActivity
from autotune.simulate.stack import SimulatedStack
from autotune.simulate.topology import ChainTopology
from autotune.target.read_target import read_target
from autotune.target.slo import Slo

REPOSITORY = Path(__file__).parents[2]

CALLS = {"web": ("cache", "store"), "lb": ("cache", "store", "web")}
SETTINGS = {"web.php_fpm.max_children": 20, "cache.memcached.threads": 2}


def context(rate: float, *, late: int = 0, **changes: Any) -> ReadingContext:
    """A reading in which 4 of 20 children were busy at 100/s, the hosts' CPUs half."""
    count = round(rate * 10)
    load = rate / 100
    reading = Reading(
        rate=rate, seconds=10.0, intended=count, violations=late, errors={}, **changes
    )
    hosts = {
        "web1": HostActivity("web1", 2.0, cpu={"idle": 1 - 0.5 * load}),
        "web2": HostActivity("web2", 2.0, cpu={"idle": 1 - 0.4 * load}),
        "cache1": HostActivity("cache1", 1.0, cpu={"idle": 1 - 0.1 * load}),
    }
    parts = (
        InstanceActivity("web.web1.php_fpm", "web", "web1", "php_fpm", Role.APP, runs_application=True,
                     workers=8, accepted_connections=4.0 * load),
        InstanceActivity("web.web2.php_fpm", "web", "web2", "php_fpm", Role.APP, runs_application=True,
                     workers=8, accepted_connections=2.0 * load),
        InstanceActivity("cache.cache1.memcached", "cache", "cache1", "memcached", Role.CACHE,
                     cpu=0.1 * load),
    )  # fmt: skip
    return ReadingContext(reading, Slo(), SETTINGS, hosts, parts)


@pytest.mark.parametrize("rate", [50.0, 100.0, 150.0])
def test_each_part_says_what_it_carries_at_any_rate(rate: float) -> None:
    told = pool_capacities(list_resource_usages([context(rate)], CALLS))
    assert {name: round(exp(part.log)) for name, part in told.items()} == {
        "web.cpu": 200,  # of its two hosts the busier one
        "cache.cpu": 1000,
        "web.php_fpm.workers": 500,
        "cache.memcached.threads": 2000,
    }
    assert told["web.php_fpm.workers"].tiers == ("web", "cache", "store")
    assert told["web.cpu"].tiers == ("web",)


def test_what_is_hardly_used_is_known_less_well() -> None:
    told = pool_capacities(list_resource_usages([context(100.0)], CALLS))
    assert told["cache.cpu"].sd > 2 * told["web.cpu"].sd
    assert "store.cpu" not in pool_capacities(
        [ResourceUsage("store.cpu", ("store",), 9.0, MIN_USED_SHARE / 2, 0.1)]
    )


def test_what_others_use_of_a_host_is_no_demand_of_requests() -> None:
    quiet = context(100.0)
    crowded = HostActivity("cache1", 1.0, cpu={"idle": 0.0})
    loud = replace(quiet, hosts={**quiet.hosts, "cache1": crowded})
    told = pool_capacities(list_resource_usages([loud], CALLS))
    assert exp(told["cache.cpu"].log) == pytest.approx(1000.0)


def test_readings_that_broke_the_slo_say_nothing() -> None:
    assert not list_resource_usages(
        [context(100.0, late=900), context(100.0, limited="the generator")], CALLS
    )


def test_several_readings_tell_more_than_one() -> None:
    one, three = (
        pool_capacities(list_resource_usages([context(100.0)] * n, CALLS)) for n in (1, 3)
    )
    assert three["web.cpu"].sd < one["web.cpu"].sd
    assert three["web.cpu"].log == pytest.approx(one["web.cpu"].log)


def test_tiers_that_share_a_host_share_its_cpus() -> None:
    (use,) = build_cpu_usages(100.0, {"here": 0.5}, {"here": ("web", "lb", "cache")})
    assert (use.instance_name, use.tiers) == ("cache+lb+web.cpu", ("cache", "lb", "web"))


def test_a_tier_asks_those_behind_the_tiers_that_it_asks() -> None:
    environment = prepare(read_target(REPOSITORY / "targets" / "paper.yaml"))
    assert isinstance(environment, SimulatedEnvironment)
    assert environment.stack.forwards_to == {"lb": "web"}
    assert environment.stack.called_tiers == {
        "lb": ("cache", "store", "web"), "web": ("cache", "store"), "cache": (), "store": (),
    }  # fmt: skip


def test_a_modelled_stack_tells_the_capacities_of_its_hosts() -> None:
    stack = SimulatedStack(ChainTopology(), Slo())
    stack.deploy({})
    meter = ModelMeter(stack)
    carried = [meter.take_reading(rate, 5.0, ramp_seconds=1.0) for rate in (40.0, 80.0)]
    told = meter.estimate_capacities({}, carried)
    assert "web.cpu" in told
    for name, part in told.items():
        busy = carried[1].hosts[f"{name.partition('.')[0]}1"].cpu
        assert exp(part.log) == pytest.approx(80.0 / busy, rel=0.2)
