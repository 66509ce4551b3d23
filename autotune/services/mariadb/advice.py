"""MySQLTuner's rules, as published in its source (github.com/major/MySQLTuner-perl 2.8.8, mysqltuner.pl:
`mysql_stats`, `mysql_innodb`, `mariadb_threadpool`), as far as they follow from a host and the settings.

The rest of what it says follows from counters of a server that has run for a day.
"""

from __future__ import annotations

from collections.abc import Mapping

from autotune.services.base import Settings, Value

MOST_MEMORY = 0.85  # of the host's, in all that the settings allow
MANY = 512  # connections from which it advises a pool of threads
# MB that MariaDB has by itself: its caches of keys and of Aria's pages; a thread's stack and binary log.
SHARED, THREAD = 128 + 128, (292 + 32) / 1024


def advice(facts: Mapping[str, float], running: Settings) -> dict[str, Value]:
    """InnoDB's pool is to hold all data, within the memory there is: how much data is not known here,
    so it is all that memory allows, and never less than today."""

    def of(name: str) -> float:
        return float(running[name])

    memory = MOST_MEMORY * facts["memory"] / 2**20
    pool = max(int(memory - possible_memory(running) + of("innodb_buffer_pool_size")),
               int(of("innodb_buffer_pool_size")))  # fmt: skip
    values: dict[str, Value] = {
        "innodb_buffer_pool_size": pool,
        "innodb_log_file_size": pool // 4,
        "query_cache_size": 0,
        # It counts with the smaller one, and says to keep them alike.
        "tmp_table_size": int(min(of("tmp_table_size"), of("max_heap_table_size"))),
    }
    if not of("thread_cache_size"):
        values["thread_cache_size"] = 4
    if of("max_connections") >= MANY:
        values |= {"thread_handling": "pool-of-threads", "thread_pool_size": int(facts["cpus"])}
    return values


def possible_memory(running: Settings) -> float:
    """What it calls the maximum possible memory usage, in MB."""

    def total(*names: str) -> float:
        return sum(float(running[name]) for name in names)

    shared = SHARED + min(total("tmp_table_size"), total("max_heap_table_size"))
    shared += total("innodb_buffer_pool_size", "innodb_log_buffer_size", "query_cache_size")
    thread = (
        THREAD
        + total("read_buffer_size", "read_rnd_buffer_size", "sort_buffer_size", "join_buffer_size")
        / 1024
    )
    return shared + thread * total("max_connections")
