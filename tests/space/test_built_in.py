"""The rules that hold for any stack: each can bind, and none is ever broken by a candidate."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.errors import INVALID_TARGET_EXIT_CODE, TargetError
from autotune.services.base import Value
from autotune.space.dimension import AdoptedValues, Dimension
from autotune.space.facts import HostFacts
from autotune.space.space import SearchSpace
from autotune.space.target_space import build_space
from autotune.target.read_target import read_target
from tests.space.targets import GB, ROOMY, fleet

MB = 2**20
PAPER = Path(__file__).parents[2] / "targets" / "paper.yaml"


def sampled(dimension: Dimension, rng: random.Random) -> Value:
    if dimension.choices:
        return rng.choice(dimension.choices)
    assert dimension.low is not None
    assert dimension.high is not None
    # Edges are where rules bind.
    low, high = dimension.low, dimension.high
    if rng.random() < 0.3:
        return rng.choice((low, high))
    return rng.randint(int(low), int(high)) if dimension.is_integer else rng.uniform(low, high)


def test_worst_case_memory_per_host(tmp_path: Path) -> None:
    space = fleet(tmp_path, web2=replace(ROOMY, memory=GB))
    # 80 % of 1 GB, less (4 + 1) × 12 MB of nginx and 128 MB that PHP's processes share, hold 21
    # processes of 30 MB: 20 children, a master.
    candidate = space.build_candidate({"web.php_fpm.max_children": 200})
    assert candidate.settings["web.php_fpm.max_children"] == 20
    assert candidate.repairs[0].rule == (
        "web.occupied <= 80% of memory(web2): 128 MB + 0 B + (200 + 1) * 30 MB + (4 + 1) * 12 MB"
        " = 6.07 GB <= 0.8 * 1 GB = 819 MB"
    )


def test_memory_that_was_measured_counts(tmp_path: Path) -> None:
    space = fleet(tmp_path, web2=replace(ROOMY, memory=GB))
    known = space.with_measured_memory({"web.php_fpm": 60 * MB, "lb.nobody": MB})
    candidate = known.build_candidate({"web.php_fpm.max_children": 200})
    assert candidate.settings["web.php_fpm.max_children"] == 9
    assert "(200 + 1) * 60 MB" in candidate.repairs[0].rule


def test_tiers_on_one_host_share_its_memory(tmp_path: Path) -> None:
    elsewhere = ("hosts: [web1, web2]", "hosts: mc1")
    space = fleet(tmp_path, "", elsewhere, mc1=replace(ROOMY, memory=GB))
    rule = next(rule for rule in space.constraints if "memory(mc1)" in rule.text)
    assert rule.text == "web.occupied + cache.occupied <= 80% of memory(mc1)"


@pytest.mark.parametrize(
    ("suggested", "parameter", "given", "rule"),
    [
        # 2 web hosts: 64 connections are 32 children on each.
        ({"web.php_fpm.max_children": 75, "cache.memcached.connections": 64},
         "web.php_fpm.max_children", 32,
         "web.workers * count(web.hosts) <= cache.connections: 75 * 2 = 150 <= 64"),
        ({"web.php_fpm.max_children": 200, "store.redis.maxclients": 128},
         "web.php_fpm.max_children", 64,
         "web.workers * count(web.hosts) <= store.connections: 200 * 2 = 400 <= 128"),
        ({"lb.nginx.worker_connections": 8000}, "lb.nginx.worker_connections", 5000,
         "lb.nginx.worker_connections * 2 <= nofile(lb): 8000 * 2 = 16000 <= 10000"),
    ],
)  # fmt: skip
def test_connections_and_descriptors(
    tmp_path: Path, suggested: dict[str, Value], parameter: str, given: int, rule: str
) -> None:
    # The range is the user's own: the catalogue's would stay below the descriptors by itself.
    more = "parameters: {lb.nginx.worker_connections: {range: [64, 8192]}}\n"
    space = fleet(tmp_path, more, lb1=replace(ROOMY, nofile=10_000))
    candidate = space.build_candidate(suggested)
    assert candidate.settings[parameter] == given
    assert candidate.repairs[0].rule == rule


def test_several_users_of_one_cache_share_its_connections(tmp_path: Path) -> None:
    tier = "  api: {hosts: lb1, service: nginx+php-fpm, app: reference, uses: [cache, store]}\n"
    space = fleet(tmp_path, "", ("  cache: {", f"{tier}  cache: {{"))
    texts = [rule.text for rule in space.constraints]
    assert (
        "web.workers * count(web.hosts) + api.workers * count(api.hosts) <= cache.connections"
        in texts
    )


def test_where_the_baseline_exceeds_a_host_no_candidate_uses_more(tmp_path: Path) -> None:
    space = fleet(tmp_path, mc1=replace(ROOMY, memory=64 * MB))
    assert space.baseline["cache.memcached.memory"] == 64
    (line,) = (line for line in space.excluded if ".sysctl: " not in line)
    assert "the baseline itself breaks a rule" in line
    assert "<= 0.8 * 64 MB = 51.2 MB, or " in line
    assert space.build_candidate({}).repairs == ()
    (of_cache,) = (m for m in space.compute_memory_use(space.baseline) if m.host == "mc1")
    assert of_cache.of_baseline
    assert of_cache.allowed == of_cache.needed
    rng = random.Random(7)
    for _ in range(200):
        candidate = space.build_candidate(
            {d.name: sampled(d, rng) for d in space.tunable_dimensions}
        )
        (used,) = (m for m in space.compute_memory_use(candidate.settings) if m.host == "mc1")
        assert used.needed <= of_cache.needed * (1 + 1e-9)


MOD_PHP = """\
name: shop
slo: {p99: 500ms, errors: 0.1%}
hosts: {web1: {address: 10.0.0.1}}
tiers: {web: {hosts: web1, service: apache+mod_php}}
load: {path: /}
"""
# Of a site with few workers, and Debian's numbers of spare ones.
FEW_WORKERS: dict[str, Value] = {
    "web.apache.MaxRequestWorkers": 5,
    "web.apache.StartServers": 5,
    "web.apache.MinSpareServers": 5,
    "web.apache.MaxSpareServers": 10,
}


def test_an_order_that_the_running_software_accepts_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(MOD_PHP)
    space = build_space(read_target(path), {"web1": ROOMY}, AdoptedValues(FEW_WORKERS))
    assert space.build_candidate({}).repairs == ()
    assert [line for line in space.excluded if "MaxSpareServers <= " in line]
    # Candidates may break the order as far as the baseline does, and no further.
    kept = space.build_candidate({"web.apache.MaxSpareServers": 10}).settings
    assert kept["web.apache.MaxSpareServers"] == 10
    more = space.build_candidate({"web.apache.MaxSpareServers": 40}).settings
    assert more["web.apache.MaxSpareServers"] - more["web.apache.MaxRequestWorkers"] <= 5


def test_an_order_that_a_target_breaks_is_a_mistake(tmp_path: Path) -> None:
    path, names = tmp_path / "shop.yaml", FEW_WORKERS
    defaults = "".join(f"  {name}: {{default: {value}}}\n" for name, value in names.items())
    path.write_text(f"{MOD_PHP}replace: true\nparameters:\n{defaults}")
    with pytest.raises(TargetError, match="the baseline itself breaks a constraint"):
        build_space(read_target(path), {"web1": ROOMY})


def test_processes_that_prove_larger_are_larger_in_the_baseline_too(tmp_path: Path) -> None:
    more = "parameters: {web.php_fpm.max_children: {default: 40}}\n"
    space = fleet(tmp_path, more, web2=replace(ROOMY, memory=2 * GB)).with_measured_memory(
        {"web.php_fpm": 90 * MB}
    )
    assert space.build_candidate({}).settings["web.php_fpm.max_children"] == 40
    assert (
        space.build_candidate({"web.php_fpm.max_children": 200}).settings[
            "web.php_fpm.max_children"
        ]
        == 40
    )


def test_descriptors_and_connections_are_no_worse_than_the_baselines(tmp_path: Path) -> None:
    more = """
parameters: {web.php_fpm.max_children: {default: 60}, cache.memcached.connections: {default: 64}}
"""
    space = fleet(tmp_path, more, lb1=replace(ROOMY, nofile=100))
    candidate = space.build_candidate(
        {"lb.nginx.worker_connections": 4096, "web.php_fpm.max_children": 200}
    ).settings
    baseline = space.baseline
    assert candidate["lb.nginx.worker_connections"] == baseline["lb.nginx.worker_connections"]
    assert candidate["web.php_fpm.max_children"] == 60


@pytest.mark.parametrize(
    ("rule", "figures"),
    [
        ("cache.memcached.memory: {fixed: 4TB}",
         "mc1 needs 4.4 TB of memory for this value, but has only 8 GB"),
        ("cache.memcached.memory: {range: [16GB, 64GB], default: 16GB}",
         "mc1 needs 17.6 GB of memory for this value, but has only 8 GB"),
        ("cache.memcached.memory: {range: [64MB, 64GB], default: 32GB}",
         "mc1 needs 35.2 GB of memory for this value, but has only 8 GB"),
        ("web.php_fpm.max_children: {fixed: 300}",
         "web2 needs 8.85 GB of memory for this value, but has only 4 GB"),
        ("cache.memcached.memory: {fixed: 5GB}, cache.memcached.connections: {fixed: 1000000}",
         "mc1 needs 9.32 GB of memory for this value, but has only 8 GB"),
    ],
)  # fmt: skip
def test_a_value_beyond_the_memory_of_a_host_is_refused(
    tmp_path: Path, rule: str, figures: str
) -> None:
    small, four = replace(ROOMY, memory=8 * GB), replace(ROOMY, memory=4 * GB)
    with pytest.raises(TargetError, match=re.escape(figures)) as refused:
        fleet(tmp_path, f"parameters: {{{rule}}}\n", mc1=small, web2=four)
    assert "fleet.yaml:1" in refused.value.message
    assert refused.value.exit_code == INVALID_TARGET_EXIT_CODE


def test_a_range_ends_at_what_the_smallest_host_holds(tmp_path: Path) -> None:
    """The rule itself limits the baseline: what is tried stays within it, and so does the range."""
    more = "parameters: {cache.memcached.memory: {range: [64MB, 64GB]}}\n"
    space = fleet(tmp_path, more, mc1=replace(ROOMY, memory=2 * GB))
    memory = next(d for d in space.dimensions if d.name == "cache.memcached.memory")
    assert memory.low == 64
    assert memory.high == 1484
    assert "cache.memcached.memory: the range ends at 1484 MB instead of 65536, " in "\n".join(
        space.excluded
    )
    assert space.build_candidate({memory.name: 23_170}).settings[memory.name] <= 1484


def tight(directory: Path) -> SearchSpace:
    """A fleet on which every rule binds now and then."""
    more = """
parameters: {lb.nginx.worker_connections: {range: [64, 8192]}}
constraints:
  - lb.nginx.worker_processes * lb.nginx.worker_connections <= 20000
"""
    small = replace(ROOMY, memory=4 * GB, nofile=8_000)
    return fleet(directory, more, lb1=small, web1=small, web2=small, mc1=small)


@pytest.mark.long
def test_no_candidate_of_a_thousand_breaks_a_rule_and_each_rule_binds(tmp_path: Path) -> None:
    space = tight(tmp_path)
    rng = random.Random(5)
    bound: set[str] = set()
    for _ in range(1000):
        candidate = space.build_candidate(
            {d.name: sampled(d, rng) for d in space.tunable_dimensions}
        )
        for rule in space.constraints:
            assert space.is_kept(rule, candidate.settings), rule.text
        for dimension in space.dimensions:
            value = candidate.settings[dimension.name]
            assert dimension.clip(value) == value
        bound |= {binding.rule.partition(":")[0] for binding in candidate.repairs}
    assert "web.workers * count(web.hosts) <= cache.connections" in bound
    assert "lb.nginx.worker_connections * 2 <= nofile(lb)" in bound
    assert {"web.occupied <= 80% of memory(web1)", "web.occupied <= 80% of memory(web2)"} & bound
    assert "lb.nginx.worker_processes * lb.nginx.worker_connections <= 20000" in bound


def test_a_repair_changes_nothing_that_keeps_every_rule(tmp_path: Path) -> None:
    space = tight(tmp_path)
    rng = random.Random(6)
    for _ in range(200):
        once = space.build_candidate({d.name: sampled(d, rng) for d in space.tunable_dimensions})
        again = space.build_candidate(once.settings)
        assert again.settings == once.settings
        assert again.repairs == ()


def test_the_memory_rule_holds_in_each_deployment_that_shares_a_service() -> None:
    file = read_target(PAPER)
    facts = HostFacts(cpus=4, memory=32 * GB, nofile=65_536)
    space = build_space(file, dict.fromkeys(file.target.hosts, facts))
    assert len(space.deployments) == 4
    for chosen in space.deployments:  # both web deployments run PHP, with the same php.ini
        settings = space.build_candidate(space.preset_settings("recommended", chosen)).settings
        hosts = {use.host for use in space.compute_memory_use(settings)}
        assert hosts == set(file.target.hosts), chosen
