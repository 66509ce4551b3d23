"""A host's own PostgreSQL adopted: the last line of a name counts, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.discovery.host_reading import DiscoveredHost
from autotune.discovery.tiers import find_instances, group_tiers
from autotune.services.base import Value
from tests.discovery.places import host, web
from tests.discovery.test_tier_adoption import adopted, given_back, rendered

DEBIAN = (Path(__file__).parent / "styles" / "postgresql-debian.conf").read_text()
ETC = "/etc/postgresql/15/main"
OWN = "effective_io_concurrency = 200\nShared_Buffers = 3GB\n"
UNIT = "postgresql@15-main.service"


def database(text: str = DEBIAN, *units: str, **files: str) -> DiscoveredHost:
    there = {f"{ETC}/postgresql.conf": text, f"{ETC}/conf.d/own.conf": OWN, **files}
    return replace(host("db1", "10.0.0.4", there, *(units or (UNIT,))), processors=2)


def changed_lines(found: DiscoveredHost, changed: dict[str, Value]) -> set[str]:
    after = rendered(adopted(found)["db"], changed)
    before = {f"db1{path}": content.decode() for path, content in found.tree.files.items()}
    return {line.strip() for path, text in after.items()
            for line in set(text.splitlines()) - set(before[path].splitlines())}  # fmt: skip


def test_what_its_files_say() -> None:
    found = database()
    tier = adopted(found, web())["db"]
    given_back(tier, found)
    assert (tier.discovered_tier.deployment, tier.discovered_tier.port) == ("postgresql", 5433)
    assert tier.adopted_configs["db.db1.postgresql"].listen == "/var/run/postgresql"
    values = {
        name.removeprefix("postgresql."): value for name, value in tier.baseline_values.items()
    }
    assert values == {
        "max_connections": 250, "shared_buffers": 3072, "work_mem": 8192, "maintenance_work_mem": 64,
        "effective_cache_size": 4096, "wal_buffers": 16, "min_wal_size": 80, "max_wal_size": 4096,
        "checkpoint_timeout": 900, "checkpoint_completion_target": 0.9, "wal_compression": "lz4",
        "random_page_cost": 2.0, "effective_io_concurrency": 200, "max_worker_processes": 8,
        "max_parallel_workers": 8, "max_parallel_workers_per_gather": 2, "jit": False,
        "autovacuum_max_workers": 3, "autovacuum_vacuum_scale_factor": 0.2,
        "autovacuum_vacuum_cost_limit": -1, "synchronous_commit": "off", "full_page_writes": True,
        "fsync": True,
    }  # fmt: skip
    assert not any("hush" in text for text in tier.templates.values())


@pytest.mark.parametrize(
    ("changed", "lines"),
    [
        ({"shared_buffers": 512}, {"Shared_Buffers = 512MB"}),
        ({"work_mem": 700}, {"work_mem = 700kB"}),
        ({"max_connections": 90}, {"Max_Connections = 90\t\t\t# names are the same in capitals"}),
        ({"wal_buffers": -1}, {"wal_buffers = -1"}),
        ({"jit": True}, {"jit = on"}),
        ({"checkpoint_timeout": 400}, {"checkpoint_timeout = 400s"}),
        ({"maintenance_work_mem": 65, "max_worker_processes": 9},
         {"maintenance_work_mem = 65MB", "max_worker_processes = 9"}),
    ],
)  # fmt: skip
def test_another_value_changes_its_own_lines_alone(
    changed: dict[str, Value], lines: set[str]
) -> None:
    assert changed_lines(database(), changed) == lines


def test_what_alter_system_has_set_is_named_and_left() -> None:
    auto = {"/var/lib/postgresql/15/main/postgresql.auto.conf": "# by hand\nwork_mem = '3MB'\n"}
    tier = adopted(database(DEBIAN, **auto))["db"]
    assert "postgresql.work_mem" not in tier.baseline_values
    assert "`ALTER SYSTEM RESET work_mem`" in tier.skipped["postgresql.work_mem"]
    assert tier.baseline_values["postgresql.shared_buffers"] == 3072
    assert not any("auto.conf" in path for path in tier.templates)


def test_several_clusters_are_tuned_by_their_ports() -> None:
    other = {f"/etc/postgresql/14/old/{name}": text for name, text in (
        ("postgresql.conf", "port = 5432\nshared_buffers = 16384\n"),)}  # fmt: skip
    found = database(DEBIAN, UNIT, "postgresql@14-old.service", **other)
    every = {tier.name: tier for tier in group_tiers(find_instances(found)[0])}
    assert {name: tier.port for name, tier in every.items()} == {"db": 5433, "db2": 5432}
    old = adopted(found)["db2"]
    assert old.baseline_values["postgresql.shared_buffers"] == 128  # pages of 8 kB


def test_one_that_is_down_or_has_no_socket_is_not_tuned() -> None:
    assert find_instances(database(DEBIAN, "postgresql.service"))[0] == ()
    found, notes = find_instances(database(DEBIAN.replace("'/var/run/postgresql, /tmp'", "''")))
    assert found == ()
    assert notes == (
        "db1: PostgreSQL (postgresql@15-main.service) is not tuned: it has no unix socket",
    )


def test_who_calls_it_is_a_guess_unless_a_file_says_so() -> None:
    every = {
        tier.name: tier
        for tier in group_tiers(m for h in (database(), web()) for m in find_instances(h)[0])
    }
    assert (every["web"].uses, every["web"].assumed_uses) == (("db",), ("db",))
    spoken = web(pool="[www]\nlisten = /run/php/php8.2-fpm.sock\nenv[DB] = 10.0.0.4:5433\n")
    every = {
        tier.name: tier
        for tier in group_tiers(m for h in (database(), spoken) for m in find_instances(h)[0])
    }
    assert (every["web"].uses, every["web"].assumed_uses) == (("db",), ())
