"""memcached: the cache between the web servers and the store."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from autotune.services.base import (
    Action,
    Argv,
    ConfigFile,
    Endpoint,
    Needs,
    Parameter,
    Readback,
    Service,
    Settings,
    Site,
    TrialStart,
)
from autotune.services.readback import Parser, backlog_in_force, words

SOURCE = "memcached(1)"
EXTSTORE = "memcached.org, extstore; memcached -h"
ON_DISK = (("extstore", (True,)),)
TOOL = "/usr/share/memcached/scripts/memcached-tool"

PARAMETERS = (
    Parameter(
        name="threads", low=1, high="8 * cpus", log=True, stock=4, recommended="cpus",
        action=Action.RESTART, source=SOURCE,
        meaning="Worker threads; beyond the CPUs they only wait for each other.",
    ),
    Parameter(
        name="connections", low=64, high="min(65536, nofile - 100)", log=True, stock=1024,
        recommended=4096, action=Action.RESTART, source=SOURCE,
        meaning="Clients at one time; more wait until one leaves.",
    ),
    Parameter(
        name="requests_per_event", low=1, high=1000, log=True, stock=20,
        action=Action.RESTART, source=SOURCE,
        meaning="Requests served on one connection before others get their turn.",
    ),
    Parameter(
        name="memory", low=8, high="memory / 2 / 1048576", log=True, stock=64, unit="MB",
        action=Action.RESTART, source=SOURCE,
        meaning="Memory for items.",
    ),
    Parameter(
        name="backlog", low=64, high=65535, log=True, stock=1024, recommended=4096,
        action=Action.RESTART, source=SOURCE,
        meaning="Connections that may wait to be accepted; the kernel caps it at somaxconn.",
    ),
    Parameter(
        name="growth_factor", low=1.05, high=2.0, stock=1.25, action=Action.RESTART,
        source=SOURCE,
        meaning="Ratio of neighbouring chunk sizes; nearer to 1 wastes less memory per item.",
    ),
    Parameter(
        name="chunk_size", low=8, high=512, log=True, stock=48, unit="B", action=Action.RESTART,
        source=SOURCE,
        meaning="Least space for key, value and flags: the size of the smallest chunks.",
    ),
    Parameter(
        name="udp", choices=(False, True), stock=False, on_demand=True, action=Action.RESTART,
        source=f"{SOURCE}; CVE-2018-1000115",
        meaning="Whether clients may ask over UDP too; only ever for a network of one's own.",
    ),
    Parameter(
        name="extstore", choices=(False, True), stock=False, on_demand=True, built_in=True,
        action=Action.RESTART, source=EXTSTORE,
        meaning="Whether large items overflow to a file on disk, keys staying in memory.",
    ),
    Parameter(
        name="ext_size", low=256, high=65536, log=True, stock=1024, unit="MB", when=ON_DISK,
        action=Action.RESTART, source=EXTSTORE,
        meaning="Size of that file.",
    ),
    Parameter(
        name="ext_threads", low=1, high="4 * cpus", log=True, stock=1, when=ON_DISK,
        action=Action.RESTART, source=EXTSTORE,
        meaning="Threads that read and write it.",
    ),
    Parameter(
        name="ext_item_size", low=64, high=65536, log=True, stock=512, unit="B", when=ON_DISK,
        action=Action.RESTART, source=EXTSTORE,
        meaning="Items larger than this may go to disk.",
    ),
    Parameter(
        name="ext_wbuf_size", choices=(2, 4, 8, 16), stock=4, unit="MB", when=ON_DISK,
        action=Action.RESTART, source=EXTSTORE,
        meaning="Buffer in which items gather before they are written.",
    ),
    Parameter(
        name="ext_recache_rate", low=1, high=100_000, log=True, stock=2000, when=ON_DISK,
        action=Action.RESTART, source=EXTSTORE,
        meaning="One in so many reads of an item on disk brings it back to memory.",
    ),
)  # fmt: skip

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

NEEDS = Needs(
    # Items, the hash table beside them, and what each connection and thread keeps.
    memory="memory * 1.1 + connections * 4 KB + threads * 1 MB + 4 MB",
    source="memcached.org, user internals; `stats`: read buffers are shared since 1.6",
    connections="connections",
)


class Memcached(Service):
    """Its options live in a file of one option a line, the form Debian's unit reads."""

    name = "memcached"
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


def settings_in_effect(wanted: Collection[str] = frozenset(IN_EFFECT.values())) -> Parser:
    """Parser of `memcached-tool … settings`, for those of our names that are ``wanted``."""
    theirs = words({name: ours for name, ours in IN_EFFECT.items() if ours in wanted})

    def parse(text: str) -> Settings:
        found = dict(theirs(text))
        found |= {name: int(found[name]) // 2**20 for name in BYTES if name in found}
        if "udp" in found:
            found["udp"] = found["udp"] != 0
        return found

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
