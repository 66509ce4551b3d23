"""Kvrocks: a store on disk (RocksDB) that speaks the Redis protocol, for data beyond memory."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.services.base import (
    Argv,
    ConfigFile,
    Endpoint,
    Loader,
    Readback,
    Role,
    Service,
    Site,
    TrialStart,
)
from autotune.services.kvrocks.parameters import NEEDS, PARAMETERS
from autotune.services.redis_protocol import as_user, in_effect, loader

SWITCHES = ("cache_index_and_filter_blocks", "async_io")
IN_EFFECT = {
    "workers": "workers",
    "maxclients": "maxclients",
    "tcp-backlog": "tcp_backlog",
    "rocksdb.read_options.async_io": "async_io",
} | {
    f"rocksdb.{name}": name for name in (
        "block_cache_size", "block_cache_type", "row_cache_size", "block_size", "compression",
        "cache_index_and_filter_blocks", "write_buffer_size", "max_write_buffer_number",
        "max_background_jobs", "max_open_files",
    )
}  # fmt: skip


class Kvrocks(Service):
    """Keeps its data on disk across restarts."""

    name = "kvrocks"
    title = "Kvrocks"
    deployment = "kvrocks"
    role = Role.STORE
    port = 6666
    packages = ("redis-tools",)
    elsewhere = "kvrocks.apache.org has packages; Debian has none"
    parameters = PARAMETERS
    needs = NEEDS

    @property
    def programs(self) -> Mapping[str, tuple[str, ...]]:
        return {"kvrocks": ("kvrocks",), "redis-cli": ("redis-cli",)}

    def files(self, site: Site) -> tuple[ConfigFile, ...]:
        return (ConfigFile(_conf(site), "kvrocks/kvrocks.conf.j2"),)

    def unit(self, site: Site) -> str:
        return "kvrocks.service"

    def validate(self, site: Site, files: Mapping[str, bytes]) -> TrialStart:
        # A database that runs cannot be opened twice, nor can it do without a port: the trial has
        # a directory of its own, and the port on an address that nothing else listens on.
        argv = (*self.start(site, files), "--dir", "./trial", "--unixsocket", "trial.sock",
                "--bind", "127.0.0.2")  # fmt: skip
        return TrialStart(argv, "trial.sock")

    def start(self, site: Site, files: Mapping[str, bytes]) -> Argv:
        return (*as_user(site.user, site.group), site.programs["kvrocks"], "-c", _conf(site))

    def socket(self, site: Site) -> Endpoint:
        return site.listen

    def effective(self, site: Site) -> tuple[Readback, ...]:
        return in_effect(site, IN_EFFECT, SWITCHES)

    def loader(self, site: Site) -> Loader:
        return loader(site)


SERVICES = (Kvrocks(),)


def _conf(site: Site) -> str:
    return site.place("kvrocks.conf", "/etc/kvrocks/kvrocks.conf")
