"""memcached: the cache between the web servers and the store."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import partial
from typing import ClassVar

from autotune.services import option_lines
from autotune.services.base import (
    FILE_REPLACED_HINT,
    Argv,
    Placement,
    Programs,
    Readback,
    ResourceNeeds,
    Role,
    Service,
    TrialStart,
    Value,
    build_accept_queue,
    on_restart,
    with_guidance,
)
from autotune.services.diagnosis import (
    INFERRED,
    ClientLimit,
    CounterQuery,
    Diagnosis,
    InstanceReading,
    LookupCounters,
    Resource,
    ResourceShortage,
)
from autotune.services.readback import (
    OutputParser,
    build_backlog_readback,
    build_config_parser,
    parse_number,
)
from autotune.services.unit_files import list_unit_paths
from autotune.strict_parsing import split_lines

DOCS = "memcached(1)"
EXTSTORE_DOCS = "memcached.org, extstore; memcached -h"
build_memcached_option = partial(on_restart, source=DOCS)
build_extstore_option = partial(on_restart, source=EXTSTORE_DOCS, when=(("extstore", (True,)),))

PARAMETERS = with_guidance((
    build_memcached_option("threads",
        "Number of worker threads. With more threads than CPUs, threads only wait for each other.",
        low=1, high="8 * cpus", log=True, stock=4, recommended="cpus"),
    build_memcached_option("connections",
        "Maximum number of concurrent clients. Others are refused.",
        low=64, high="min(65536, nofile - 100)", log=True, stock=1024, recommended=4096),
    build_memcached_option("requests_per_event",
        "Maximum number of requests on one connection before others are served.",
        low=1, high=1000, log=True, stock=20),
    build_memcached_option("memory", "Memory for items.",
        low=8, high="memory / 2 / 1048576", log=True, stock=64, unit="MB"),
    build_accept_queue("backlog", stock=1024, source=DOCS),
    build_memcached_option("growth_factor",
        "Ratio of adjacent chunk sizes. Values near 1 waste less memory per item.",
        low=1.05, high=2.0, stock=1.25),
    build_memcached_option("chunk_size",
        "Minimum space for key, value and flags, which is the size of the smallest chunks.",
        low=8, high=512, log=True, stock=48, unit="B"),
    on_restart("udp", "Accept clients over UDP. Use this only in a private network.",
        stock=False, on_demand=True, source=f"{DOCS}; CVE-2018-1000115"),
    on_restart("extstore", "Store large items in a file on disk, with keys in memory.",
        stock=False, built_in=True, on_demand=True, source=EXTSTORE_DOCS),
    build_extstore_option("ext_size",
        "Size of the extstore file.",
        low=256, high=65536, log=True, stock=1024, unit="MB"),
    build_extstore_option("ext_threads",
        "Number of extstore I/O threads.",
        low=1, high="4 * cpus", log=True, stock=1),
    build_extstore_option("ext_item_size", "Item size above which extstore may move an item to disk.",
        low=64, high=65536, log=True, stock=512, unit="B"),
    build_extstore_option("ext_wbuf_size", "Size of extstore's write buffer for items.",
        choices=(2, 4, 8, 16), stock=4, unit="MB"),
    build_extstore_option("ext_recache_rate",
        "Number of reads from disk per item that is moved back to memory.",
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
PARAMETERS_BY_SETTING = {
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
# This script is Perl code, like memcached's own tool. The script prints one line of the response.
_SEND_SCRIPT = """
my $server = IO::Socket::IP->new(PeerHost => $ARGV[0], PeerService => $ARGV[1], Timeout => 5) or die $@;
print $server $_ while <STDIN>;
$server->flush;
print scalar <$server>;
"""
BYTE_PARAMETERS = ("memory", "ext_wbuf_size")  # printed in bytes, but set in MB
# Options that require clients to authenticate, through SASL or a file of users. In the same word, short
# options without a value may precede such an option.
_LOGIN_OPTIONS_PATTERN = "-[ACFLMZdhikrvV]*[SY]|--enable-sasl|--auth-file"
_SERVER_FILE_PATTERN = re.compile(r"(?:-[Pe]|--(?:pidfile|memory-file)=?)(?P<value>.*)")
_LOGIN_CHECK_SCRIPT = f"""
sed 's/#.*//' -- "$1" 2>/dev/null | grep -qE -e '(^|[[:blank:]])({_LOGIN_OPTIONS_PATTERN})' || exit 0
echo "authenticates its clients with $1, which the replaced file would disable"
echo '{FILE_REPLACED_HINT}'
"""


class Memcached(Service):
    """memcached with an option file in the format of Debian's unit: one option per line."""

    name = "memcached"
    other_names = ("memcache",)
    title = "memcached"
    deployment = "memcached"
    role = Role.CACHE
    port = 11211
    config_paths = ("memcached.conf", "/etc/memcached.conf")
    template = "memcached/memcached.conf.j2"
    unit_name = "memcached.service"
    forgets_on_restart = True
    load_protocol = "memcached"
    packages = ("memcached",)
    programs: ClassVar[Programs] = PROGRAMS
    parameters = PARAMETERS
    needs = ResourceNeeds(
        # Memory for items, for their hash table, and for the state of each connection and thread.
        memory="memory * 1.1 + connections * 4 KB + threads * 1 MB + 4 MB",
        source="memcached.org, user internals; `stats`: read buffers are shared since 1.6",
        connections="connections",
    )

    def build_validation(self, placement: Placement, files: Mapping[str, bytes]) -> TrialStart:
        argv = omit_files_of_server(self.build_start_command(placement, files))
        return TrialStart((*argv, "-s", "trial.sock"), "trial.sock")

    def build_start_command(self, placement: Placement, files: Mapping[str, bytes]) -> Argv:
        return (placement.programs["memcached"], *parse_options(files[self.config_path(placement)]))

    def build_unpersisted_check(
        self, placement: Placement, files: Mapping[str, bytes], *, allows_data_loss: bool = False
    ) -> Argv | None:
        """Return a check for client authentication, which autotune would disable by replacing the
        file.
        """
        option_words = (word for content in files.values() for word in parse_options(content))
        if placement.adopted is not None or any(
            re.match(_LOGIN_OPTIONS_PATTERN, word) for word in option_words
        ):
            return None
        return ("sh", "-c", _LOGIN_CHECK_SCRIPT, "sh", self.config_path(placement))

    def build_prefill_command(
        self, placement: Placement, pairs: Mapping[str, str]
    ) -> tuple[Argv, bytes]:
        """Return a client command, and its input: `set` commands in memcached's protocol. The reply
        to the final `version` command arrives after all pairs are stored.
        """
        address_words = (placement.listen.host, str(placement.listen.port))
        set_commands = (
            f"set {key} 0 0 {len(value)} noreply\r\n{value}\r\n" for key, value in pairs.items()
        )
        input_text = "".join((*set_commands, "version\r\n"))
        return ("perl", "-MIO::Socket::IP", "-e", _SEND_SCRIPT, *address_words), input_text.encode()

    def list_readbacks(self, placement: Placement) -> tuple[Readback, ...]:
        return (
            Readback(build_stats_command(placement, "settings"), build_settings_parser()),
            build_backlog_readback(placement),
        )


SERVICES = (Memcached(),)


def build_stats_command(placement: Placement, subcommand: str) -> Argv:
    """Return the command that prints the output of ``stats`` or ``settings``."""
    address = placement.adopted_address or placement.listen.host
    return (placement.programs["memcached-tool"], f"{address}:{placement.listen.port}", subcommand)


def build_settings_parser(
    names: Collection[str] = frozenset(PARAMETERS_BY_SETTING.values()),
) -> OutputParser:
    """Return a parser for the output of `memcached-tool … settings` that extracts the parameters in
    ``names``.
    """
    names_by_setting = {
        setting: parameter
        for setting, parameter in PARAMETERS_BY_SETTING.items()
        if parameter in names
    }

    def parse_setting(parameter_name: str, printed_word: str) -> Value | None:
        setting_value = parse_number(printed_word)
        if parameter_name in BYTE_PARAMETERS:
            return setting_value // 2**20 if isinstance(setting_value, int) else None
        return setting_value != 0 if parameter_name == "udp" else setting_value

    return build_config_parser(option_lines.parse_directives, names_by_setting, parse_setting)


def omit_files_of_server(argv: Argv) -> Argv:
    """Return ``argv`` without the options that name the PID file and memory file of the server."""
    kept_words, words = [], iter(argv)
    for word in words:
        match = _SERVER_FILE_PATTERN.fullmatch(word)
        if match is None:
            kept_words.append(word)
        elif not match["value"]:
            next(words, None)  # the next word is the value
    return tuple(kept_words)


def parse_options(file_content: bytes) -> Argv:
    """Return the arguments in an option file. Each line contains one option with its value, and
    ``#`` starts a comment.

    As in Debian's unit, ``-d`` and words without a dash (``logfile``) are ignored.
    """
    option_lines = (
        line.split("#", 1)[0].split() for line in split_lines(file_content.decode(errors="replace"))
    )
    return tuple(
        word
        for line in option_lines
        if line and line[0].startswith("-") and line[0] != "-d"
        for word in line
    )


LEVEL_COUNTERS = frozenset((
    "curr_connections", "max_connections", "accepting_conns", "bytes", "limit_maxbytes", "threads",
))  # fmt: skip
TOTAL_COUNTERS = frozenset((
    "listen_disabled_num", "rejected_connections", "get_hits", "get_misses", "cmd_get", "cmd_set",
    "evictions", "conn_yields", "rusage_user", "rusage_system",
))  # fmt: skip


def _detect_evictions(reading: InstanceReading) -> ResourceShortage | None:
    counters = reading.activity.counters
    lookup_count, miss_count = counters.get("cmd_get", 0), counters.get("get_misses", 0)
    eviction_count = counters.get("evictions", 0)
    if not lookup_count or not eviction_count or miss_count / lookup_count <= 0.25:
        return None
    return ResourceShortage(
        Resource.CACHE,
        f"{miss_count / lookup_count:.0%} of {lookup_count:.0f} gets missed and {eviction_count:.0f}"
        f" items were evicted from {reading.get_setting('memory')} MB: raise memory",
        INFERRED,
    )


DIAGNOSIS = Diagnosis(
    counter_query=CounterQuery(
        request=b"stats\r\n",
        is_complete=lambda data: data.endswith(b"END\r\n") or data.startswith(b"ERROR"),
        build_command=lambda site: build_stats_command(site, "stats"),
        counter_names=LEVEL_COUNTERS | TOTAL_COUNTERS,
        level_names=LEVEL_COUNTERS,
        refusal_pattern=re.compile(r"Too many open connections"),
    ),
    find_log=lambda site: site.choose(None, Memcached.unit_name),
    recommended_changes={
        Resource.WORKERS: ("threads+",),
        Resource.CONNECTIONS: ("connections+", "backlog+"),
        Resource.CACHE: ("memory+",),
    },
    threads_parameter="threads",
    client_limit=ClientLimit(
        "connections", "rejected_connections", "listen_disabled_num", queues_excess=True
    ),
    lookup_counters=LookupCounters("cmd_get", "get_hits", "get_misses", "evictions", "memory"),
    cache_rules=(_detect_evictions,),
)

ADOPTION = option_lines.OptionFile(
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
    port_option="-p",
    address_option="-l",
    socket_option="-s",
    paths=("etc/memcached.conf", *list_unit_paths("memcached.service")),
    version_script="memcached -V",
    find_include=lambda _: None,
    describe_loss=lambda _: "memcached stores items only in memory",
    aliases={
        "--threads": "-t",
        "--conn-limit": "-c",
        "--max-reqs-per-event": "-R",
        "--memory-limit": "-m",
        "--listen-backlog": "-b",
        "--slab-growth-factor": "-f",
        "--slab-min-size": "-n",
        "--port": "-p",
        "--listen": "-l",
        "--unix-socket": "-s",
    },
).build_adoption()
