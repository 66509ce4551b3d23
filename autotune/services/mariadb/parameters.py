"""Parameters of MariaDB: buffers, connections, threads, table caches and temporary tables."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from autotune.services.base import (
    SOMAXCONN,
    ResourceNeeds,
    Settings,
    Value,
    on_restart,
    with_guidance,
)

SYSTEM_DOCS = "mariadb.com, Server System Variables"
INNODB_DOCS = "mariadb.com, InnoDB System Variables"
MYSQLTUNER = "MySQLTuner 2.x, its published recommendations"
build_system_option = partial(on_restart, source=SYSTEM_DOCS)
build_innodb_option = partial(on_restart, source=INNODB_DOCS)
# autotune does not use `SET GLOBAL`, whose values last only until the next start. A value in a file
# takes effect at a restart.
PARAMETERS = with_guidance((
    build_innodb_option("innodb_buffer_pool_size",
        "Memory for pages of tables and indexes. Frequently used data should fit.",
        low=16, high="memory * 3 / 4 / 1048576", log=True, stock=128,
        recommended="memory / 2 / 1048576", unit="MB"),
    on_restart("innodb_log_file_size",
        "Size of the redo log. A larger log delays page writes but prolongs recovery.",
        low=16, high="memory / 4 / 1048576", log=True, stock=96,
        recommended="memory / 8 / 1048576", unit="MB",
        source=f"{MYSQLTUNER}: a quarter of the buffer pool; {INNODB_DOCS}"),
    build_innodb_option("innodb_log_buffer_size",
        "Memory for changes that are not yet written to the log.",
        low=2, high=256, log=True, stock=16, unit="MB"),
    build_innodb_option("innodb_flush_method",
        "How data files are accessed. The buffer pool makes the system's page cache unnecessary.",
        choices=("O_DIRECT", "fsync", "O_DSYNC"), stock="O_DIRECT", recommended="O_DIRECT"),
    build_innodb_option("innodb_io_capacity", "Number of background page writes per second.",
        low=100, high=20_000, log=True, stock=200, recommended=1000),
    build_innodb_option("innodb_io_capacity_max",
        "Maximum number of background page writes per second when the redo log is almost full.",
        low=100, high=40_000, log=True, stock=2000),
    build_innodb_option("innodb_read_io_threads",
        "Number of threads that read pages ahead.",
        low=1, high=64, stock=4),
    build_innodb_option("innodb_write_io_threads",
        "Number of threads that write pages back.",
        low=2, high=64, stock=4),
    build_innodb_option("innodb_adaptive_hash_index",
        "Build hash indexes for frequently used pages. Their locks also cost time.",
        stock=False),
    build_innodb_option("innodb_flush_log_at_trx_commit",
        "Write each commit to disk (1); with 0 and 2, a crash loses the last second.",
        choices=(1, 2, 0), stock=1, recommended=1, on_demand=True),
    build_system_option("sync_binlog",
        "Number of commits before the binary log is synced; 0 leaves it to the system.",
        choices=(0, 1, 10, 100, 1000), stock=0, on_demand=True),
    build_system_option("max_connections",
        "Maximum number of concurrent connections. Others are refused.",
        low=10, high="min(4096, nofile / 4)", log=True, stock=151),
    build_system_option("back_log",
        "Maximum number of connections that wait to be accepted. The kernel limits it to somaxconn.",
        low=50, high=65_535, log=True, stock=80, capped_by=SOMAXCONN),
    on_restart("thread_cache_size", "Number of idle threads that are kept for new connections.",
        low=0, high=4096, stock=151, source=f"{MYSQLTUNER}: most connections should reuse a thread"),
    build_system_option("thread_handling",
        "Use a thread per connection, or a thread pool.",
        choices=("one-thread-per-connection", "pool-of-threads"), stock="one-thread-per-connection"),
    on_restart("thread_pool_size", "Number of thread pool groups. Each runs one statement at a time.",
        low=1, high="min(128, 4 * cpus)", log=True, stock="cpus",
        when=(("thread_handling", ("pool-of-threads",)),), source="mariadb.com, Thread Pool in MariaDB"),
    build_system_option("table_open_cache", "Maximum number of tables kept open across all connections.",
        low=400, high="nofile / 4", log=True, stock=2000),
    build_system_option("table_definition_cache",
        "Number of table definitions that are kept in memory.",
        low=400, high=65_536, log=True, stock=400),
    on_restart("tmp_table_size", "Size above which a temporary table is written to disk.",
        low=1, high=256, log=True, stock=16, unit="MB",
        source=f"{MYSQLTUNER}: no more than max_heap_table_size, and at most 256 MB"),
    build_system_option("max_heap_table_size",
        "Maximum size of an in-memory table, including temporary ones.",
        low=1, high=512, log=True, stock=16, unit="MB"),
    build_system_option("sort_buffer_size", "Memory that a connection uses for a sort.",
        low=32, high=16_384, log=True, stock=2048, unit="KB"),
    on_restart("join_buffer_size", "Memory that a connection uses for a join without an index.",
        low=128, high=16_384, log=True, stock=256, unit="KB",
        source=f"{MYSQLTUNER}: indexes first, at most 4 MB"),
    build_system_option("read_buffer_size", "Memory that a connection uses for a full table scan.",
        low=8, high=4096, log=True, stock=128, unit="KB"),
    build_system_option("read_rnd_buffer_size",
        "Memory that a connection uses to read rows in sorted order.",
        low=8, high=4096, log=True, stock=256, unit="KB"),
    on_restart("query_cache_size",
        "Memory for cached query results, protected by one global lock; 0 disables it.",
        low=0, high=256, stock=0, recommended=0, unit="MB", source=f"{MYSQLTUNER}: off"),
),
    capacity="innodb_buffer_pool_size+ innodb_log_file_size+ max_connections+ thread_handling"
    " thread_pool_size table_open_cache+ tmp_table_size+ max_heap_table_size+"
    " innodb_flush_log_at_trx_commit",
    small="innodb_log_buffer_size+ innodb_flush_method innodb_io_capacity+ innodb_io_capacity_max+"
    " innodb_read_io_threads innodb_write_io_threads innodb_adaptive_hash_index sync_binlog"
    " back_log+ thread_cache_size+ table_definition_cache+ sort_buffer_size join_buffer_size"
    " read_buffer_size query_cache_size",
    safe={"max_connections": (50, "min(2000, nofile / 4)"), "table_open_cache": (400, "nofile / 8"),
          "tmp_table_size": (16, 256), "max_heap_table_size": (16, 256),
          "join_buffer_size": (128, 4096), "sort_buffer_size": (256, 4096)},
)  # fmt: skip

RESOURCE_NEEDS = ResourceNeeds(
    # MySQLTuner's formula for the maximum memory. In addition to its buffers, each connection has a
    # stack and a binary log cache.
    memory="innodb_buffer_pool_size + innodb_log_buffer_size + query_cache_size + tmp_table_size"
    " + max_connections * (sort_buffer_size + join_buffer_size + read_buffer_size"
    " + read_rnd_buffer_size + 324 KB) + 112 MB",
    source=f"{MYSQLTUNER}, maximum possible memory usage; resident size of 10.11 at rest",
    connections="max_connections",
    # The descriptors that the server requests at startup.
    descriptors="max_connections + 2 * table_open_cache + 10",
)

MAX_MEMORY_SHARE = 0.85  # the largest share of the host's memory that all settings together may use
# MySQLTuner recommends a thread pool for at least this many connections.
THREAD_POOL_CONNECTIONS = 512
# Memory in MB that no parameter controls. The key cache and Aria's page cache are shared, and each
# thread has a stack and a binary log cache.
SHARED_MEMORY_MB, THREAD_MEMORY_MB = 128 + 128, (292 + 32) / 1024


def recommend_settings(facts: Mapping[str, float], current_settings: Settings) -> dict[str, Value]:
    """Return all recommendations of MySQLTuner that depend only on the host and the settings.

    Source: github.com/major/MySQLTuner-perl 2.8.8, mysqltuner.pl: `mysql_stats`, `mysql_innodb`,
    `mariadb_threadpool`. MySQLTuner's other rules need counters from a server that has been running
    for a day.

    InnoDB's buffer pool should contain all data if there is enough memory. The amount of data is
    unknown, so the pool gets all available memory, but never less than its current size.
    """

    pool_mb = int(current_settings["innodb_buffer_pool_size"])
    memory_mb = MAX_MEMORY_SHARE * facts["memory"] / 2**20
    pool_mb = max(int(memory_mb - compute_max_memory(current_settings) + pool_mb), pool_mb)
    recommended_values: dict[str, Value] = {
        "innodb_buffer_pool_size": pool_mb,
        "innodb_log_file_size": pool_mb // 4,
        "query_cache_size": 0,
        # MySQLTuner uses the smaller of the two sizes below, and recommends keeping both equal.
        "tmp_table_size": min(
            int(current_settings["tmp_table_size"]), int(current_settings["max_heap_table_size"])
        ),
    }
    if not int(current_settings["thread_cache_size"]):
        recommended_values["thread_cache_size"] = 4
    if int(current_settings["max_connections"]) >= THREAD_POOL_CONNECTIONS:
        recommended_values |= {
            "thread_handling": "pool-of-threads",
            "thread_pool_size": int(facts["cpus"]),
        }
    return recommended_values


def compute_max_memory(current_settings: Settings) -> float:
    """Return MySQLTuner's "maximum possible memory usage", in MB."""

    def sum_mb(*names: str) -> float:
        return sum(float(current_settings[name]) for name in names)

    memory_mb = SHARED_MEMORY_MB + min(sum_mb("tmp_table_size"), sum_mb("max_heap_table_size"))
    memory_mb += sum_mb("innodb_buffer_pool_size", "innodb_log_buffer_size", "query_cache_size")
    connection_buffers_kb = sum_mb(
        "read_buffer_size", "read_rnd_buffer_size", "sort_buffer_size", "join_buffer_size"
    )
    return memory_mb + (THREAD_MEMORY_MB + connection_buffers_kb / 1024) * sum_mb("max_connections")
