"""Which directives of nginx are parameters, and what its files say of the stack."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from autotune.services import unit_environment
from autotune.services.adoption import Adoption, RunningHost, RunningService, http_port, site_name
from autotune.services.base import Role, Value
from autotune.services.config_files import Config, Tree, gather, included
from autotune.services.directives import (
    KILOBYTES,
    NUMBER,
    ON_OFF,
    Absent,
    Accepts,
    Adopted,
    Edit,
    Position,
    Tunable,
    added,
    automatic,
    before,
    inside,
    joined,
    map_directives,
)
from autotune.services.nginx import syntax
from autotune.services.nginx.service import CACHES, CLIENTS, DIRECTIVES, EVENTS, FILES, TLS
from autotune.strict import is_whole

UNIT, MAIN = "nginx.service", "/etc/nginx/nginx.conf"
_FORWARDS = re.compile(r"(?:proxy|grpc|scgi|\w?wsgi)_pass")
BACKLOG, BUFFER = 511, 0  # nginx' own on Linux


def read(tree: Tree) -> Config:
    return gather(tree, MAIN, syntax.read, included)


def find(host: RunningHost) -> Iterator[RunningService | str]:
    if not host.runs(UNIT):
        return
    command = unit_environment.words(host.tree, UNIT)
    if {*unit_environment.values_of(command, "-c")} - {MAIN}:
        yield f"{UNIT} does not read {MAIN}: nginx is not tuned"
        return
    config = read(host.tree)
    place = http_port(_listens(config))
    if place is None:
        unread = "".join(f" ({path}: {why})" for path, why in config.unread.items())
        yield f"nginx listens at no TCP port{unread}: not adopted, `load: {{url: …}}` by hand"
        return
    forwards = sorted({p.name for p in config.directives if _FORWARDS.fullmatch(p.name)})
    to_proxy = tuple(place for name in forwards for place in passes(config, name))
    yield RunningService(
        host=host,
        key="nginx",
        config=config,
        kind="lb" if to_proxy else "web",
        port=place[0],
        behind=to_proxy,
        gateway="fastcgi" if passes(config, "fastcgi_pass") else "",
        tls=place[1],
        site=site_name(word for placed in config.called("server_name") for word in placed.words),
    )


def tune(service: RunningService, accepts: Accepts) -> Adopted:
    """Every parameter of nginx in these files; its `auto` comes to the host's processors."""
    config = service.config
    command = unit_environment.words(service.host.tree, UNIT)  # `-g` has directives
    why = f"the command of {UNIT} says it"
    tunables = (replace(tunable, left=why if tunable.directive in command else "")
                for tunable in _tunables(service))  # fmt: skip
    adopted = map_directives(config, tunables, accepts)
    connections = adopted.values.get("worker_connections")
    return joined(
        adopted,
        _to_web(config, accepts) if service.role is Role.PROXY else _to_pools(config, accepts),
        _descriptors(config, connections) if connections else Adopted(),
        _listening(config, accepts),
        _access_log(config, accepts),
    )


_OWN = {"worker_connections": 512}  # nginx' own value, where Debian's file has another
# nginx refuses less for busy buffers than the first one, and nearly all that there are.
_BUFFER_SIZE = (
    r'"\n    fastcgi_buffer_size " ~ fastcgi_buffer_size ~ "k;\n    fastcgi_busy_buffers_size " ~ '
    r'([8, fastcgi_buffer_size] | max) ~ "k;"'
)
_BUFFERS = r'"\n    fastcgi_buffers " ~ fastcgi_buffers ~ " 4k;"'
_WORKERS = r'"worker_processes " ~ worker_processes ~ ";\n"'


def _tunables(service: RunningService) -> Iterator[Tunable]:
    config, processors = service.config, service.host.processors
    yield Tunable("worker_processes", "worker_processes", automatic(processors), ("",),
                  absent=Absent(1, before("events"), _WORKERS))  # fmt: skip
    yield from _in_blocks(EVENTS, "events")
    yield from _in_blocks(CLIENTS, "http", "server", "location")
    if service.role is not Role.PROXY:
        yield Tunable("fastcgi_buffer_size", "fastcgi_buffer_size", KILOBYTES,
                      absent=Absent(4, _without_buffers, _BUFFER_SIZE))  # fmt: skip
        yield Tunable("fastcgi_buffers", "fastcgi_buffers", NUMBER,
                      counts=lambda placed: placed.words[1:] == ("4k",),
                      absent=Absent(8, _without_buffers, _BUFFERS))  # fmt: skip
    spoken = any("ssl" in placed.words for placed in config.called("listen"))
    cache = CACHES[service.role]
    cached = config.called(cache) and config.called(f"{cache}_path")
    own = (*FILES, *(TLS if spoken else ()), *((f"{cache}_lock",) if cached else ()))
    yield from _in_blocks(own, "http", "server", "location")


def _in_blocks(names: Iterable[str], *blocks: str) -> Iterator[Tunable]:
    """Directives that go to the first of their blocks where they are missing."""
    for name in names:
        stock, notation = DIRECTIVES[name]
        line = rf'"\n    {name} " ~ {notation.write(name)} ~ ";"'
        absent = Absent(_OWN.get(name, stock), inside(blocks[0]), line)
        yield Tunable(name, name, notation, blocks, absent=absent)


def _without_buffers(config: Config) -> Position | None:
    """In ``http``, where nothing is said of buffers anywhere: their sizes depend on each other."""
    if any(placed.name.startswith("fastcgi_b") for placed in config.directives):
        return None
    return inside("http")(config)


def _descriptors(config: Config, connections: Value) -> Adopted:
    """More connections than today need more descriptors: two for each, and some for files."""
    needed, more = "2 * worker_connections + 64", f"worker_connections > {connections}"
    limits, position = config.called("worker_rlimit_nofile"), before("events")(config)
    if len(limits) == 1 and limits[0].words and is_whole(now := limits[0].words[0]):
        text = f'{{{{ [{int(now)}, {needed}] | max if {more} else "{now}" }}}}'
        return Adopted((Edit.exchange(limits[0], text),))
    if limits or position is None:
        return Adopted()
    text = f'{{{{ "worker_rlimit_nofile " ~ ({needed}) ~ ";\\n" if {more} else "" }}}}'
    return Adopted((Edit.insertion(position, text),))


def _listening(config: Config, accepts: Accepts) -> Adopted:
    """What nginx takes once, where an address is first listened at."""
    listens = [placed for placed in config.called("listen") if placed.words]
    options = {word.partition("=")[0] for placed in listens for word in placed.words}
    options |= {placed.name for placed in config.called("http2")}
    of_tcp = [p for p in reversed(listens) if not p.words[0].startswith("unix:")]
    of_tls = [placed for placed in of_tcp if "ssl" in placed.words]
    parts = []
    for name, default, text, condition, some in (
        ("backlog", BACKLOG, '" backlog=" ~ backlog', f"backlog != {BACKLOG}", of_tcp),
        ("reuseport", False, '" reuseport"', "reuseport", of_tcp),
        ("http2", False, '" http2"', "http2", of_tls),
    ):
        ends = {_address(placed.words[0]): placed.end for placed in some if name not in options}
        why = f"`listen` has `{name}` already" if some else "there is no `listen`"
        places = [(end, text) for end in ends.values()]
        parts.append(added(places, condition, {name: default}, accepts, why))
    return joined(*parts)


def _address(word: str) -> str:
    """`80`, `*:80` and `0.0.0.0:80` are one place to listen at."""
    host, colon, port = word.rpartition(":")
    if word.endswith("]") or (not colon and not word.isdigit()):
        return f"{word}:80"
    return f"{'*' if host in ('', '0.0.0.0') else host}:{port}"  # noqa: S104  # compared, not bound


def _access_log(config: Config, accepts: Accepts) -> Adopted:
    """``buffer=`` behind every access log that is a plain file in a known format."""
    places = []
    for placed in config.called("access_log"):
        path, *options = placed.words or ("off",)
        plain = not path.startswith(("off", "syslog:", "memory:")) and "$" not in path
        if plain and len(options) <= 1 and "=" not in "".join(options):
            form = "" if options else " combined"
            text = f'"{form} buffer=" ~ access_log_buffer ~ "k flush=5s"'
            places.append((placed.end, text))
    why = "there is no `access_log` without a buffer"
    return added(places, "access_log_buffer", {"access_log_buffer": BUFFER}, accepts, why)


# -- connections kept to the servers behind -------------------------------------------------------
#
# `keepalive` is in an upstream, behind the method that it balances by. Web servers then have to be asked
# in HTTP/1.1 without `Connection: close`, PHP-FPM with `fastcgi_keep_conn`
# (nginx.org, ngx_http_upstream_module).

_KEPT = "upstream_keepalive"
_TO_WEB = (
    r'"\n        keepalive " ~ upstream_keepalive ~ ";\n        keepalive_requests " ~'
    r' upstream_keepalive_requests ~ ";"'
)
_TO_POOL = r'"\n        keepalive " ~ fastcgi_keepalive ~ ";"'
_HTTP = r"""'\n    proxy_http_version 1.1;\n    proxy_set_header Connection "";'"""
_HEADER = r"""'proxy_set_header Connection "";\n    '"""
_NOWHERE = "there is no `upstream` to have a `keepalive`"


def _to_web(config: Config, accepts: Accepts) -> Adopted:
    requests = "upstream_keepalive_requests"
    if any(p.block == "upstream" for p in config.called("keepalive")):
        adopted = map_directives(
            config,
            (Tunable(_KEPT, "keepalive", NUMBER, ("upstream",)),
             Tunable(requests, "keepalive_requests", NUMBER, ("upstream",))),
            accepts,
        )  # fmt: skip
        return replace(adopted, edits=tuple(_with_directive(config, e) for e in adopted.edits))
    ends = _ends(config, "proxy_pass")
    headers = {p.words[0].lower() for p in config.called("proxy_set_header") if p.words}
    if "connection" in headers or config.called("proxy_http_version"):
        why = "the site has its own `proxy_http_version` or `Connection` for what is behind it"
        return Adopted(left={_KEPT: why, requests: why})
    http = inside("http")(config)
    places = [(end, _TO_WEB) for end in ends] + [(place, _HEADER) for place in _headers(config)]
    places = [*places, (http, _HTTP)] if http and ends else []
    return added(places, _KEPT, {_KEPT: 0, requests: 1000}, accepts, _NOWHERE)


def _to_pools(config: Config, accepts: Accepts) -> Adopted:
    ends, line = _ends(config, "fastcgi_pass"), r'"\n    fastcgi_keep_conn on;"'
    switch = Absent(default=False, position=inside("http"), text=line) if ends else None
    kept = map_directives(
        config,
        (Tunable("fastcgi_keep_conn", "fastcgi_keep_conn", ON_OFF, absent=switch),
         Tunable("fastcgi_keepalive", "keepalive", NUMBER, ("upstream",))),
        accepts,
    )  # fmt: skip
    if "fastcgi_keepalive" in kept.values or "fastcgi_keep_conn" not in kept.values or not ends:
        return kept
    places, values = [(end, _TO_POOL) for end in ends], {"fastcgi_keepalive": 8}
    new = added(places, "fastcgi_keep_conn", values, accepts, _NOWHERE)
    return Adopted((*kept.edits, *new.edits), {**kept.values, **new.values}, new.left)


def _ends(config: Config, directive: str) -> list[Position]:
    """Where each upstream ends that ``directive`` leads to, none of which says how much it keeps."""
    names = {*_named(config, directive)}
    ends: dict[str, Position] = {}
    for placed in config.directives:
        if placed.block != "upstream" or not names & {*placed.directive.within[-1][1:]}:
            continue
        if placed.name.startswith("keepalive"):
            return []
        path, end = placed.end
        ends[placed.directive.within[-1][1]] = path, config.texts[path].index(";", end) + 1
    return [*ends.values()]


def _headers(config: Config) -> Iterator[Position]:
    """Where each block begins to set headers: it then sets none of those of the blocks around it."""
    before = None
    for placed in config.directives:
        block = (placed.name, placed.path, placed.directive.within)
        if placed.name == "proxy_set_header" and block != before:
            yield placed.path, placed.directive.name.start
        before = block


def _with_directive(config: Config, edit: Edit) -> Edit:
    """Of the number that is kept, the whole directive: nginx takes no `keepalive 0`."""
    text = config.texts[edit.path]
    start, end = text.rindex("keepalive", 0, edit.start), text.index(";", edit.end) + 1
    head, tail = text[start : edit.start], text[edit.end : end]
    if edit.text != f"{{{{ {_KEPT} }}}}" or head.rstrip() != "keepalive" or tail.lstrip() != ";":
        return edit
    line = f'{{{{ "{head}" ~ {_KEPT} ~ "{tail}" if {_KEPT} else "" }}}}'
    return Edit(edit.path, start, end, line)


# -- the stack around it --------------------------------------------------------------------------


def _listens(config: Config) -> Iterator[tuple[str, bool]]:
    """Where HTTP is spoken, and whether over TLS, at a default server first."""
    if config.called("server") and not config.called("listen"):
        yield "80", False  # nginx' own, as root
    listens = [placed.words for placed in config.called("listen") if placed.words]
    for words in sorted(listens, key=lambda words: "default_server" not in words):
        if not words[0].startswith("unix:"):
            yield _address(words[0]), "ssl" in words


def passes(config: Config, directive: str) -> tuple[str, ...]:
    """Where ``proxy_pass``, ``fastcgi_pass`` or ``memcached_pass`` lead, upstreams looked up."""
    servers: dict[str, list[str]] = {}
    for placed in config.called("server"):
        if placed.block == "upstream" and placed.words:
            for name in placed.directive.within[-1][1:]:  # none where nginx would refuse the file
                servers.setdefault(name, []).append(placed.words[0])
    places = (place for name in _named(config, directive) for place in servers.get(name, [name]))
    return tuple(dict.fromkeys(places))


def _named(config: Config, directive: str) -> Iterator[str]:
    """The upstreams or places that a directive has in its URLs."""
    for placed in config.called(directive):
        word = (placed.words or ("",))[0]
        place = word.partition("://")[2] or word
        yield place if place.startswith("unix:") else place.partition("/")[0]


ADOPTION = Adoption(
    known_as="nginx",
    units=(UNIT,),
    paths=("etc/nginx",),
    version="runs nginx.service && nginx -v 2>&1 | sed -n 's,^nginx version: nginx/,nginx ,p'",
    find=find,
    tune=tune,
)
