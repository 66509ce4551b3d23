"""What MariaDB counts, and what follows from how often."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.services.diagnosis import ClientLimit, Diagnosis, Resource, by_command, frequent
from autotune.services.mariadb.service import Mariadb, ask, rows
from autotune.strict import is_whole

# What is counted, beside what, which share of it and how many are too many, what that is and what helps.
FREQUENT = (
    ("Innodb_row_lock_waits", "Questions", 0.05, 10, Resource.LOCKS,
     "times a statement waited for a row that another had locked",
     "shorten its transactions, or let fewer of them in (max_connections, thread_pool_size)"),
    ("Innodb_log_waits", "Questions", 0.01, 1, Resource.DISK,
     "times a statement waited for room in the log's buffer", "raise innodb_log_buffer_size"),
    ("Innodb_buffer_pool_reads", "Innodb_buffer_pool_read_requests", 0.01, 1000, Resource.DISK,
     "pages asked for were read from disk", "raise innodb_buffer_pool_size"),
    # MySQLTuner's share.
    ("Created_tmp_disk_tables", "Created_tmp_tables", 0.25, 100, Resource.DISK,
     "temporary tables went to disk",
     "raise tmp_table_size and max_heap_table_size, unless they have columns of text"),
    ("Table_open_cache_overflows", "Questions", 0.1, 100, Resource.CACHE,
     "times a table was closed to open another", "raise table_open_cache"),
    ("Threads_created", "Connections", 0.5, 100, Resource.WORKERS,
     "connections got a new thread", "raise thread_cache_size, or keep connections open"),
)  # fmt: skip
LEVELS = frozenset(("Threads_connected", "Threads_running", "Max_used_connections"))
COUNTS = {name for row in FREQUENT for name in row[:2]}
REFUSED = "Connection_errors_max_connections"


def counters(text: str) -> Mapping[str, float]:
    """Those of its status variables that are looked at."""
    return {name: float(value) for name, value in rows(text).items()
            if name in {*LEVELS, *COUNTS, REFUSED} and is_whole(value)}  # fmt: skip


DIAGNOSIS = Diagnosis(
    # It greets with a binary handshake: only its own client is asked.
    counters=by_command(
        command=lambda site: ask(site, "SHOW GLOBAL STATUS"), levels=LEVELS, more=counters
    ),
    log=lambda _: Mariadb.unit_name,
    moves={
        Resource.CONNECTIONS: ("max_connections+", "back_log+"),
        Resource.WORKERS: ("thread_handling=pool-of-threads", "thread_cache_size+"),
        Resource.STORE: ("innodb_buffer_pool_size+", "innodb_log_file_size+", "table_open_cache+"),
        Resource.DISK: ("innodb_buffer_pool_size+", "innodb_log_file_size+", "tmp_table_size+"),
        Resource.LOCKS: ("thread_handling=pool-of-threads", "max_connections-"),
        Resource.CACHE: ("table_open_cache+", "table_definition_cache+"),
        Resource.MEMORY: ("max_connections-", "innodb_buffer_pool_size-", "sort_buffer_size-"),
    },
    clients=ClientLimit("max_connections", REFUSED),
    worker_rules=tuple(frequent(*row) for row in FREQUENT),
)  # fmt: skip
