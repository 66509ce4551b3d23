"""Kvrocks: an on-disk store (RocksDB) with the Redis protocol, for data that exceed the memory."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

from autotune.services.base import (
    Argv,
    Placement,
    Programs,
    ResourceNeeds,
    TrialStart,
    build_user_prefix,
    on_restart,
    with_guidance,
)
from autotune.services.diagnosis import Diagnosis
from autotune.services.redis_protocol import (
    CLIENT_LIMIT,
    COUNTER_QUERY,
    RedisProtocolServer,
    build_backlog,
    build_client_limit,
)

DOCS = "kvrocks.apache.org, kvrocks.conf"
build_rocksdb_option = partial(on_restart, source="kvrocks.conf; RocksDB wiki, Tuning Guide")

PARAMETERS = with_guidance((
    on_restart("workers",
        "Number of threads that serve clients. Each connection belongs to one thread.",
        low=1, high="4 * cpus", log=True, stock=8, recommended="cpus", source=DOCS),
    build_client_limit(source=DOCS),
    build_backlog(source=DOCS),
    build_rocksdb_option("block_cache_size",
        "Memory for blocks read from disk. Tuning guides recommend a third of the host's memory.",
        low=16, high="memory / 2 / 1048576", log=True, stock=4096,
        recommended="memory / 3 / 1048576", unit="MB"),
    build_rocksdb_option("block_cache_type",
        "Type of the block cache: LRU, or a lock-free cache for many readers.",
        choices=("lru", "hcc"), stock="lru"),
    build_rocksdb_option("row_cache_size",
        "Memory for whole rows, useful for single-key reads; 0 disables it.",
        low=0, high="memory / 8 / 1048576", stock=0, unit="MB"),
    build_rocksdb_option("block_size",
        "Size of a disk read. Small blocks suit random reads of small values.",
        choices=(4096, 8192, 16_384, 32_768), stock=16_384, unit="B"),
    build_rocksdb_option("compression",
        "Compression of blocks on disk, which costs CPU time but saves reads.",
        choices=("no", "snappy", "lz4", "zstd"), stock="snappy", recommended="lz4"),
    build_rocksdb_option("cache_index_and_filter_blocks",
        "Keep indexes and filters in the block cache instead of permanently in memory.",
        choices=(False, True), stock=True),
    build_rocksdb_option("write_buffer_size",
        "Size of the buffer that collects writes in memory before they are written to a file.",
        low=8, high=512, log=True, stock=64, unit="MB"),
    build_rocksdb_option("max_write_buffer_number",
        "Maximum number of write buffers, including those being written to a file.",
        low=2, high=8, stock=4),
    build_rocksdb_option("max_background_jobs", "Maximum number of concurrent flushes and compactions.",
        low=1, high="2 * cpus", stock=4, recommended="cpus"),
    build_rocksdb_option("max_open_files", "Maximum number of open data files.",
        low=256, high="min(65536, nofile / 2)", log=True, stock=8096),
    build_rocksdb_option("async_io", "Read the blocks of a multi-get in parallel.",
        choices=(False, True), stock=True),
),
    capacity="workers maxclients+ block_cache_size+ row_cache_size block_size- max_open_files+",
    small="tcp_backlog+ block_cache_type compression write_buffer_size max_background_jobs async_io"
    " cache_index_and_filter_blocks max_write_buffer_number",
    safe={"maxclients": (1000, 65_536), "tcp_backlog": (256, 65_535)},
)  # fmt: skip

# Names of options that differ from ``rocksdb.NAME``.
_SERVER_NAMES = {
    "workers": "workers",
    "maxclients": "maxclients",
    "tcp_backlog": "tcp-backlog",
    "async_io": "rocksdb.read_options.async_io",
}
PARAMETERS_BY_OPTION = {_SERVER_NAMES.get(p.name, f"rocksdb.{p.name}"): p.name for p in PARAMETERS}


class Kvrocks(RedisProtocolServer):
    """Kvrocks, a key-value store whose data stay on disk across restarts."""

    name = "kvrocks"
    title = "Kvrocks"
    deployment = "kvrocks"
    port = 6666
    config_paths = ("kvrocks.conf", "/etc/kvrocks/kvrocks.conf")
    template = "kvrocks/kvrocks.conf.j2"
    unit_name = "kvrocks.service"
    packages = ("redis-tools",)
    package_source = "packages are on kvrocks.apache.org; Debian has none"
    programs: ClassVar[Programs] = {"kvrocks": ("kvrocks",), "redis-cli": ("redis-cli",)}
    parameters = PARAMETERS
    parameters_by_option = PARAMETERS_BY_OPTION
    needs = ResourceNeeds(
        processes="1",
        rss=64 * 2**20,
        # Each column family has its own write buffers, and plain strings use two column families.
        memory="block_cache_size + row_cache_size + 2 * write_buffer_size *"
        " max_write_buffer_number",
        source="kvrocks.conf: capacity of its caches and buffers",
        connections="maxclients",
        descriptors="maxclients + max_open_files",
    )

    def build_validation(self, placement: Placement, files: Mapping[str, bytes]) -> TrialStart:
        # The running server holds its port, and its database cannot be opened twice. The trial
        # start therefore uses another directory, and the same port on an unused address.
        argv = (
            *self.build_start_command(placement, files),
            "--dir",
            "./trial",
            "--unixsocket",
            "trial.sock",
            "--bind",
            "127.0.0.2",
        )
        return TrialStart(argv, "trial.sock")

    def build_start_command(self, placement: Placement, files: Mapping[str, bytes]) -> Argv:
        server_command = (placement.programs["kvrocks"], "-c", self.config_path(placement))
        return (*build_user_prefix(placement.user, placement.group), *server_command)


SERVICES = (Kvrocks(),)

# Kvrocks has no separate log, and no helpful parameter changes are known.
DIAGNOSIS = Diagnosis(
    counter_query=COUNTER_QUERY, find_log=None, recommended_changes={}, client_limit=CLIENT_LIMIT
)
