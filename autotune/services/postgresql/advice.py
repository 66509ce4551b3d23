"""PGTune's rules for a web application on SSDs and Linux, as published in its source
(github.com/le0pard/pgtune, src/features/configuration/configurationSlice.js), for version 15 and later.
"""

from __future__ import annotations

from collections.abc import Mapping

from autotune.services.base import Settings, Value

MB = 1024  # PGTune counts in kB
WEB_CONNECTIONS, STOCK_CONNECTIONS = 200, 100
STOCK_WORKERS = 8  # max_worker_processes where it says nothing of them


def advice(facts: Mapping[str, float], running: Settings) -> dict[str, Value]:
    """``max_connections`` that the user has set is what PGTune would be told."""
    total, cpus = int(facts["memory"]) // 1024, int(facts["cpus"])
    shared = total // 4
    connections = int(running.get("max_connections", STOCK_CONNECTIONS))
    if connections == STOCK_CONNECTIONS:
        connections = WEB_CONNECTIONS
    workers = cpus if cpus >= 4 else STOCK_WORKERS
    work_mem = (total - shared) // ((connections + workers) * 3)
    values: dict[str, Value] = {
        "max_connections": connections,
        "shared_buffers": shared // MB,
        "effective_cache_size": total * 3 // 4 // MB,
        "maintenance_work_mem": min(total // 16, 8192 * MB) // MB,
        "checkpoint_completion_target": 0.9,
        # 3 % of shared_buffers, 16 MB at most and from 14 MB on; less is what -1 comes to, 1/32.
        "wal_buffers": 16 if 3 * shared // 100 > 14 * MB else -1,
        "random_page_cost": 1.1,
        "effective_io_concurrency": 200,
        "work_mem": max(work_mem, 4 * MB),
        "min_wal_size": 1024,
        "max_wal_size": 4096,
        "wal_compression": "lz4",
        "jit": False,
    }
    if cpus >= 4:
        values |= {"max_worker_processes": cpus, "max_parallel_workers": cpus,
                   "max_parallel_workers_per_gather": min(4, -(-cpus // 2))}  # fmt: skip
    if cpus >= 16:
        values["autovacuum_max_workers"] = 5 if cpus >= 32 else 4
    return values
