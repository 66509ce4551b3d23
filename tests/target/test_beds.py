"""Test beds of a target: whose hosts they have, and what `--beds` names."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.errors import AutotuneError, TargetError
from autotune.target.beds import build_bed_target, find_study_directory, needs_bed, select_beds
from autotune.target.model import Target
from autotune.target.read_target import read_target

TARGET = """\
name: shop
slo: {p99: 50ms}
hosts:
  lb: {address: "lb.{bed}.example", user: tune}
  web: {address: 10.0.0.2}
tiers:
  lb: {hosts: lb, service: nginx, forwards_to: web}
  web: {hosts: web, service: nginx+php-fpm}
load: {vip: "{bed}.example"}
"""
BEDS = """\
beds:
  a: {}
  b: {hosts: {web: {address: 10.0.0.3}}}
"""


def target(tmp_path: Path, text: str) -> Target:
    path = tmp_path / "shop.yaml"
    path.write_text(text)
    return read_target(path).target


def test_a_bed_has_hosts_of_its_own(tmp_path: Path) -> None:
    shop = target(tmp_path, TARGET + BEDS)
    assert needs_bed(shop)
    a, b = build_bed_target(shop, "a"), build_bed_target(shop, "b")
    assert [host.address for host in a.hosts.values()] == ["lb.a.example", "10.0.0.2"]
    assert [host.address for host in b.hosts.values()] == ["lb.b.example", "10.0.0.3"]
    assert (b.hosts["lb"].user, b.load.vip, b.beds) == ("tune", "b.example", {})


def test_models_of_beds_do_not_scatter_together(tmp_path: Path) -> None:
    beds = "simulated: {seed: 7}\nbeds: {a: {}, b: {}, c: {simulated: {capacity: 0.8}}}\n"
    shop = target(tmp_path, TARGET + beds)
    models = [build_bed_target(shop, name).simulated for name in shop.beds]
    assert [(m.seed, m.capacity) for m in models if m] == [(7, 1.0), (1007, 1.0), (1, 0.8)]


@pytest.mark.parametrize(
    ("beds", "message"),
    [
        ("beds: {a: {}, b: {}}\n", "host 'web' uses the address 10.0.0.2 of bed 'a'"),
        ("beds: {a: {hosts: {wen: {address: 10.0.0.3}}}}\n", "unknown host 'wen'"),
        ("beds: {a: {simulated: {}}}\n", "`simulated:` of a bed needs `simulated:` in the target"),
        ("", "{bed} in lb.{bed}.example needs `beds:`"),
    ],
)
def test_what_cannot_be_a_bed_is_refused_where_it_stands(
    tmp_path: Path, beds: str, message: str
) -> None:
    with pytest.raises(TargetError) as refused:
        target(tmp_path, TARGET + beds)
    assert message in refused.value.message
    assert "shop.yaml:" in refused.value.message


def test_beds_are_chosen_by_name(tmp_path: Path) -> None:
    shop = target(tmp_path, TARGET + BEDS)
    assert select_beds(shop, "all") == ("a", "b")
    assert select_beds(shop, "b, a,b") == ("b", "a")
    with pytest.raises(AutotuneError, match="has no bed 'c'"):
        select_beds(shop, "a,c")
    with pytest.raises(AutotuneError, match="has no beds"):
        select_beds(build_bed_target(shop, "a"), "all")


def test_what_belongs_to_a_bed_is_part_of_its_study() -> None:
    assert find_study_directory(Path("studies/shop/beds/a")) == Path("studies/shop")
    assert find_study_directory(Path("studies/shop")) == Path("studies/shop")
