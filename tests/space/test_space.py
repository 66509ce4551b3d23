from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.space.space import SearchSpace
from tests.space.targets import space_of


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


def test_a_program_cannot_change_a_parameter_that_is_not_tuned(tmp_path: Path) -> None:
    name = "lb.nginx.worker_connections"
    space = space_of(
        tmp_path, replaced=("parameters:\n", f"parameters:\n  {name}: {{drop: true}}\n")
    )
    effective = {**space.baseline, name: 999, "lb.nginx.backlog": 1000, "web.php_fpm.pm": "odd"}
    expected = {**space.baseline, "lb.nginx.backlog": 1000}
    assert space.replace_impossible_values(effective, space.baseline) == expected


def test_a_rule_is_shown_with_its_arithmetic(tmp_path: Path) -> None:
    space = space_of(tmp_path, "constraints: [lb.nginx.keepalive_timeout + 10 <= 85]")
    assert space.build_candidate({"lb.nginx.keepalive_timeout": 100}).repairs
    rule = space.constraints[0]
    assert space.format_arithmetic(rule, space.baseline).endswith("75 s + 10 s = 85 s <= 85 s")
