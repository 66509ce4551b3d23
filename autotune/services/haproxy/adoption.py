"""Map HAProxy's directives to parameters, and find the servers in its file."""

from __future__ import annotations

from collections.abc import Iterator

from autotune.services import unit_environment, unit_files
from autotune.services.adoption import Adoption, RunningHost, RunningService, at_http_port
from autotune.services.base import Value
from autotune.services.config_files import Config, Tree, gather, together
from autotune.services.directives import (
    FLAG,
    MILLISECONDS,
    NUMBER,
    SIGNED,
    WORD,
    Absent,
    Notation,
    Tunable,
    below,
)
from autotune.services.haproxy import syntax
from autotune.services.understood import Understood

UNIT, HOME = "haproxy.service", "/etc/haproxy"
MAIN = f"{HOME}/haproxy.cfg"
PROXIES = ("defaults", "frontend", "backend", "listen")
# The timeout that applies if a file does not set this one, in the manual's order.
_TIMEOUTS = {"client": "", "server": "", "connect": "", "queue": "connect", "http-request": "client",
             "http-keep-alive": "http-request"}  # fmt: skip


def find(host: RunningHost) -> Iterator[RunningService | str]:
    if not host.runs(UNIT):
        return
    config = _read(host.tree)
    if config.unread:
        yield "; ".join(f"HAProxy is not tuned: {p} ({why})" for p, why in config.unread.items())
        return
    sockets = (line.words[0].removeprefix("unix@") for line in config.called("stats socket"))
    servers = (line.words[1] for line in config.called("server") if line.words[1:])
    running = RunningService(
        host=host, key="haproxy", config=config, kind="lb", behind=tuple(dict.fromkeys(servers)),
        listen=next((path for path in sockets if path.startswith("/")), ""),
        unit="" if config.main == MAIN else UNIT,
    )  # fmt: skip
    yield at_http_port(running, "HAProxy", _listens(config))


def _read(tree: Tree) -> Config:
    """Read all files of its unit's command as one. In directories, only ``.cfg`` files count."""
    words = unit_environment.words(tree, UNIT)
    named = unit_environment.values_of(words, "-f") or [MAIN]
    paths = (path for place in named for path in tree.matching(f"{place}/*.cfg") or [place]
             # All of HOME was read, so a missing path there is a directory without such files.
             if path == MAIN or tree.real(path) in tree.files or not path.startswith(HOME))  # fmt: skip
    return together(" ".join(named), [gather(tree, p, syntax.read) for p in paths])


def _listens(config: Config) -> Iterator[tuple[str, bool]]:
    """Yield HTTP addresses that forward to other hosts, and true if they use TLS."""
    forwards = {line.directive.within for name in ("server", "default_backend", "use_backend")
                for line in config.called(name)}  # fmt: skip
    for line in config.called("bind"):
        if line.directive.within in forwards and line.words:
            yield line.words[0], "ssl" in line.words


def _tunables(service: RunningService) -> Iterator[Tunable]:
    """Yield parameters in the file, or addable as one line in `global` or `defaults`."""
    config, host = service.config, service.host
    backlog = "bind backlog" if config.called("bind backlog") else "backlog"
    for section, name, directive, notation, default in (
        ("global", "nbthread", "nbthread", NUMBER, host.processors),
        ("global", "maxconn", "maxconn", NUMBER, None),
        ("global", "tune_bufsize", "tune.bufsize", NUMBER, 16384),
        ("defaults", "backlog", backlog, NUMBER, host.backlogs.get(str(service.port))),
        ("defaults", "shards", "bind shards", NUMBER, None),
        ("defaults", "retries", "retries", NUMBER, 3),
        ("defaults", "balance", "balance", WORD, "roundrobin"),
        ("defaults", "http_reuse", "http-reuse", WORD, "safe"),
        ("defaults", "server_maxconn", "server maxconn", NUMBER, 0),
        ("defaults", "pool_max_conn", "server pool-max-conn", SIGNED, -1),
        ("defaults", "pool_purge_delay", "server pool-purge-delay", MILLISECONDS, 5000),
        ("global", "busy_polling", "busy-polling", FLAG, False),
        ("defaults", "dontlog_normal", "option dontlog-normal", FLAG, False),
        ("defaults", "http_server_close", "option http-server-close", FLAG, False),
        *_timeouts(config),
    ):
        blocks = ("global",) if section == "global" else PROXIES
        written = directive.replace("server ", "default-server ")
        line, places = f"\n    {written}", below(config, section, only=True)
        before = line if notation is FLAG else f"{line} "
        absent = None if default is None else Absent(default, places, before)
        yield Tunable(name, directive, notation, blocks, absent=absent)


def _timeouts(config: Config) -> Iterator[tuple[str, str, str, Notation, Value | None]]:
    values: dict[str, Value | None] = {}
    for name, otherwise in _TIMEOUTS.items():
        words = {word for line in config.called(f"timeout {name}") for word in line.words[:1]}
        milliseconds = {MILLISECONDS.read(word) for word in words} or {values.get(otherwise)}
        values[name] = milliseconds.pop() if len(milliseconds) == 1 else None
        parameter = f"timeout_{name.replace('-', '_')}"
        yield "defaults", parameter, f"timeout {name}", MILLISECONDS, values[name]


_OF_SERVERS = ("maxconn", "pool-max-conn", "pool-purge-delay")
UNDERSTOOD = Understood(syntax.read, frozenset((
    "nbthread", "maxconn", "tune.bufsize", "backlog", "bind backlog", "bind shards", "retries",
    "balance", "http-reuse", "busy-polling", "option dontlog-normal", "option http-server-close",
    *(f"server {option}" for option in _OF_SERVERS), *(f"timeout {name}" for name in _TIMEOUTS),
)), writes=frozenset(("default-server",)))  # fmt: skip

ADOPTION = Adoption(
    known_as="HAProxy",
    units=(UNIT,),
    paths=(HOME[1:], "etc/default/haproxy", "etc/sysconfig/haproxy", *unit_files.paths(UNIT)),
    version="runs haproxy.service && haproxy -v | sed -n 's,^HAProxy version ,HAProxy ,p'",
    find=find,
    understood=UNDERSTOOD,
    tunables=_tunables,
)
