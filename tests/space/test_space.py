from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import TargetError
from autotune.services.registry import SHIPPED
from autotune.space.facts import HostFacts
from autotune.space.space import SearchSpace, build_space, build_tier_dimensions
from autotune.target.model import Tier
from autotune.target.read_target import read_target

LOCAL = (Path(__file__).parents[2] / "targets" / "local.yaml").read_text()
FACTS = {"here": HostFacts(cpus=2, memory=4 * 2**30, nofile=20_000)}


def space_of(tmp: Path, more: str = "", replaced: tuple[str, str] = ("", "")) -> SearchSpace:
    path = tmp / "target.yaml"
    path.write_text(LOCAL.replace(*replaced) + more)
    return build_space(read_target(path), FACTS)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> SearchSpace:
    rules = """
constraints:
  - web.php_fpm.max_children * 30 MB <= 70% of web.memory
  - web.nginx.worker_processes * web.nginx.worker_connections <= 8192
  - web.php_fpm.max_children * count(web.hosts) <= cache.memcached.connections
"""
    return space_of(tmp_path_factory.mktemp("space"), rules)


def suggestions(space: SearchSpace) -> st.SearchStrategy[dict[str, Any]]:
    def values(dimension: Any) -> st.SearchStrategy[Any]:
        if dimension.choices:
            return st.sampled_from(dimension.choices)
        if dimension.is_integer:
            return st.integers(dimension.low, dimension.high)
        return st.floats(dimension.low, dimension.high)

    return st.fixed_dictionaries({d.name: values(d) for d in space.tunable_dimensions})


@pytest.mark.long
@settings(max_examples=300)
@given(data=st.data())
def test_every_candidate_keeps_every_rule_and_every_bound(local: SearchSpace, data: Any) -> None:
    suggested = data.draw(suggestions(local))
    candidate = local.build_candidate(suggested)
    names = {
        **local.facts,
        **{n: v for n, v in candidate.settings.items() if not isinstance(v, str)},
    }
    assert all(rule.is_kept(names) for rule in local.constraints)
    for dimension in local.dimensions:
        value = candidate.settings[dimension.name]
        assert dimension.clip(value) == value
    changed = {name for name, value in suggested.items() if candidate.settings[name] != value}
    assert changed == {binding.parameter for binding in candidate.repairs}


def test_a_repair_lowers_no_more_than_it_must(local: SearchSpace) -> None:
    candidate = local.build_candidate({"web.php_fpm.max_children": 200})
    # 70 % of 4 GiB hold 95 children of 30 MB, and not 96.
    assert candidate.settings["web.php_fpm.max_children"] == 95
    assert "30 MB" in candidate.repairs[0].rule
    assert candidate.repairs[0].requested == 200


def test_the_baseline_is_stock_and_needs_no_repair(local: SearchSpace) -> None:
    candidate = local.build_candidate({})
    assert candidate.repairs == ()
    assert candidate.settings["web.php_fpm.max_children"] == 5
    assert candidate.settings["lb.nginx.worker_processes"] == 2  # auto: one per CPU
    assert candidate.settings["cache.memcached.memory"] == 7


def test_presets_stay_inside_the_bounds(local: SearchSpace) -> None:
    for preset in ("recommended", "published"):
        for dimension in local.dimensions:
            value = local.preset_settings(preset)[dimension.name]
            assert dimension.clip(value) == value


def test_inactive_parameters_are_known(local: SearchSpace) -> None:
    static = local.active_parameters({**local.baseline, "web.php_fpm.pm": "static"})
    assert "web.php_fpm.max_spare_servers" not in static
    assert "web.php_fpm.max_spare_servers" in local.active_parameters(local.baseline)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("constraints: [web.php_fpm.max_childs <= 3]", "unknown name 'web.php_fpm.max_childs'"),
        ("constraints: ['web.php_fpm.max_children <=']", "expected a value"),
        ("constraints: [web.php_fpm.max_children <= 3]", "the baseline itself breaks"),
        ("constraints: [web.php_fpm.max_children <= 1]", "no values can satisfy"),
    ],
)
def test_bad_constraints_point_at_their_line(tmp_path: Path, more: str, said: str) -> None:
    with pytest.raises(TargetError) as caught:
        space_of(tmp_path, more)
    assert said in caught.value.message
    assert f"target.yaml:{LOCAL.count(chr(10)) + 1}:" in caught.value.message


def test_a_constraint_that_starts_like_the_broken_one_is_not_reported(tmp_path: Path) -> None:
    text = "web.php_fpm.max_children <= 10"
    with pytest.raises(TargetError) as caught:
        space_of(tmp_path, f"constraints:\n- {text}\n- {text} - 7\n")
    assert f"target.yaml:{LOCAL.count(chr(10)) + 3}:" in caught.value.message


MEMORY = "cache.memcached.memory: {range: [5MB, 7MB], default: 7MB}"


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("cache.memcached.memori: {fixed: 8MB}", "unknown parameter 'cache.memcached.memori'"),
        ("cache.memcached.memory: {range: [5MB, 6MB], default: 7MB}", "is outside"),
        ("cache.memcached.memory: {range: [7MB, 7MB], default: 7MB}", "is empty"),
        ("cache.memcached.memory: {range: [6s, 8s]}", "counted in MB"),
        ("cache.memcached.threads: {range: [8, 16]}", "the default 4 is outside [8, 16]"),
        ("cache.memcached.threads: {fixed: many}", "'many' is not a number"),
        ("cache.memcached.threads: {fixed: 1.5}", "1.5 is not a whole number"),
        # False == 0 in Python, not in a configuration.
        ("lb.nginx.access_log_buffer: {fixed: false}", "cannot be false"),
        ("lb.nginx.multi_accept: {fixed: 1}", "cannot be 1"),
        ("lb.nginx.multi_accept: {fixed: maybe}", "cannot be 'maybe'"),
        ("lb.nginx.multi_accept: {fixed: 1}", "lb.nginx.multi_accept cannot be 1"),
        ("lb.nginx.worker_connections: {choices: [512, true]}", "true is not a number"),
        ("cache.memcached.threads: {fixed: 1e300}", "is not a usable number"),
        ("lb.nginx.multi_accept: {range: [1, 2]}", "takes choices, not a range"),
        ("web.php_fpm.max_children: {fixed: -1}", "-1 is below 0"),
        ("web.php_fpm.max_children: {fixed: 0}", "no values can satisfy"),
    ],
)
def test_bad_rules_are_said(tmp_path: Path, rule: str, said: str) -> None:
    with pytest.raises(TargetError) as caught:
        space_of(tmp_path, replaced=(MEMORY, rule))
    assert said in caught.value.message


def test_fixed_and_dropped_parameters_are_not_searched(tmp_path: Path) -> None:
    rules = "lb.nginx.backlog: {fixed: 1024}\n  web.php_fpm.pm: {drop: true}"
    space = space_of(tmp_path, replaced=(MEMORY, rules))
    tunable = {dimension.name for dimension in space.tunable_dimensions}
    assert not tunable & {"lb.nginx.backlog", "web.php_fpm.pm"}
    assert space.baseline["lb.nginx.backlog"] == 1024
    assert space.baseline["web.php_fpm.pm"] == "dynamic"


def test_a_program_cannot_change_a_parameter_that_is_not_tuned(tmp_path: Path) -> None:
    name = "lb.nginx.worker_connections"
    space = space_of(
        tmp_path, replaced=("parameters:\n", f"parameters:\n  {name}: {{drop: true}}\n")
    )
    effective = {**space.baseline, name: 999, "lb.nginx.backlog": 1000, "web.php_fpm.pm": "odd"}
    expected = {**space.baseline, "lb.nginx.backlog": 1000}
    assert space.replace_impossible_values(effective, space.baseline) == expected


def test_a_list_under_tune_limits_the_search(tmp_path: Path) -> None:
    space = space_of(tmp_path, "tune: [web.php_fpm]")
    tunable = [dimension.name for dimension in space.tunable_dimensions]
    assert len(tunable) > 3
    assert all(name.startswith(("web.php_fpm.", "cache.memcached.memory")) for name in tunable)
    assert space.baseline == space_of(tmp_path).baseline


def test_a_pattern_excludes_parameters(tmp_path: Path) -> None:
    tunable = {d.name for d in space_of(tmp_path).tunable_dimensions}
    remaining = {
        d.name for d in space_of(tmp_path, replaced=(MEMORY, '"lb.*": false')).tunable_dimensions
    }
    assert remaining == {name for name in tunable if not name.startswith("lb.")}
    assert remaining < tunable


@pytest.mark.parametrize(
    ("more", "replaced", "name"),
    [("tune: [web.php]", None, "web.php"), ("", (MEMORY, '"lbx.*": false'), "lbx.*")],
)
def test_a_pattern_without_a_match_is_an_error(
    tmp_path: Path, more: str, replaced: tuple[str, str] | None, name: str
) -> None:
    with pytest.raises(TargetError, match=re.escape(f"unknown parameter {name!r}")):
        space_of(tmp_path, more, **({"replaced": replaced} if replaced else {}))


def test_a_rule_is_shown_with_its_arithmetic(tmp_path: Path) -> None:
    space = space_of(tmp_path, "constraints: [lb.nginx.keepalive_timeout + 10 <= 85]")
    assert space.build_candidate({"lb.nginx.keepalive_timeout": 100}).repairs
    rule = space.constraints[0]
    assert space.format_arithmetic(rule, space.baseline).endswith("75 s + 10 s = 85 s <= 85 s")


@pytest.mark.parametrize("megabytes", [61.7, 301.3, 475.9])
def test_whole_numbers_stay_whole_on_small_hosts(megabytes: float) -> None:
    facts = HostFacts(cpus=3, memory=int(megabytes * 2**20))
    for deployment in SHIPPED.deployments:
        tier = Tier(hosts=("a",), service=(deployment,))
        for dimension in build_tier_dimensions("x", tier, facts):
            parameter = dimension.parameter
            if type(parameter.low) is type(parameter.stock) is int:
                assert dimension.is_integer, dimension.name
                assert isinstance(dimension.baseline, int)
