"""PostgreSQL: its language, what it says of itself, what is concluded, and PGTune's advice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import TargetError
from autotune.services.base import Endpoint, Placement, Role
from autotune.services.config_files import ConfigSyntaxError
from autotune.services.diagnosis import InstanceActivity, InstanceReading, Resource
from autotune.services.postgresql.adoption import parse_directives as directives
from autotune.services.postgresql.parameters import unquote
from autotune.services.postgresql.service import DIAGNOSIS, Postgresql, parse_effective
from autotune.space.facts import HostFacts
from autotune.space.target_space import build_space
from autotune.space.tier_dimensions import build_tier_dimensions
from autotune.target.model import Tier
from autotune.target.read_target import read_target

PRINTED = (Path(__file__).parent / "fixtures" / "postgresql.txt").read_text()
GIB = 2**30


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("work_mem = 4MB", "work_mem", "4MB"),
        ("Work_Mem=4MB# comment", "work_mem", "4MB"),
        ("  work_mem\t'4 MB'  # it's fine", "work_mem", "4 MB"),
        ("my.own = 'it''s \\'so\\' # not'", "my.own", "it's 'so' # not"),
        ("archive_command = ''", "archive_command", ""),
    ],
)
def test_a_line(line: str, name: str, value: str) -> None:
    for end in ("", "\n", "\r\n"):
        (directive,) = directives(f"# work_mem = 1MB\n\n{line}{end}")
        assert (directive.name.text, unquote(directive.arguments[0].text)) == (name, value)


@pytest.mark.parametrize("text", ["work_mem = 'open\n", "work_mem\n", "= 3", "work_mem = 4 MB\n"])
def test_what_it_would_not_read_is_not_read(text: str) -> None:
    with pytest.raises(ConfigSyntaxError, match="line 2"):
        directives(f"jit = on\n{text}")


def test_what_is_in_effect_is_in_our_units() -> None:
    values = parse_effective(PRINTED)
    assert set(values) == {parameter.name for parameter in Postgresql().parameters}
    assert {name: values[name] for name in ("shared_buffers", "work_mem", "effective_cache_size",
                                            "wal_buffers", "checkpoint_timeout", "jit")} == {
        "shared_buffers": 128, "work_mem": 4096, "effective_cache_size": 4096, "wal_buffers": -1,
        "checkpoint_timeout": 300, "jit": True,
    }  # fmt: skip
    written = PRINTED.replace("wal_buffers|512|8kB|", "wal_buffers|512|8kB|4MB")
    assert parse_effective(written)["wal_buffers"] == 4
    assert (
        parse_effective(PRINTED.replace("compression|off", "compression|pglz"))["wal_compression"]
        == "on"
    )


# https://pgtune.leopard.in.ua, type web: as published for these two hosts.
@pytest.mark.parametrize(
    ("memory", "cpus", "advice"),
    [
        (4, 2, {"shared_buffers": 1024, "work_mem": 5242, "effective_cache_size": 3072,
                "maintenance_work_mem": 256, "max_parallel_workers_per_gather": 1}),
        (32, 48, {"shared_buffers": 8192, "effective_cache_size": 24_576, "maintenance_work_mem": 2048,
                  "max_worker_processes": 48, "max_parallel_workers_per_gather": 4}),
    ],
)  # fmt: skip
def test_what_is_recommended_is_what_pgtune_says(
    memory: int, cpus: int, advice: dict[str, int]
) -> None:
    tier = Tier(hosts=("db1",), service=("postgresql",))
    by_name = {
        d.name.rpartition(".")[2]: d
        for d in build_tier_dimensions("db", tier, HostFacts(cpus, memory * GIB))
    }
    always = {"max_connections": 200, "min_wal_size": 1024, "max_wal_size": 4096, "wal_buffers": 16,
              "random_page_cost": 1.1, "effective_io_concurrency": 200,
              "checkpoint_completion_target": 0.9}  # fmt: skip
    for name, value in (always | advice).items():
        recommended = by_name[name].recommended
        assert recommended is not None
        assert by_name[name].clip(recommended) == value, name
    # What a loss of power would cost is not for guides to say, nor searched.
    for name in ("fsync", "full_page_writes", "synchronous_commit"):
        assert by_name[name].is_fixed
        assert by_name[name].recommended is None


def reading(settings: dict[str, Any], **values: Any) -> InstanceReading:
    activity = InstanceActivity("db.h.postgresql", "db", "h", "postgresql", Role.DATABASE, **values)
    return InstanceReading(
        activity, settings, failed_requests=0, errors_dominate=False, idle_fraction=0.6
    )


@pytest.mark.parametrize(
    ("values", "resource", "move"),
    [
        ({"counters": {"active": 8, "lock_waits": 6}}, Resource.LOCKS, "6 of 8 active sessions"),
        ({"counters": {"active": 8, "lock_waits": 1}}, None, ""),
        (
            {"counters": {"blks_hit": 9000, "blks_read": 6000}},
            Resource.CACHE,
            "raise shared_buffers",
        ),
        ({"counters": {"blks_hit": 90_000, "blks_read": 6000}}, None, ""),
        ({"counters": {"blks_hit": 9, "blks_read": 20}}, None, ""),
        ({"counters": {"temp_files": 8, "temp_bytes": 9e7}}, Resource.DISK, "raise work_mem"),
        ({"counters": {"checkpoints_req": 2}}, Resource.DISK, "raise max_wal_size"),
        ({"counters": {"checkpoints_req": 1}}, None, ""),
    ],
)
def test_what_it_runs_out_of(values: dict[str, Any], resource: Resource | None, move: str) -> None:
    part = reading({"max_connections": 20}, **values)
    rules = (*DIAGNOSIS.refusal_rules, *DIAGNOSIS.worker_rules)
    findings = [finding for rule in rules if (finding := rule(part))]
    assert [finding.resource for finding in findings] == ([resource] if resource else [])
    assert all(move in finding.evidence for finding in findings)


@pytest.mark.parametrize(("temp_files", "is_short"), [(49, False), (50, True)])
def test_temporary_files_matter_if_many_requests_write_them(
    temp_files: int, is_short: bool
) -> None:
    counters = {"temp_files": temp_files, "temp_bytes": 9e7}
    part = replace(reading({}, counters=counters), answered_requests=1000)
    findings = [finding for rule in DIAGNOSIS.worker_rules if (finding := rule(part))]
    assert [finding.resource for finding in findings] == [Resource.DISK] * is_short


def test_its_log_says_whom_it_turned_away() -> None:
    pattern = DIAGNOSIS.complaint_patterns["too_many_clients"]
    for words in (
        "sorry, too many clients already",
        "remaining connection slots are reserved for non-replication superuser connections",
    ):
        assert pattern.search(f"2026-11-22 12:00:00.000 UTC [7] shop@shop FATAL:  {words}")  # fmt: skip


def test_versions_count_checkpoints_in_views_of_their_own() -> None:
    assert DIAGNOSIS.counter_query is not None
    for version, view in (("15", "pg_stat_bgwriter"), ("17", "pg_stat_checkpointer")):
        programs = {"postgres": f"/usr/lib/postgresql/{version}/bin/postgres"}
        site = Placement(tier="db", host="h", role=Role.DATABASE, directory="/run/t",
                    listen=Endpoint("10.0.0.4", 5432), installed=True, programs=programs)  # fmt: skip
        command = DIAGNOSIS.counter_query.build_command(site)
        assert view in command[-1]
        assert f"/usr/lib/postgresql/{version}/bin/psql" in command
        assert Postgresql().get_unit(site) == f"postgresql@{version}-main.service"


TARGET = """\
name: shop
slo: {p99: 50ms, errors: 0.1%}
hosts: {web1: {address: 10.0.0.1}, web2: {address: 10.0.0.2}, db1: {address: 10.0.0.4}}
tiers:
  web: {hosts: [web1, web2], service: nginx+php-fpm, uses: [db]}
  db: {hosts: db1, service: postgresql}
load: {path: /}
"""


def test_memory_and_connections_of_a_database_are_in_the_rules(tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(TARGET)
    space = build_space(
        read_target(path), dict.fromkeys(("web1", "web2", "db1"), HostFacts(2, 4 * GIB, 65_536))
    )
    texts = "\n".join(rule.text for rule in space.constraints)
    assert "db.occupied <= 80% of memory(db1)" in texts
    assert "web.workers * count(web.hosts) <= db.connections" in texts
    asked = {"web.php_fpm.max_children": 100, "db.postgresql.max_connections": 60}
    candidate = space.build_candidate(asked)
    children = candidate.settings["web.php_fpm.max_children"]
    assert isinstance(children, int)
    assert 2 * children <= int(candidate.settings["db.postgresql.max_connections"]) - 3
    greedy = space.build_candidate(
        {"db.postgresql.work_mem": 300_000, "db.postgresql.max_connections": 500}
    )
    work, clients = (greedy.settings[f"db.postgresql.{n}"] for n in ("work_mem", "max_connections"))
    assert int(work) * 1024 * int(clients) < 4 * GIB


@pytest.mark.parametrize(
    ("service", "why", "hint"),
    [
        ("postgresql, runtime: embedded", "not as `runtime: embedded`", "systemd"),
        (
            "[postgresql, redis]",
            "another service does not have this data",
            "a separate target for each",
        ),
    ],
)
def test_it_is_tuned_where_its_data_is(tmp_path: Path, service: str, why: str, hint: str) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(TARGET.replace("service: postgresql", f"service: {service}"))
    facts = dict.fromkeys(("web1", "web2", "db1"), HostFacts(2, 4 * GIB, 65_536))
    with pytest.raises(
        TargetError, match=f"postgresql must run where its data is.*{why}"
    ) as refused:
        build_space(read_target(path), facts)
    assert hint in str(refused.value.hint)
