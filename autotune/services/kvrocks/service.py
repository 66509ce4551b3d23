"""Kvrocks: a store on disk (RocksDB) that speaks the Redis protocol, for data beyond memory."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

from autotune.services.base import Argv, Needs, Programs, Site, TrialStart, guided, on_restart
from autotune.services.diagnosis import Diagnosis
from autotune.services.redis_protocol import (
    CLIENT_LIMIT,
    COUNTERS,
    RedisProtocolServer,
    as_user,
    backlog,
    clients,
)

SOURCE = "kvrocks.apache.org, kvrocks.conf"
rocksdb = partial(on_restart, source="kvrocks.conf; RocksDB wiki, Tuning Guide")

PARAMETERS = guided((
    on_restart("workers", "Threads that serve clients; each connection stays with one of them.",
        low=1, high="4 * cpus", log=True, stock=8, recommended="cpus", source=SOURCE),
    clients(source=SOURCE),
    backlog(source=SOURCE),
    rocksdb("block_cache_size",
        "Memory for blocks read from disk; a third of the host's is the usual advice.",
        low=16, high="memory / 2 / 1048576", log=True, stock=4096,
        recommended="memory / 3 / 1048576", unit="MB"),
    rocksdb("block_cache_type", "How that cache is kept: by last use, or without locks for many readers.",
        choices=("lru", "hcc"), stock="lru"),
    rocksdb("row_cache_size", "Memory for whole rows, of use where single keys are asked for; 0 is none.",
        low=0, high="memory / 8 / 1048576", stock=0, unit="MB"),
    rocksdb("block_size",
        "Data read from disk at a time; small ones suit small values asked for at random.",
        choices=(4096, 8192, 16_384, 32_768), stock=16_384, unit="B"),
    rocksdb("compression", "How blocks on disk are compressed: CPU against reads.",
        choices=("no", "snappy", "lz4", "zstd"), stock="snappy", recommended="lz4"),
    rocksdb("cache_index_and_filter_blocks",
        "Whether indexes and filters share the block cache or always stay in memory.",
        choices=(False, True), stock=True),
    rocksdb("write_buffer_size", "Writes gathered in memory before they become a file.",
        low=8, high=512, log=True, stock=64, unit="MB"),
    rocksdb("max_write_buffer_number", "Such buffers at the most, the ones being written included.",
        low=2, high=8, stock=4),
    rocksdb("max_background_jobs", "Flushes and compactions at one time.",
        low=1, high="2 * cpus", stock=4, recommended="cpus"),
    rocksdb("max_open_files", "Data files kept open.",
        low=256, high="min(65536, nofile / 2)", log=True, stock=8096),
    rocksdb("async_io", "Whether a multi-get reads its blocks in parallel.",
        choices=(False, True), stock=True),
),
    capacity="workers maxclients+ block_cache_size+ row_cache_size block_size- max_open_files+",
    small="tcp_backlog+ block_cache_type compression write_buffer_size max_background_jobs async_io"
    " cache_index_and_filter_blocks max_write_buffer_number",
    safe={"maxclients": (1000, 65_536), "tcp_backlog": (256, 65_535)},
)  # fmt: skip

# Its names of the parameters that it does not call ``rocksdb.NAME``.
_SPELT = {
    "workers": "workers",
    "maxclients": "maxclients",
    "tcp_backlog": "tcp-backlog",
    "async_io": "rocksdb.read_options.async_io",
}
IN_EFFECT = {_SPELT.get(p.name, f"rocksdb.{p.name}"): p.name for p in PARAMETERS}


class Kvrocks(RedisProtocolServer):
    """Keeps its data on disk across restarts."""

    name = "kvrocks"
    title = "Kvrocks"
    deployment = "kvrocks"
    port = 6666
    config = ("kvrocks.conf", "/etc/kvrocks/kvrocks.conf")
    template = "kvrocks/kvrocks.conf.j2"
    unit_name = "kvrocks.service"
    packages = ("redis-tools",)
    elsewhere = "kvrocks.apache.org has packages; Debian has none"
    programs: ClassVar[Programs] = {"kvrocks": ("kvrocks",), "redis-cli": ("redis-cli",)}
    parameters = PARAMETERS
    in_effect = IN_EFFECT
    needs = Needs(
        processes="1",
        rss=64 * 2**20,
        # Write buffers are per column family; two of them hold the data of plain strings.
        memory="block_cache_size + row_cache_size + 2 * write_buffer_size * max_write_buffer_number",
        source="kvrocks.conf: capacity of its caches and buffers",
        connections="maxclients",
        descriptors="maxclients + max_open_files",
    )

    def validate(self, site: Site, files: Mapping[str, bytes]) -> TrialStart:
        # A database that runs cannot be opened twice, nor can it do without a port: the trial has
        # a directory of its own, and the port on an address that nothing else listens on.
        argv = (*self.start(site, files), "--dir", "./trial", "--unixsocket", "trial.sock",
                "--bind", "127.0.0.2")  # fmt: skip
        return TrialStart(argv, "trial.sock")

    def start(self, site: Site, files: Mapping[str, bytes]) -> Argv:
        program = (site.programs["kvrocks"], "-c", self.config_path(site))
        return (*as_user(site.user, site.group), *program)


SERVICES = (Kvrocks(),)

# It has no log of its own here, and no move is known to help.
DIAGNOSIS = Diagnosis(counters=COUNTERS, log=None, moves={}, clients=CLIENT_LIMIT)
