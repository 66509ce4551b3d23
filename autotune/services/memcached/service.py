"""memcached: the cache between the web servers and the store."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from autotune.services.base import (
    Argv,
    ConfigFile,
    Endpoint,
    Readback,
    Role,
    Service,
    Settings,
    Site,
    TrialStart,
)
from autotune.services.memcached.parameters import NEEDS, PARAMETERS
from autotune.services.option_lines import words
from autotune.services.readback import Parser, backlog_in_force

TOOL = "/usr/share/memcached/scripts/memcached-tool"

IN_EFFECT = {
    "num_threads": "threads",
    "maxconns": "connections",
    "reqs_per_event": "requests_per_event",
    "maxbytes": "memory",
    "tcp_backlog": "backlog",
    "growth_factor": "growth_factor",
    "chunk_size": "chunk_size",
    "udpport": "udp",
    "ext_item_size": "ext_item_size",
    "ext_wbuf_size": "ext_wbuf_size",
    "ext_recache_rate": "ext_recache_rate",
}
BYTES = ("memory", "ext_wbuf_size")  # told in bytes, set in MB


class Memcached(Service):
    """Its options live in a file of one option a line, the form Debian's unit reads."""

    name = "memcached"
    title = "memcached"
    deployment = "memcached"
    role = Role.CACHE
    port = 11211
    forgets_on_restart = True
    protocol = "memcached"
    packages = ("memcached",)
    parameters = PARAMETERS
    needs = NEEDS

    @property
    def programs(self) -> Mapping[str, tuple[str, ...]]:
        return {"memcached": ("memcached",), "memcached-tool": (TOOL,)}

    def files(self, site: Site) -> tuple[ConfigFile, ...]:
        return (ConfigFile(_conf(site), "memcached/memcached.conf.j2"),)

    def unit(self, site: Site) -> str:
        return "memcached.service"

    def validate(self, site: Site, files: Mapping[str, bytes]) -> TrialStart:
        argv = self.start(site, files)
        # Not the file with the running server's own id.
        at = argv.index("-P") if "-P" in argv else len(argv)
        kept = (*argv[:at], *argv[at + 2 :])
        return TrialStart((*kept, "-s", "trial.sock"), "trial.sock")

    def start(self, site: Site, files: Mapping[str, bytes]) -> Argv:
        return (site.programs["memcached"], *options(files[_conf(site)]))

    def socket(self, site: Site) -> Endpoint:
        return site.listen

    def effective(self, site: Site) -> tuple[Readback, ...]:
        argv = (site.programs["memcached-tool"], str(site.listen), "settings")
        return (Readback(argv, settings_in_effect()), backlog_in_force(site))


SERVICES = (Memcached(),)


def settings_in_effect(wanted: Collection[str] = frozenset(IN_EFFECT.values())) -> Parser:
    """Parser of `memcached-tool … settings`, for those of our names that are ``wanted``."""
    theirs = words({name: ours for name, ours in IN_EFFECT.items() if ours in wanted})

    def parse(text: str) -> Settings:
        values = dict(theirs(text))
        values |= {name: int(values[name]) // 2**20 for name in BYTES if name in values}
        if "udp" in values:
            values["udp"] = values["udp"] != 0
        return values

    return parse


def _conf(site: Site) -> str:
    return site.place("memcached.conf", "/etc/memcached.conf")


def options(content: bytes) -> Argv:
    """Arguments out of an option file: one option and its value a line, ``#`` starts a comment.

    As Debian's unit has it, ``-d`` and words that are no options (``logfile``) do not count.
    """
    lines = (line.split("#", 1)[0].split() for line in content.decode().splitlines())
    return tuple(word for line in lines if line and line[0].startswith("-") and line[0] != "-d"
                 for word in line)  # fmt: skip
