"""Special values, such as -1 for automatic, enter rules as the values that the software uses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.services.base import Value
from autotune.space.dimension import AdoptedValues
from autotune.space.space import SearchSpace
from autotune.space.target_space import build_space
from autotune.target.read_target import read_target
from tests.space.targets import GB, ROOMY

MB, KB = 2**20, 2**10
SHOP = """\
name: shop
slo: {p99: 500ms, errors: 0.1%}
hosts: {lb1: {address: 198.18.0.1}, web1: {address: 198.18.0.2}, db1: {address: 198.18.0.3}}
tiers:
  lb: {hosts: lb1, service: haproxy, forwards_to: web}
  web: {hosts: web1, service: nginx+php-fpm, uses: db}
  db: {hosts: db1, service: postgresql}
load: {path: /}
"""


def shop(directory: Path, more: str = "", **baseline: Value) -> SearchSpace:
    path = directory / "shop.yaml"
    path.write_text(SHOP + more)
    small = replace(ROOMY, memory=GB)
    adopted = AdoptedValues({f"db.postgresql.{name}": value for name, value in baseline.items()})
    return build_space(read_target(path), {"lb1": ROOMY, "web1": ROOMY, "db1": small}, adopted)


def used_by_wal(space: SearchSpace, shared_buffers: int, wal_buffers: int) -> float:
    """The memory rule's use of the database host, without everything but the WAL's memory."""
    settings = {
        **space.baseline,
        "db.postgresql.shared_buffers": shared_buffers,
        "db.postgresql.wal_buffers": wal_buffers,
    }
    fixed_use = {**settings, "db.postgresql.wal_buffers": 1}
    both = [
        next(use.needed for use in space.compute_memory_use(values) if use.host == "db1")
        for values in (settings, fixed_use)
    ]
    return both[0] - both[1] + MB


# The documentation: 1/32 of shared_buffers, at least 64 kB, at most one segment of the WAL.
@pytest.mark.parametrize(
    ("shared_buffers", "wal_buffers", "effective"),
    [
        (1, -1, 64 * KB),
        (16, -1, 512 * KB),
        (128, -1, 4 * MB),
        (512, -1, 16 * MB),
        (8192, -1, 16 * MB),
        (8192, 4, 4 * MB),
        (16, 64, 64 * MB),
    ],
)
def test_automatic_wal_buffers_follow_shared_buffers(
    shared_buffers: int, wal_buffers: int, effective: int, tmp_path: Path
) -> None:
    space = shop(tmp_path)
    assert used_by_wal(space, shared_buffers, wal_buffers) == pytest.approx(effective)


def test_the_memory_rule_is_shown_with_one_unit_per_term(tmp_path: Path) -> None:
    space = shop(tmp_path, maintenance_work_mem=64, max_connections=100, work_mem=4096)
    (rule,) = (rule for rule in space.constraints if "memory(db1)" in rule.text)
    assert space.format_arithmetic(rule, space.baseline) == (
        "db.occupied <= 80% of memory(db1): "
        "128 MB + 4 MB + 100 * (4 MB + 3 MB) + 3 * 64 MB + 32 MB = 1.03 GB"
        " <= 0.8 * 1 GB = 819 MB, or 1.03 GB as in the baseline"
    )


def test_what_the_baseline_exceeds_by_follows_its_effective_value(tmp_path: Path) -> None:
    space = shop(tmp_path, max_connections=100)
    (rule,) = (rule for rule in space.constraints if "memory(db1)" in rule.text)
    (use,) = (use for use in space.compute_memory_use(space.baseline) if use.host == "db1")
    assert use.allowed == use.needed
    # The baseline's excess does not depend on the candidate.
    others = {**space.baseline, "db.postgresql.shared_buffers": 16}
    assert rule.compute_allowed_excess(space.to_names(others)) == rule.compute_allowed_excess(
        space.to_names(space.baseline)
    )


@pytest.mark.parametrize(
    ("rule", "parameter", "suggested", "given"),
    [
        # 0 means no limit of its own, so the limit of the whole server holds.
        ("lb.haproxy.server_maxconn <= 50", "lb.haproxy.server_maxconn", 500, 50),
        ("lb.haproxy.server_maxconn <= 50", "lb.haproxy.server_maxconn", 0, 1),
        ("lb.haproxy.server_maxconn >= 50", "lb.haproxy.server_maxconn", 0, 0),
        # -1 means 4 MB here, which a rule accepts as such.
        ("db.postgresql.wal_buffers <= 4 MB", "db.postgresql.wal_buffers", -1, -1),
        ("db.postgresql.wal_buffers >= 4 MB", "db.postgresql.wal_buffers", -1, -1),
    ],
)
def test_a_rule_of_a_target_sees_the_effective_value(
    rule: str, parameter: str, suggested: Value, given: Value, tmp_path: Path
) -> None:
    more = (
        "parameters: {lb.haproxy.server_maxconn: {default: 50},"
        " db.postgresql.shared_buffers: {fixed: 128MB}}\n"
        f"constraints: ['{rule}']\n"
    )
    candidate = shop(tmp_path, more).build_candidate({parameter: suggested})
    assert candidate.settings[parameter] == given
