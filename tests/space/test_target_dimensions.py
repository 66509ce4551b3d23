from __future__ import annotations

import re
from pathlib import Path

import pytest

from autotune.errors import TargetError
from tests.space.targets import space_of

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
