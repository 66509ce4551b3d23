"""What tools advise for a host: their own published examples, and a preset in a study."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotune.services.mariadb import parameters as mysqltuner
from autotune.services.postgresql.service import Postgresql
from autotune.services.registry import SHIPPED
from autotune.space.dimension import PRESET_NAMES
from autotune.space.facts import HostFacts
from autotune.space.space import SearchSpace
from autotune.space.target_space import build_space
from autotune.target.read_target import read_target

GB = 2**30

# PGTune's own tests (src/features/configuration/__tests__/configurationSlice.test.js), those for the
# type web, Linux, SSDs and version 15 and later; in kB there, in each parameter's unit here.
PGTUNE: list[tuple[float, int, int | None, dict[str, Any]]] = [
    (16, 2, None, {"maintenance_work_mem": 1024, "max_connections": 200}),
    (256, 2, None, {"maintenance_work_mem": 8192, "random_page_cost": 1.1}),
    (4, 4, 9999, {"work_mem": 4096, "effective_io_concurrency": 200}),
    (64, 1, None, {"max_worker_processes": None, "max_parallel_workers": None,
                   "max_parallel_workers_per_gather": None, "autovacuum_max_workers": None}),
    (64, 12, None, {"max_worker_processes": 12, "max_parallel_workers_per_gather": 4,
                    "max_parallel_workers": 12}),
    (64, 31, None, {"max_worker_processes": 31, "max_parallel_workers_per_gather": 4,
                    "max_parallel_workers": 31}),
    (64, 32, None, {"autovacuum_max_workers": 5}),
    (64, 16, None, {"autovacuum_max_workers": 4}),
    (64, 8, None, {"autovacuum_max_workers": None, "jit": False, "wal_compression": "lz4"}),
]  # fmt: skip


@pytest.mark.parametrize(("memory", "cpus", "connections", "expected"), PGTUNE)
def test_pgtune_s_own_examples(
    memory: float, cpus: int, connections: int | None, expected: dict[str, Any]
) -> None:
    running = {"max_connections": connections or 100}
    advised = Postgresql().recommend_settings({"memory": memory * GB, "cpus": cpus}, running)
    assert {name: advised.get(name) for name in expected} == expected


# An example that MySQLTuner 2.8.8 publishes (examples/20260117_233902_mariadb118): "Max MySQL memory
# 861.2M", "417.0M global + 2.9M per thread (151 max threads)", "innodb_log_file_size should be (=32M)".
EXAMPLE: dict[str, Any] = {
    "innodb_buffer_pool_size": 128, "innodb_log_buffer_size": 16, "query_cache_size": 1,
    "tmp_table_size": 16, "max_heap_table_size": 16, "read_buffer_size": 128,
    "read_rnd_buffer_size": 256, "sort_buffer_size": 2048, "join_buffer_size": 256,
    "max_connections": 151, "thread_cache_size": 151,
}  # fmt: skip


def test_mysqltuner_s_own_example() -> None:
    assert mysqltuner.compute_max_memory(EXAMPLE) == pytest.approx(861.2, rel=0.001)
    # Where memory allows no more, the pool stays and its log is a quarter of it.
    advised = mysqltuner.recommend_settings({"memory": 0.9 * GB, "cpus": 10}, EXAMPLE)
    assert advised["innodb_buffer_pool_size"] == 128
    assert advised["innodb_log_file_size"] == 32
    assert advised["query_cache_size"] == 0
    assert not {"thread_handling", "thread_cache_size"} & set(advised)


@pytest.mark.parametrize("memory", [2, 15.26, 64])
def test_what_mysqltuner_advises_is_what_it_accepts(memory: float) -> None:
    host = {"memory": memory * GB, "cpus": 6}
    running = EXAMPLE | {"max_connections": 600, "thread_cache_size": 0}
    advised = dict(mysqltuner.recommend_settings(host, running))
    after = running | advised
    used = mysqltuner.compute_max_memory(after) / 1024 / memory
    assert used <= 0.85 or after["innodb_buffer_pool_size"] == 128  # then nothing of it helps
    assert 0.2 <= after["innodb_log_file_size"] / after["innodb_buffer_pool_size"] <= 0.3
    assert (after["thread_handling"], after["thread_pool_size"], after["thread_cache_size"]) == (
        "pool-of-threads", 6, 4,
    )  # fmt: skip
    for name, value in mysqltuner.recommend_settings(
        host, after
    ).items():  # its own advice taken, it is content
        assert value == pytest.approx(after[name], abs=1), name


TARGET = """
name: shop
slo: {p99: 50ms}
hosts: {web1: {address: 198.18.0.1}, db1: {address: 198.18.0.2}}
tiers:
  web: {hosts: web1, service: nginx+php-fpm, runtime: systemd, uses: db}
  db: {hosts: db1, service: SERVICE, runtime: systemd}
"""


def space_of(directory: Path, service: str) -> SearchSpace:
    path = directory / "target.yaml"
    path.write_text(TARGET.replace("SERVICE", service))
    file = read_target(path)
    return build_space(file, {name: HostFacts(8, 16 * GB, 65_536) for name in ("web1", "db1")})


@pytest.mark.parametrize("service", ["postgresql", "mariadb", "redis"])
def test_advice_is_a_preset_of_its_own_where_there_is_any(tmp_path: Path, service: str) -> None:
    space = space_of(tmp_path, service)
    presets = {kind: space.preset_settings(kind) for kind in PRESET_NAMES}
    advised, recommended = presets["advised"], presets["recommended"]
    differing = {name for name in advised if advised[name] != recommended[name]}
    assert all(name.startswith(f"db.{service}.") for name in differing)
    assert bool(differing) == (service != "redis")
    settings = space.build_candidate(advised).settings  # the rules hold
    assert space.select_active_settings(settings) != space.select_active_settings(space.baseline)


@pytest.mark.parametrize("deployment", sorted(SHIPPED.deployments))
def test_advice_names_parameters_that_there_are(deployment: str) -> None:
    for service, _ in SHIPPED.services_of(deployment):
        stock = {p.name: p.stock for p in service.parameters}
        if {"cpus"} & set(map(str, stock.values())):
            continue
        advised = service.recommend_settings({"memory": 8 * GB, "cpus": 4, "nofile": 1024}, stock)
        assert set(advised) <= set(stock)
        for parameter in service.parameters:
            if parameter.choices and parameter.name in advised:
                assert advised[parameter.name] in parameter.choices
            assert not (parameter.on_demand and parameter.name in advised)
