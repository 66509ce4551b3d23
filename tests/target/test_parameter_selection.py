"""Patterns that select parameters: `tune: [web.php_fpm]`, and names with `*` in `parameters:`."""

from __future__ import annotations

from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from autotune.errors import TargetError
from autotune.target.model import Target
from autotune.target.parameter_selection import (
    is_excluded,
    list_unmatched_patterns,
    matches_pattern,
)
from autotune.target.read_target import read_target
from autotune.target.schema import build_schema
from autotune.target.write_target import dump_yaml

STACK = """\
name: shop
slo: {p99: 50ms}
hosts: {lb1: {address: 198.18.0.1}, web1: {address: 198.18.0.2}}
tiers:
  lb: {hosts: lb1, service: haproxy, forwards_to: web}
  web: {hosts: web1, service: nginx+php-fpm}
"""
NAMES = ("lb.haproxy.maxconn", "web.nginx.backlog", "web.php_fpm.pm", "web.php_fpm.max_children")


def read(tmp_path: Path, more: str) -> Target:
    path = tmp_path / "shop.yaml"
    path.write_text(STACK + more)
    return read_target(path).target


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("web", NAMES[1:]),
        ("web.php_fpm", NAMES[2:]),
        ("web.php_fpm.pm", ("web.php_fpm.pm",)),
        ("web.php", ()),
        ("*.max*", ("lb.haproxy.maxconn", "web.php_fpm.max_children")),
        ("w*.nginx.*", ("web.nginx.backlog",)),
    ],
)
def test_a_pattern_is_a_tier_a_service_a_name_or_has_wildcards(
    pattern: str, matches: tuple[str, ...]
) -> None:
    assert tuple(name for name in NAMES if matches_pattern(name, pattern)) == matches


@pytest.mark.parametrize(
    ("more", "tuned"),
    [
        ("", NAMES),
        ("tune: all\n", NAMES),
        ("tune: [web.php_fpm]\n", NAMES[2:]),
        ("tune: [lb, '*.pm']\n", ("lb.haproxy.maxconn", "web.php_fpm.pm")),
        ('parameters: {"web.*": false}\n', NAMES[:1]),
        ('parameters: {"web.*": {drop: true}}\n', NAMES[:1]),
        # A rule with values of its own overrides patterns; a default does not.
        ('parameters: {"*": false, web.php_fpm.pm: {choices: [static, dynamic]}}\n', NAMES[2:3]),
        ('parameters: {"*": false, web.php_fpm.pm: {default: static}}\n', ()),
        ("tune: [lb]\nparameters: {web.nginx.backlog: {range: [64, 512]}}\n", NAMES[:2]),
    ],
)
def test_patterns_exclude_parameters(tmp_path: Path, more: str, tuned: tuple[str, ...]) -> None:
    target = read(tmp_path, more)
    assert tuple(name for name in NAMES if not is_excluded(target, name)) == tuned


def test_patterns_without_a_match_have_a_place(tmp_path: Path) -> None:
    target = read(tmp_path, 'tune: [web, wbe]\nparameters: {"lb2.*": false, "lb.*": false}\n')
    assert list_unmatched_patterns(target, NAMES) == [
        (("parameters", "lb2.*"), "lb2.*"), (("tune", 1), "wbe")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("tune: some\n", "tune: must be `core`, `all` or a list, not 'some'"),
        ("tune: []\n", "tune: must not be empty; write `core` for the usual parameters"),
        ("tune: web.nginx\n", "tune: must be `core`, `all` or a list, not 'web.nginx'"),
        ("tune: 5\n", "tune: must be `core`, `all` or a list"),
        ('parameters: {"lb.*": {fixed: 5}}\n', "'lb.*' is a pattern, which can only exclude"),
        ("parameters: {lb.haproxy.maxconn: true}\n", "must be a mapping, not true"),
    ],
)
def test_bad_selections_are_refused_at_their_line(tmp_path: Path, more: str, message: str) -> None:
    with pytest.raises(TargetError) as refused:
        read(tmp_path, more)
    assert message in refused.value.message
    assert "shop.yaml:7:" in refused.value.message


@pytest.mark.parametrize(
    ("more", "hint"),
    [
        ('"web.*": {range: [1, 9]}',
         "give each parameter its own rule, such as `web.SERVICE.PARAMETER: {range: [1, 9]}`"),
        ('"web.*": {range: [1, 9]}, web.nginx.backlog: {fixed: 5}',
         "change the existing rule to `web.nginx.backlog: {range: [1, 9]}`"),
        ('web.nginx.backlog: false, "*.backlog": {fixed: 5}',
         "change the existing rule to `web.nginx.backlog: {fixed: 5}`"),
    ],
)  # fmt: skip
def test_a_suggested_rule_is_no_duplicate_key(tmp_path: Path, more: str, hint: str) -> None:
    with pytest.raises(TargetError) as refused:
        read(tmp_path, f"parameters: {{{more}}}\n")
    assert str(refused.value.hint).startswith(hint)


@pytest.mark.parametrize("more", ["tune: [web.php_fpm]\n", 'parameters: {"lb.*": false}\n'])
def test_the_schema_allows_it_and_a_study_keeps_it(tmp_path: Path, more: str) -> None:
    Draft202012Validator(build_schema()).validate(YAML(typ="safe").load(STACK + more))
    target = read(tmp_path, more)
    path = tmp_path / "again.yaml"
    path.write_text(dump_yaml(target))
    assert read_target(path).target == target
