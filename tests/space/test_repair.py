"""Repairs that keep the values that a diagnosis asks for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from autotune.space.space import SearchSpace
from autotune.space.target_space import build_space
from autotune.target.read_target import read_target
from tests.space.targets import GB, ROOMY

SHOP = """
name: shop
slo: {p99: 500ms, errors: 0.1%}
hosts:
  web1: {address: 198.18.0.2}
  db1: {address: 198.18.0.5}
tiers:
  web: {hosts: web1, service: nginx+php-fpm, uses: db}
  db: {hosts: db1, service: postgresql}
load: {path: /}
"""
CHILDREN, CONNECTIONS = "web.php_fpm.max_children", "db.postgresql.max_connections"
WORK_MEM, BUFFERS = "db.postgresql.work_mem", "db.postgresql.shared_buffers"


def shop(directory: Path) -> SearchSpace:
    path = directory / "shop.yaml"
    path.write_text(SHOP)
    return build_space(read_target(path), {"web1": ROOMY, "db1": replace(ROOMY, memory=GB)})


def test_for_a_move_unused_connections_are_given_up_before_memory(tmp_path: Path) -> None:
    """100 connections with 16 MB each do not fit into 1 GB, but 8 children need 11 connections."""
    space = shop(tmp_path)
    suggested = {CHILDREN: 8, CONNECTIONS: 100, WORK_MEM: 16_384, BUFFERS: 128}
    candidate = space.build_candidate(suggested, {WORK_MEM})
    assert candidate.settings[WORK_MEM] == 16_384
    assert candidate.settings[BUFFERS] == 128
    assert 22 <= int(candidate.settings[CONNECTIONS]) < 100
    assert all(space.is_kept(rule, candidate.settings) for rule in space.constraints)
    without_move = space.build_candidate(suggested)
    assert without_move.settings[WORK_MEM] != 16_384


def test_connections_stay_at_twice_the_demand(tmp_path: Path) -> None:
    space = shop(tmp_path)
    suggested = {CHILDREN: 40, CONNECTIONS: 100, WORK_MEM: 65_536, BUFFERS: 128}
    candidate = space.build_candidate(suggested, {WORK_MEM})
    assert candidate.settings[CONNECTIONS] == 86
    assert int(candidate.settings[WORK_MEM]) < 65_536
    assert candidate.settings[CHILDREN] == 40
    assert all(space.is_kept(rule, candidate.settings) for rule in space.constraints)


def test_connections_that_the_move_raised_are_kept(tmp_path: Path) -> None:
    space = shop(tmp_path)
    suggested = {CHILDREN: 8, CONNECTIONS: 150, WORK_MEM: 16_384, BUFFERS: 128}
    candidate = space.build_candidate(suggested, {CONNECTIONS})
    assert candidate.settings == space.build_candidate(suggested).settings
