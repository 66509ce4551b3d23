"""Parameters of Kvrocks, and what it takes of its host."""

from __future__ import annotations

from autotune.services.base import Action, Needs, Parameter
from autotune.services.redis_protocol import backlog, clients

SOURCE = "kvrocks.apache.org, kvrocks.conf"
ROCKSDB = "kvrocks.conf; RocksDB wiki, Tuning Guide"

PARAMETERS = (
    Parameter(
        name="workers", low=1, high="4 * cpus", log=True, stock=8, recommended="cpus",
        action=Action.RESTART, source=SOURCE,
        meaning="Threads that serve clients; each connection stays with one of them.",
    ),
    clients(SOURCE),
    backlog(SOURCE),
    Parameter(
        name="block_cache_size", low=16, high="memory / 2 / 1048576", log=True, stock=4096,
        recommended="memory / 3 / 1048576", unit="MB", action=Action.RESTART, source=ROCKSDB,
        meaning="Memory for blocks read from disk; a third of the host's is the usual advice.",
    ),
    Parameter(
        name="block_cache_type", choices=("lru", "hcc"), stock="lru", action=Action.RESTART,
        source=ROCKSDB,
        meaning="How that cache is kept: by last use, or without locks for many readers.",
    ),
    Parameter(
        name="row_cache_size", low=0, high="memory / 8 / 1048576", stock=0, unit="MB",
        action=Action.RESTART, source=ROCKSDB,
        meaning="Memory for whole rows, of use where single keys are asked for; 0 is none.",
    ),
    Parameter(
        name="block_size", choices=(4096, 8192, 16_384, 32_768), stock=16_384, unit="B",
        action=Action.RESTART, source=ROCKSDB,
        meaning="Data read from disk at a time; small ones suit small values asked for at random.",
    ),
    Parameter(
        name="compression", choices=("no", "snappy", "lz4", "zstd"), stock="snappy",
        recommended="lz4", action=Action.RESTART, source=ROCKSDB,
        meaning="How blocks on disk are compressed: CPU against reads.",
    ),
    Parameter(
        name="cache_index_and_filter_blocks", choices=(False, True), stock=True,
        action=Action.RESTART, source=ROCKSDB,
        meaning="Whether indexes and filters share the block cache or always stay in memory.",
    ),
    Parameter(
        name="write_buffer_size", low=8, high=512, log=True, stock=64, unit="MB",
        action=Action.RESTART, source=ROCKSDB,
        meaning="Writes gathered in memory before they become a file.",
    ),
    Parameter(
        name="max_write_buffer_number", low=2, high=8, stock=4, action=Action.RESTART,
        source=ROCKSDB,
        meaning="Such buffers at the most, the ones being written included.",
    ),
    Parameter(
        name="max_background_jobs", low=1, high="2 * cpus", stock=4, recommended="cpus",
        action=Action.RESTART, source=ROCKSDB,
        meaning="Flushes and compactions at one time.",
    ),
    Parameter(
        name="max_open_files", low=256, high="min(65536, nofile / 2)", log=True, stock=8096,
        action=Action.RESTART, source=ROCKSDB,
        meaning="Data files kept open.",
    ),
    Parameter(
        name="async_io", choices=(False, True), stock=True, action=Action.RESTART,
        source=ROCKSDB,
        meaning="Whether a multi-get reads its blocks in parallel.",
    ),
)  # fmt: skip

NEEDS = Needs(
    processes="1",
    rss=64 * 2**20,
    # Write buffers are per column family; two of them hold the data of plain strings.
    memory="block_cache_size + row_cache_size + 2 * write_buffer_size * max_write_buffer_number",
    source="kvrocks.conf: capacity of its caches and buffers",
    connections="maxclients",
    descriptors="maxclients + max_open_files",
)
