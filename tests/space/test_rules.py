from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import TargetError
from tests.space.targets import GB, ROOMY, fleet

SMALL = replace(ROOMY, memory=8 * GB)


def constraint(rule: str) -> str:
    return f"constraints: ['{rule}']\n"


@pytest.mark.parametrize(
    ("rule", "suggested", "parameter", "given"),
    [
        # Sizes of a tier, by what its services say of themselves.
        ("web.workers * count(web.hosts) <= 100",
         {"web.php_fpm.max_children": 75}, "web.php_fpm.max_children", 50),
        ("web.processes <= 12",
         {"web.php_fpm.max_children": 30}, "web.php_fpm.max_children", 6),
        # A product of two parameters: the one with more room above its lowest value gives way.
        ("lb.nginx.worker_processes * lb.nginx.worker_connections <= 8192",
         {"lb.nginx.worker_processes": 16, "lb.nginx.worker_connections": 4096},
         "lb.nginx.worker_connections", 512),
        # Parameters with a unit count in it: 64 MB are 67108864 bytes.
        ("cache.memcached.memory <= 1% of cache.memory",
         {"cache.memcached.memory": 500}, "cache.memcached.memory", 163),
        # Aggregates over hosts: of facts, and of settings, which the hosts of a tier share.
        ("web.php_fpm.max_children * 100 MB <= 30% of sum(web.memory)",
         {"web.php_fpm.max_children": 200}, "web.php_fpm.max_children", 73),
        ("web.php_fpm.max_children * 100 MB <= 30% of min(web.memory)",
         {"web.php_fpm.max_children": 200}, "web.php_fpm.max_children", 24),
        ("web.php_fpm.max_children * 100 MB <= 30% of web.memory",
         {"web.php_fpm.max_children": 200}, "web.php_fpm.max_children", 24),
        ("web.php_fpm.max_children * 100 MB <= 30% of max(web.memory)",
         {"web.php_fpm.max_children": 200}, "web.php_fpm.max_children", 49),
        ("sum(web.php_fpm.max_children) <= 90",
         {"web.php_fpm.max_children": 200}, "web.php_fpm.max_children", 45),
        ("max(web.php_fpm.max_children) <= 90",
         {"web.php_fpm.max_children": 200}, "web.php_fpm.max_children", 90),
        # Written the other way round, and strictly.
        ("100 > web.php_fpm.max_children",
         {"web.php_fpm.max_children": 200}, "web.php_fpm.max_children", 99),
        # An equation, from above and from below.
        ("web.php_fpm.max_children == 5",
         {"web.php_fpm.max_children": 200}, "web.php_fpm.max_children", 5),
        ("web.php_fpm.max_children == 5",
         {"web.php_fpm.max_children": 2}, "web.php_fpm.max_children", 5),
        # A term with a minus sign.
        ("web.nginx.worker_processes <= -web.php_fpm.max_children + 60",
         {"web.nginx.worker_processes": 16, "web.php_fpm.max_children": 50},
         "web.nginx.worker_processes", 10),
        # A term with a minus sign on the side that should be larger, and a divisor: 8 GB are 8192 MB.
        ("web.memory - web.php_fpm.max_children * 100 MB >= 50% of web.memory",
         {"web.php_fpm.max_children": 200}, "web.php_fpm.max_children", 40),
        ("web.memory / web.php_fpm.max_children >= 100 MB",
         {"web.php_fpm.max_children": 200}, "web.php_fpm.max_children", 81),
        ("64 / web.php_fpm.max_children <= 16",
         {"web.php_fpm.max_children": 2}, "web.php_fpm.max_children", 4),
    ],
)  # fmt: skip
def test_a_rule_is_kept_by_the_nearest_value(
    tmp_path: Path, rule: str, suggested: dict[str, Any], parameter: str, given: int
) -> None:
    space = fleet(tmp_path, constraint(rule), web2=SMALL)
    candidate = space.build_candidate(suggested)
    assert candidate.settings[parameter] == given
    assert [binding.parameter for binding in candidate.repairs] == [parameter]
    assert rule in candidate.repairs[0].rule


def test_where_one_parameter_is_not_enough_the_next_has_its_turn(tmp_path: Path) -> None:
    rule = "lb.nginx.worker_processes * 100 + web.php_fpm.max_children * 100 <= 950"
    space = fleet(tmp_path, constraint(rule))
    suggested = {"lb.nginx.worker_processes": 16, "web.php_fpm.max_children": 200}
    candidate = space.build_candidate(suggested)
    assert candidate.settings["web.php_fpm.max_children"] == 2
    assert candidate.settings["lb.nginx.worker_processes"] == 7
    assert [binding.parameter for binding in candidate.repairs[:2]] == list(reversed(suggested))


def test_where_nothing_can_be_lowered_the_other_side_is_raised(tmp_path: Path) -> None:
    rules = """
constraints: ['500 <= cache.memcached.connections - 2 * web.php_fpm.max_children']
"""
    space = fleet(tmp_path, rules)
    candidate = space.build_candidate(
        {"cache.memcached.connections": 70, "web.php_fpm.max_children": 4}
    )
    assert candidate.settings["cache.memcached.connections"] == 508
    assert candidate.settings["web.php_fpm.max_children"] == 4


def test_the_arithmetic_is_shown_with_its_quantities(tmp_path: Path) -> None:
    space = fleet(tmp_path, constraint("web.php_fpm.max_children * 30 MB <= 70% of web.memory"))
    said = space.format_arithmetic(space.constraints[0], space.preset_settings("published"))
    assert said == (
        "web.php_fpm.max_children * 30 MB <= 70% of web.memory: "
        "75 * 30 MB = 2.2 GB <= 0.7 * 16 GB = 11.2 GB"
    )


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("cache.workers <= 3", "unknown name 'cache.workers'"),
        ("sum(web.memori) > 3", "unknown name 'web.memori'"),
        ("count(wbe.hosts) <= 3", "unknown name 'count(wbe.hosts)'"),
        ("cache.memory(3) <= 3", "unknown function 'cache.memory'"),
        ("__import__(os) <= 3", "unknown function '__import__'"),
        ("cache.memcached.memory <= 6000", "compares a size and a number without a unit"),
    ],
)
def test_what_means_nothing_is_said(tmp_path: Path, rule: str, said: str) -> None:
    with pytest.raises(TargetError, match=re.escape(said)):
        fleet(tmp_path, constraint(rule))


CHILDREN = "web.php_fpm.max_children <= 20"
BOTH = "web.php_fpm.max_children + web.nginx.worker_processes <= 22"


@pytest.mark.parametrize(
    ("rule", "service", "children"),
    [
        (CHILDREN, "nginx+php-fpm", 20),
        (CHILDREN, "apache+php-fpm", 20),
        (BOTH, "nginx+php-fpm", 20),
        (BOTH, "apache+php-fpm", 50),
    ],
)
def test_a_rule_applies_only_while_all_its_services_run(
    tmp_path: Path, rule: str, service: str, children: int
) -> None:
    choice = ("service: nginx+php-fpm", "service: [nginx+php-fpm, apache+php-fpm]")
    space = fleet(tmp_path, constraint(rule), choice)
    suggested = {
        "web.service": service, "web.php_fpm.max_children": 50, "web.nginx.worker_processes": 2
    }  # fmt: skip
    assert space.build_candidate(suggested).settings["web.php_fpm.max_children"] == children
