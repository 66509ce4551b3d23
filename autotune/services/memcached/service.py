"""memcached: the cache between the web servers and the store."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import partial
from typing import ClassVar

from autotune.services import option_lines
from autotune.services.base import (
    REPLACED_WHOLE,
    Argv,
    Needs,
    Programs,
    Readback,
    Role,
    Service,
    Site,
    TrialStart,
    Value,
    accept_queue,
    guided,
    on_restart,
)
from autotune.services.diagnosis import (
    INFERRED,
    ClientLimit,
    CounterQuery,
    Diagnosis,
    Finding,
    Lookups,
    PartReading,
    Resource,
)
from autotune.services.readback import Parser, backlog_in_force, configuration, number
from autotune.strict import split_lines

SOURCE = "memcached(1)"
EXTSTORE = "memcached.org, extstore; memcached -h"
option = partial(on_restart, source=SOURCE)
on_disk = partial(on_restart, source=EXTSTORE, when=(("extstore", (True,)),))

PARAMETERS = guided((
    option("threads", "Number of worker threads. More threads than CPUs only wait for each other.",
        low=1, high="8 * cpus", log=True, stock=4, recommended="cpus"),
    option("connections", "Maximum concurrent clients. More wait until one disconnects.",
        low=64, high="min(65536, nofile - 100)", log=True, stock=1024, recommended=4096),
    option("requests_per_event",
        "Maximum requests on one connection before others are served.",
        low=1, high=1000, log=True, stock=20),
    option("memory", "Memory for items.",
        low=8, high="memory / 2 / 1048576", log=True, stock=64, unit="MB"),
    accept_queue("backlog", stock=1024, source=SOURCE),
    option("growth_factor",
        "Ratio of adjacent chunk sizes. Values near 1 waste less memory per item.",
        low=1.05, high=2.0, stock=1.25),
    option("chunk_size", "Minimum space for key, value and flags: the size of the smallest chunks.",
        low=8, high=512, log=True, stock=48, unit="B"),
    on_restart("udp", "Accept clients over UDP. Use it only in a private network.",
        stock=False, on_demand=True, source=f"{SOURCE}; CVE-2018-1000115"),
    on_restart("extstore", "Store large items in a file on disk, with keys in memory.",
        stock=False, built_in=True, on_demand=True, source=EXTSTORE),
    on_disk("ext_size",
        "Size of the extstore file.",
        low=256, high=65536, log=True, stock=1024, unit="MB"),
    on_disk("ext_threads",
        "Number of extstore I/O threads.",
        low=1, high="4 * cpus", log=True, stock=1),
    on_disk("ext_item_size", "Item size above which extstore may move an item to disk.",
        low=64, high=65536, log=True, stock=512, unit="B"),
    on_disk("ext_wbuf_size", "Extstore write buffer for items.",
        choices=(2, 4, 8, 16), stock=4, unit="MB"),
    on_disk("ext_recache_rate", "One in this many reads moves an item from disk back to memory.",
        low=1, high=100_000, log=True, stock=2000),
),
    capacity="threads connections+ memory+ backlog+",
    small="requests_per_event growth_factor- chunk_size extstore ext_size+ ext_threads",
    safe={"threads": (1, "4 * cpus"), "connections": (512, 65_536), "backlog": (256, 65_535),
          "growth_factor": (1.05, 1.5), "chunk_size": (32, 96), "requests_per_event": (10, 100)},
)  # fmt: skip

PROGRAMS: Programs = {
    "memcached": ("memcached",),
    "memcached-tool": ("/usr/share/memcached/scripts/memcached-tool",),
}
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
# In Perl, like memcached's own tool; prints one line of the response.
_SEND = """
my $server = IO::Socket::IP->new(PeerHost => $ARGV[0], PeerService => $ARGV[1], Timeout => 5) or die $@;
print $server $_ while <STDIN>;
$server->flush;
print scalar <$server>;
"""
BYTES = ("memory", "ext_wbuf_size")  # shown in bytes, set in MB
# Options that require client authentication, by SASL or a user file. Short options without a value
# may precede them in one word.
_LOGINS = "-[ACFLMZdhikrvV]*[SY]|--enable-sasl|--auth-file"
_OPENED = f"""
sed 's/#.*//' -- "$1" 2>/dev/null | grep -qE -e '(^|[[:blank:]])({_LOGINS})' || exit 0
echo "authenticates its clients with $1, which the replaced file would disable"
echo '{REPLACED_WHOLE}'
"""


class Memcached(Service):
    """A cache with an option file, one option per line, as Debian's unit reads it."""

    name = "memcached"
    title = "memcached"
    deployment = "memcached"
    role = Role.CACHE
    port = 11211
    config = ("memcached.conf", "/etc/memcached.conf")
    template = "memcached/memcached.conf.j2"
    unit_name = "memcached.service"
    forgets_on_restart = True
    protocol = "memcached"
    packages = ("memcached",)
    programs: ClassVar[Programs] = PROGRAMS
    parameters = PARAMETERS
    needs = Needs(
        # Items, their hash table, and state per connection and thread.
        memory="memory * 1.1 + connections * 4 KB + threads * 1 MB + 4 MB",
        source="memcached.org, user internals; `stats`: read buffers are shared since 1.6",
        connections="connections",
    )

    def validate(self, site: Site, files: Mapping[str, bytes]) -> TrialStart:
        argv = self.start(site, files)
        # Omit `-P`, the PID file of the running server.
        at = argv.index("-P") if "-P" in argv else len(argv)
        return TrialStart((*argv[:at], *argv[at + 2 :], "-s", "trial.sock"), "trial.sock")

    def start(self, site: Site, files: Mapping[str, bytes]) -> Argv:
        return (site.programs["memcached"], *options(files[self.config_path(site)]))

    def unsaved(self, site: Site, files: Mapping[str, bytes]) -> Argv | None:
        """Return a check for logins in the replaced file, which may be in no other file."""
        words = (word for content in files.values() for word in options(content))
        if site.own is not None or any(re.match(_LOGINS, word) for word in words):
            return None
        return ("sh", "-c", _OPENED, "sh", self.config_path(site))

    def prefill(self, site: Site, pairs: Mapping[str, str]) -> tuple[Argv, bytes]:
        """Return a client command and sets in memcached's protocol. `version` is answered after all
        sets.
        """
        place = (site.listen.host, str(site.listen.port))
        sets = (
            f"set {key} 0 0 {len(value)} noreply\r\n{value}\r\n" for key, value in pairs.items()
        )
        lines = "".join((*sets, "version\r\n"))
        return ("perl", "-MIO::Socket::IP", "-e", _SEND, *place), lines.encode()

    def effective(self, site: Site) -> tuple[Readback, ...]:
        return (Readback(ask(site, "settings"), settings_in_effect()), backlog_in_force(site))


SERVICES = (Memcached(),)


def ask(site: Site, what: str) -> Argv:
    """Return the command that prints ``stats`` or ``settings``."""
    address = site.own_place or site.listen.host
    return (site.programs["memcached-tool"], f"{address}:{site.listen.port}", what)


def settings_in_effect(names: Collection[str] = frozenset(IN_EFFECT.values())) -> Parser:
    """Return a parser of `memcached-tool … settings` for the parameters in ``names``."""
    called = {theirs: ours for theirs, ours in IN_EFFECT.items() if ours in names}

    def meaning(name: str, word: str) -> Value | None:
        value = number(word)
        if name in BYTES:
            return value // 2**20 if isinstance(value, int) else None
        return value != 0 if name == "udp" else value

    return configuration(option_lines.read, called, meaning)


def options(content: bytes) -> Argv:
    """Return the arguments in an option file: one option and value per line, ``#`` starts a
    comment.

    Like Debian's unit, it ignores ``-d`` and words without a dash (``logfile``).
    """
    lines = (
        line.split("#", 1)[0].split() for line in split_lines(content.decode(errors="replace"))
    )
    return tuple(word for line in lines if line and line[0].startswith("-") and line[0] != "-d"
                 for word in line)  # fmt: skip


LEVELS = frozenset((
    "curr_connections", "max_connections", "accepting_conns", "bytes", "limit_maxbytes", "threads",
))  # fmt: skip
COUNTS = frozenset((
    "listen_disabled_num", "rejected_connections", "get_hits", "get_misses", "cmd_get", "cmd_set",
    "evictions", "conn_yields", "rusage_user", "rusage_system",
))  # fmt: skip


def _evictions(part: PartReading) -> Finding | None:
    counters = part.activity.counters
    gets, misses = counters.get("cmd_get", 0), counters.get("get_misses", 0)
    evicted = counters.get("evictions", 0)
    if not gets or not evicted or misses / gets <= 0.25:
        return None
    return Finding(
        Resource.CACHE,
        f"{misses / gets:.0%} of {gets:.0f} gets missed and {evicted:.0f} items were"
        f" evicted from {part.setting('memory')} MB: raise memory",
        INFERRED,
    )


DIAGNOSIS = Diagnosis(
    counters=CounterQuery(
        question=b"stats\r\n",
        complete=lambda data: data.endswith(b"END\r\n") or data.startswith(b"ERROR"),
        command=lambda site: ask(site, "stats"),
        names=LEVELS | COUNTS,
        levels=LEVELS,
    ),
    log=lambda site: site.place(None, Memcached.unit_name),
    moves={
        Resource.WORKERS: ("threads+",),
        Resource.CONNECTIONS: ("connections+", "backlog+"),
        Resource.CACHE: ("memory+",),
    },
    threads="threads",
    clients=ClientLimit("connections", "rejected_connections", "listen_disabled_num", queues=True),
    lookups=Lookups("cmd_get", "get_hits", "get_misses"),
    cache_rules=(_evictions,),
)

ADOPTION = option_lines.adoption(
    Memcached(),
    {
        "-t": "threads",
        "-c": "connections",
        "-R": "requests_per_event",
        "-m": "memory",
        "-b": "backlog",
        "-f": "growth_factor",
        "-n": "chunk_size",
    },
    port="-p",
    address="-l",
    paths=("etc/memcached.conf",),
    version="memcached -V",
    includes=lambda _: None,
    loses=lambda _: "memcached stores items only in memory",
    called={
        "--threads": "-t",
        "--conn-limit": "-c",
        "--max-reqs-per-event": "-R",
        "--memory-limit": "-m",
        "--listen-backlog": "-b",
        "--slab-growth-factor": "-f",
        "--slab-min-size": "-n",
        "--port": "-p",
        "--listen": "-l",
    },
)
