"""Map nginx's directives to parameters, and find the servers in its files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain

from autotune.services import unit_environment
from autotune.services.adoption import (
    Adoption,
    RunningHost,
    RunningService,
    at_http_port,
    site_name,
)
from autotune.services.base import Role, Value
from autotune.services.config_files import Config, PlacedDirective, Tree, gather, included
from autotune.services.directives import (
    FLAG,
    KILOBYTES,
    NUMBER,
    ON_OFF,
    Absent,
    Edit,
    Position,
    Tunable,
    automatic,
    before,
    inserted,
    inside,
)
from autotune.services.nginx import syntax
from autotune.services.nginx.service import (
    CACHES,
    CLIENTS,
    DIRECTIVES,
    EVENTS,
    FILES,
    PARAMETERS,
    TLS,
)
from autotune.services.understood import Understood
from autotune.strict import is_whole

UNIT, MAIN = "nginx.service", "/etc/nginx/nginx.conf"
_FORWARDS = r"(?:proxy|grpc|scgi|\w?wsgi)_pass"
BACKLOG, BUFFER = 511, 0  # nginx's defaults on Linux


def read(tree: Tree) -> Config:
    return gather(tree, MAIN, syntax.read, included)


def find(host: RunningHost) -> Iterator[RunningService | str]:
    if not host.runs(UNIT):
        return
    command = unit_environment.words(host.tree, UNIT)
    if {*unit_environment.values_of(command, "-c")} - {MAIN}:
        yield f"nginx is not tuned: {UNIT} does not read {MAIN}"
        return
    config = read(host.tree)
    to_proxy = _passes(config)
    running = RunningService(
        host=host,
        key="nginx",
        config=config,
        kind="lb" if to_proxy else "web",
        behind=to_proxy,
        gateway="fastcgi" if config.called("fastcgi_pass") else "",
        site=site_name(word for placed in config.called("server_name") for word in placed.words),
    )
    yield at_http_port(running, "nginx", _listens(config))


def _tunables(service: RunningService) -> Iterator[Tunable]:
    """Yield every parameter in these files. `auto` means the number of the host's processors."""
    config = service.config
    kept = _to_web(config) if service.role is Role.PROXY else _to_pools(config)
    command = unit_environment.words(service.host.tree, UNIT)  # `-g` contains directives
    why = f"the command of {UNIT} sets it"
    for tunable in chain(_directives(service), kept, _listening(config), [_access_log(config)]):
        yield replace(tunable, left=why) if tunable.directive in command else tunable


def _directives(service: RunningService) -> Iterator[Tunable]:
    config, processors = service.config, service.host.processors
    yield Tunable("worker_processes", "worker_processes", automatic(processors), ("",),
                  absent=Absent(1, before(config, "events"), "worker_processes ", ";\n"))  # fmt: skip
    # nginx's default; Debian's file sets another number.
    absent = Absent(512, inside(config, "events"), "\n    worker_connections ", ";")
    yield Tunable("worker_connections", "worker_connections", NUMBER, ("events",), absent,
                  also=_descriptors)  # fmt: skip
    yield from _in_blocks(config, EVENTS, "events")
    yield from _in_blocks(config, CLIENTS, "http", "server", "location")
    if service.role is not Role.PROXY:
        # Only if no file sets any: nginx refuses a busy size below the first buffer or near the sum.
        unsaid = not any(placed.name.startswith("fastcgi_b") for placed in config.directives)
        http = inside(config, "http") if unsaid else []
        first = "\n    fastcgi_busy_buffers_size 16k;\n    fastcgi_buffer_size "
        yield Tunable("fastcgi_buffer_size", "fastcgi_buffer_size", KILOBYTES,
                      absent=Absent(4, http, first, ";"))  # fmt: skip
        yield Tunable("fastcgi_buffers", "fastcgi_buffers", NUMBER,
                      counts=lambda placed: placed.words[1:] == ("4k",),
                      absent=Absent(8, http, "\n    fastcgi_buffers ", " 4k;"))  # fmt: skip
    spoken = any("ssl" in placed.words for placed in config.called("listen"))
    cache = CACHES[service.role]
    cached = config.called(cache) and config.called(f"{cache}_path")
    own = (*FILES, *(TLS if spoken else ()), *((f"{cache}_lock",) if cached else ()))
    yield from _in_blocks(config, own, "http", "server", "location")


def _in_blocks(config: Config, names: Iterable[str], *blocks: str) -> Iterator[Tunable]:
    """Yield tunable directives. Missing ones are added to the first block in ``blocks``."""
    for name in names:
        stock, notation = DIRECTIVES[name]
        absent = Absent(stock, inside(config, blocks[0]), f"\n    {name} ", ";")
        yield Tunable(name, name, notation, blocks, absent)


def _descriptors(config: Config, connections: Value) -> Iterable[Edit]:
    """Raise the descriptor limit for more connections: two per connection, and some for files."""
    needed, more = "2 * worker_connections + 64", f"worker_connections > {connections}"
    limits = config.called("worker_rlimit_nofile")
    if len(limits) == 1 and limits[0].words and is_whole(now := limits[0].words[0]):
        text = f'{{{{ [{int(now)}, {needed}] | max if {more} else "{now}" }}}}'
        return [Edit.exchange(limits[0], text)]
    line = rf'"worker_rlimit_nofile " ~ ({needed}) ~ ";\n"'
    return inserted(before(config, "events") if not limits else (), line, more)


def _listening(config: Config) -> Iterator[Tunable]:
    """Yield options that nginx accepts once per address. They go to its first `listen`."""
    listens = [placed for placed in config.called("listen") if placed.words]
    options = {word.partition("=")[0] for placed in listens for word in placed.words}
    options |= {placed.name for placed in config.called("http2")}
    of_tcp = [p for p in reversed(listens) if not p.words[0].startswith("unix:")]
    of_tls = [placed for placed in of_tcp if "ssl" in placed.words]
    for name, notation, default, text, some in (
        ("backlog", NUMBER, BACKLOG, " backlog=", of_tcp),
        ("reuseport", FLAG, False, " reuseport", of_tcp),
        ("http2", FLAG, False, " http2", of_tls),
    ):
        ends = {_address(placed.words[0]): placed.end for placed in some}
        left = f"`listen` already sets `{name}`" if name in options else ""
        yield Tunable(name, "listen", notation, (), left=left if some else "",
                      absent=Absent(default, [*ends.values()], text))  # fmt: skip


def _address(word: str) -> str:
    """Return a canonical address: `80`, `*:80` and `0.0.0.0:80` are the same."""
    host, colon, port = word.rpartition(":")
    if word.endswith("]") or (not colon and not word.isdigit()):
        return f"{word}:80"
    return f"{'*' if host in ('', '0.0.0.0') else host}:{port}"  # noqa: S104  # compared, not bound


def _access_log(config: Config) -> Tunable:
    """Add ``buffer=`` to every access log that is a plain file in a known format."""
    name = "access_log_buffer"

    def is_plain(path: str = "off", *options: str) -> bool:
        file = not path.startswith(("off", "syslog:", "memory:")) and "$" not in path
        return file and len(options) <= 1 and "=" not in "".join(options)

    def combined(*_: object) -> Iterable[Edit]:
        return inserted((p.end for p in plain if len(p.words) == 1), '" combined"', name)

    plain = [placed for placed in config.called("access_log") if is_plain(*placed.words)]
    absent = Absent(BUFFER, [placed.end for placed in plain], " buffer=", " flush=5s")
    left = "" if plain else "no unbuffered `access_log` exists"
    return Tunable(name, "access_log", KILOBYTES, (), absent, left=left, also=combined)


# -- persistent connections to upstream servers ---------------------------------------------------
# `keepalive` follows the balancing method of an upstream. It needs HTTP/1.1 without `Connection:
# close`, or `fastcgi_keep_conn` for PHP-FPM (nginx.org, ngx_http_upstream_module).

_KEPT = "upstream_keepalive"
_HTTP = r"""'\n    proxy_http_version 1.1;\n    proxy_set_header Connection "";'"""
_HEADER = r"""'proxy_set_header Connection "";\n    '"""


def _to_web(config: Config) -> Iterator[Tunable]:
    kept = any(placed.block == "upstream" for placed in config.called("keepalive"))
    ends = _ends(config, "proxy_pass") if not kept and inside(config, "http") else []
    headers = {p.words[0].lower() for p in config.called("proxy_set_header") if p.words}
    left = "" if kept or ends else "no `upstream` for `keepalive` exists"
    if not kept and ("connection" in headers or config.called("proxy_http_version")):
        left = "the site sets its own `proxy_http_version` or `Connection` header for its upstreams"
    absent = Absent(0, ends, "\n        keepalive ", ";")
    yield Tunable(_KEPT, "keepalive", NUMBER, ("upstream",), absent, left=left,
                  also=_or_none if kept else _without_close)  # fmt: skip
    absent = Absent(1000, ends, "\n        keepalive_requests ", ";", _KEPT)
    yield Tunable(
        f"{_KEPT}_requests", "keepalive_requests", NUMBER, ("upstream",), absent, left=left
    )


def _to_pools(config: Config) -> Iterator[Tunable]:
    ends, name = _ends(config, "fastcgi_pass"), "fastcgi_keep_conn"
    http = inside(config, "http") if ends else []
    absent = Absent(default=False, places=http, before=f"\n    {name} ", after=";")
    yield Tunable(name, name, ON_OFF, absent=absent)
    absent = Absent(8, ends, "\n        keepalive ", ";", name)
    yield Tunable("fastcgi_keepalive", "keepalive", NUMBER, ("upstream",), absent)


def _ends(config: Config, directive: str) -> list[Position]:
    """Return the end of each upstream of ``directive``, or none if one has `keepalive…`."""
    named = _named(config, directive)
    led_to = [inner for name, inner in _upstreams(config).items() if name in named]
    if any(placed.name.startswith("keepalive") for inner in led_to for placed in inner):
        return []
    return [_behind(config, inner[-1]) for inner in led_to]


def _behind(config: Config, placed: PlacedDirective) -> Position:
    """Return the position after the `;` that ends a directive."""
    path, end = placed.end
    return path, config.texts[path].index(";", end) + 1


def _or_none(config: Config, connections: Value) -> Iterator[Edit]:
    """Omit `keepalive 0` unless the file itself has it: not every version accepts it."""
    if not connections:
        return
    for placed in config.called("keepalive"):
        if placed.block == "upstream":
            begin = placed.path, placed.directive.name.start
            yield Edit.insertion(begin, f"{{%+ if {_KEPT} %}}")
            yield Edit.insertion(_behind(config, placed), "{% endif +%}")


def _without_close(config: Config, _: Value) -> Iterator[Edit]:
    """Yield edits for HTTP/1.1 without `Connection: close`, also in blocks with their own headers."""
    yield from inserted(inside(config, "http"), _HTTP, _KEPT)
    before = None
    for placed in config.directives:
        block = (placed.name, placed.path, placed.directive.within)
        if placed.name == "proxy_set_header" and block != before:
            yield from inserted([(placed.path, placed.directive.name.start)], _HEADER, _KEPT)
        before = block


# -- connected servers --------------------------------------------------------------------------


def _listens(config: Config) -> Iterator[tuple[str, bool]]:
    """Yield HTTP addresses, and true if they use TLS. Default servers come first."""
    if config.called("server") and not config.called("listen"):
        yield "80", False  # nginx's default for root
    listens = [placed.words for placed in config.called("listen") if placed.words]
    for words in sorted(listens, key=lambda words: "default_server" not in words):
        if not words[0].startswith("unix:"):
            yield _address(words[0]), "ssl" in words


def _passes(config: Config) -> tuple[str, ...]:
    """Return the addresses that requests are forwarded to, with upstreams resolved."""
    servers = {
        name: [placed.words[0] for placed in inner if placed.name == "server" and placed.words]
        for name, inner in _upstreams(config).items()
    }
    named = _named(config, _FORWARDS)
    return tuple(dict.fromkeys(p for name in named for p in servers.get(name) or [name]))


def _named(config: Config, directives: str) -> list[str]:
    """Return the upstreams or addresses in the URLs of directives that match a pattern."""
    named = [placed for placed in config.directives if re.fullmatch(directives, placed.name)]
    words = [(placed.words or ("",))[0] for placed in named]
    places = [word.partition("://")[2] or word for word in words]
    return [p if p.startswith("unix:") else p.partition("/")[0] for p in places]


def _upstreams(config: Config) -> Mapping[str, list[PlacedDirective]]:
    """Return the directives in each upstream by name. nginx refuses an upstream without a name."""
    upstreams: dict[str, list[PlacedDirective]] = {}
    for placed in config.directives:
        for name in placed.directive.within[-1][1:] if placed.block == "upstream" else ():
            upstreams.setdefault(name, []).append(placed)
    return upstreams


# Other blocks, such as `map`, contain keys and values.
_BLOCKS = frozenset(("events", "http", "server", "location", "upstream", "if", "limit_except", "stream",
                     "mail", "types"))  # fmt: skip
UNDERSTOOD = Understood(
    syntax.read,
    frozenset((*(p.name for p in PARAMETERS), "listen", "keepalive", "worker_rlimit_nofile")),
    blocks=_BLOCKS,
    reads=frozenset(("listen",)),
    writes=frozenset(("auto", "max", "shared", "autotune", "access_log", "combined", "buffer", "flush",
        "fastcgi_busy_buffers_size", "proxy_http_version 1.1;", 'proxy_set_header Connection "";')),
)  # fmt: skip

ADOPTION = Adoption(
    known_as="nginx",
    units=(UNIT,),
    paths=("etc/nginx",),
    version="runs nginx.service && nginx -v 2>&1 | sed -n 's,^nginx version: nginx/,nginx ,p'",
    find=find,
    understood=UNDERSTOOD,
    tunables=_tunables,
)
