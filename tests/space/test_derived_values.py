from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.errors import TargetError, UsageError
from autotune.space.dimension import AdoptedValues
from autotune.space.target_space import build_space
from autotune.target.read_target import read_target
from tests.space.targets import FLEET, GB, ROOMY, fleet

CHILDREN = "web.php_fpm.max_children"


def parameters(*rules: str) -> str:
    return "parameters:\n" + "".join(f"  {rule}\n" for rule in rules)


def test_a_value_follows_its_siblings_and_others(tmp_path: Path) -> None:
    rules = (
        "web.php_fpm.max_spare_servers: {derive: max_children}",
        "web.php_fpm.start_servers: {derive: 'min(max_children, 2 * web.nginx.worker_processes)'}",
        # In base units: kilobytes of one follow from megabytes of another.
        "cache.memcached.connections: {derive: 64 + cache.memcached.memory / 1 MB}",
    )
    space = fleet(tmp_path, parameters(*rules))
    settings = space.build_candidate({CHILDREN: 40, "cache.memcached.memory": 100}).settings
    assert settings["web.php_fpm.max_spare_servers"] == 40
    assert settings["web.php_fpm.start_servers"] == 8
    assert settings["cache.memcached.connections"] == 164
    assert space.baseline["web.php_fpm.max_spare_servers"] == 5
    assert space.preset_settings("recommended")["web.php_fpm.max_spare_servers"] == 32
    assert not {"web.php_fpm.max_spare_servers", "cache.memcached.connections"} & {
        d.name for d in space.tunable_dimensions
    }


def test_a_bound_above_a_terabyte_is_kept(tmp_path: Path) -> None:
    rule = parameters("cache.memcached.memory: {derive: connections * 64 KB}")
    space = fleet(tmp_path, rule, mc1=replace(ROOMY, memory=4096 * GB))
    settings = space.build_candidate({"cache.memcached.connections": 2048}).settings
    assert settings["cache.memcached.memory"] == 128


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("{derive: 1024 / lb.nginx.access_log_buffer}", "divides by zero in the baseline"),
        ("{derive: 1024 / 0}", "division by zero in '1024 / 0'"),
        ("{derive: web.php_fpm.pm * 2}", "web.php_fpm.pm is text, and a formula needs numbers"),
        ("{derive: cache.memcached.connections + 1}", "depends on itself"),
    ],
)
def test_what_cannot_be_computed_is_said_in_its_line(tmp_path: Path, rule: str, said: str) -> None:
    with pytest.raises(TargetError, match=re.escape(said)) as caught:
        fleet(tmp_path, parameters(f"cache.memcached.connections: {rule}"))
    assert caught.value.excerpt.startswith("  cache.memcached.connections")


def test_the_product_of_two_stays_within_its_bounds_and_rules(tmp_path: Path) -> None:
    rule = "constraints: [lb.apache.MaxRequestWorkers <= 600]\n"
    space = fleet(tmp_path, rule, ("lb1, service: nginx", "lb1, service: apache"))
    candidate = space.build_candidate(
        {"lb.apache.ServerLimit": 100, "lb.apache.ThreadsPerChild": 50}
    )
    settings = candidate.settings
    product = int(settings["lb.apache.ServerLimit"]) * int(settings["lb.apache.ThreadsPerChild"])
    assert settings["lb.apache.MaxRequestWorkers"] == product <= 600
    assert candidate.repairs[0].rule == (
        "lb.apache.MaxRequestWorkers <= 600: 100 * 50 = 5000 <= 600"
    )
    # One of two factors gives way, and no further than it must.
    assert product > 600 - 50


def test_a_whole_number_stays_whole(tmp_path: Path) -> None:
    """The default of HAProxy's maxconn is an expression. In floating point, 0.29 · 100 is below 29."""
    rules = parameters(
        "lb.haproxy.maxconn: {derive: 16 * web.php_fpm.max_children}",
        "web.php_fpm.max_spare_servers: {derive: 29% of max_children}",
    )
    space = fleet(tmp_path, rules, ("lb1, service: nginx", "lb1, service: haproxy"))
    settings = space.build_candidate({CHILDREN: 100}).settings
    assert settings["web.php_fpm.max_spare_servers"] == 29
    assert str(settings["lb.haproxy.maxconn"]) == "1600"


@pytest.mark.parametrize(
    ("factor", "lowest"),
    [(16, 4), (8, 5)],  # 4 · 16 is the lowest value of the parameter, and 5 · 8 is in the baseline
)
def test_a_formula_stays_above_the_lower_bound(tmp_path: Path, factor: int, lowest: int) -> None:
    rule = f"cache.memcached.connections: {{derive: {factor} * {CHILDREN}}}"
    space = fleet(tmp_path, parameters(rule))
    settings = space.build_candidate({CHILDREN: 2}).settings
    assert settings[CHILDREN] == lowest
    assert settings["cache.memcached.connections"] == factor * lowest


APACHE = ("lb1, service: nginx", "lb1, service: apache")
WORKERS = "lb.apache.MaxRequestWorkers"
PROCESSES = "lb.apache.ServerLimit: {default: 16}"


@pytest.mark.parametrize(
    "more",
    [
        "tune: [web]\n" + parameters(PROCESSES),
        parameters(PROCESSES, "'lb.*': false"),
        parameters(PROCESSES, f"{WORKERS}: false"),
    ],
)
def test_an_excluded_value_keeps_its_computed_baseline(tmp_path: Path, more: str) -> None:
    space = fleet(tmp_path, more, APACHE)
    assert space.baseline[WORKERS] == 16 * 25
    settings = space.build_candidate({"lb.apache.ThreadsPerChild": 10}).settings
    assert settings[WORKERS] == 16 * 25


@pytest.mark.parametrize(
    "more", ["tune: [web]\n", parameters(f"{WORKERS}: {{range: [100, 1000]}}")]
)
def test_a_host_keeps_the_computed_value_in_its_files(tmp_path: Path, more: str) -> None:
    """Adoption reads the two factors in the files, and does not read their product."""
    fleet(tmp_path, more, APACHE)
    adopted = AdoptedValues(
        {"lb.apache.ServerLimit": 16, "lb.apache.ThreadsPerChild": 25}, {WORKERS: "computed"}
    )
    facts = dict.fromkeys(("lb1", "web1", "web2", "mc1", "db1"), ROOMY)
    space = build_space(read_target(tmp_path / "fleet.yaml"), facts, adopted)
    assert space.baseline[WORKERS] == 16 * 25


@pytest.mark.parametrize("rule", ["default: 400", "choices: [200, 400]"])
def test_a_computed_value_takes_no_other_value(tmp_path: Path, rule: str) -> None:
    said = (
        f"{WORKERS} is computed as `ServerLimit * ThreadsPerChild`, so "
        f"`{rule.partition(':')[0]}:` has no effect"
    )
    with pytest.raises(TargetError, match=re.escape(said)) as caught:
        fleet(tmp_path, parameters(f"{WORKERS}: {{{rule}}}"), APACHE)
    assert "set ServerLimit and ThreadsPerChild" in (caught.value.hint or "")


@pytest.mark.parametrize("rule", ["default: 400", "choices: [200, 400]"])
def test_a_study_keeps_a_rule_that_earlier_versions_ignored(tmp_path: Path, rule: str) -> None:
    """Its target cannot change without invalidating its readings."""
    path = tmp_path / "fleet.yaml"
    path.write_text(FLEET.replace(*APACHE) + parameters(f"{WORKERS}: {{{rule}}}"))
    facts = dict.fromkeys(("lb1", "web1", "web2", "mc1", "db1"), ROOMY)
    space = build_space(replace(read_target(path), adopted={}), facts)
    assert space.baseline == fleet(tmp_path, "", APACHE).baseline
    assert WORKERS not in {d.name for d in space.tunable_dimensions}


@pytest.mark.parametrize(("processes", "workers"), [(2, 200), (100, 1000)])
def test_a_range_of_a_computed_value_limits_its_factors(
    tmp_path: Path, processes: int, workers: int
) -> None:
    space = fleet(tmp_path, parameters(PROCESSES, f"{WORKERS}: {{range: [200, 1000]}}"), APACHE)
    assert space.baseline[WORKERS] == 16 * 25
    settings = space.build_candidate({"lb.apache.ServerLimit": processes}).settings
    assert settings[WORKERS] == workers


def test_a_computed_value_cannot_be_varied(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no effect: it is computed as") as caught:
        fleet(tmp_path, "", APACHE).check_effect(WORKERS, f"--over {WORKERS}", [{WORKERS: 400}])
    assert "lb.apache.ServerLimit and lb.apache.ThreadsPerChild" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (["web.php_fpm.max_children: {derive: max_childs}"], "unknown name 'max_childs'"),
        (["web.php_fpm.max_children: {derive: 2 *}"], "expected a value"),
        (["web.php_fpm.pm: {derive: max_children}"], "takes choices: a formula cannot compute it"),
        (["web.php_fpm.max_children: {derive: max_requests, default: 5}"],
         "`default` and `derive` cannot be combined"),
        (["web.php_fpm.max_children: {derive: max_spare_servers}",
          "web.php_fpm.max_spare_servers: {derive: max_children}"], "depends on itself"),
    ],
)  # fmt: skip
def test_what_cannot_be_derived_is_said(tmp_path: Path, rules: list[str], said: str) -> None:
    with pytest.raises(TargetError, match=re.escape(said)):
        fleet(tmp_path, parameters(*rules))
