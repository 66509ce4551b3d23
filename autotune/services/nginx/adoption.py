"""Which directives of nginx are parameters, and what its files say of the stack."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from autotune.services import unit_environment
from autotune.services.adoption import (
    Adoption,
    RunningHost,
    RunningService,
    http_port,
    site_name,
)
from autotune.services.base import Role, Value
from autotune.services.config_files import Config, Tree, gather, included
from autotune.services.directives import (
    KILOBYTES,
    NUMBER,
    Absent,
    Accepts,
    Adopted,
    Edit,
    Position,
    Tunable,
    automatic,
    before,
    inside,
    joined,
    map_directives,
)
from autotune.services.nginx import syntax, upstreams
from autotune.services.nginx.directives import CACHES, CLIENTS, EVENTS, FILES, TLS, notation
from autotune.services.nginx.service import PARAMETERS
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
    tunables = (*_tunables(service),)
    command = unit_environment.words(service.host.tree, UNIT)  # `-g` has directives
    left = {tunable.parameter: f"the command of {UNIT} says it" for tunable in tunables
            if tunable.directive in command}  # fmt: skip
    adopted = map_directives(config, tunables, accepts, left)
    connections = adopted.values.get("worker_connections")
    return joined(
        adopted,
        upstreams.tune(config, service.role, accepts),
        _descriptors(config, connections) if connections else Adopted(),
        _listening(config, accepts),
        _access_log(config, accepts),
    )


_NAMED = {parameter.name: parameter for parameter in PARAMETERS}
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
        how = notation(_NAMED[name])
        line = rf'"\n    {name} " ~ {how.write(name)} ~ ";"'
        absent = Absent(_OWN.get(name, _NAMED[name].stock), inside(blocks[0]), line)
        yield Tunable(name, name, how, blocks, absent=absent)


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
    """``backlog``, ``reuseport`` and ``http2`` where an address is first listened at: nginx takes them
    once."""
    listens = [placed for placed in config.called("listen") if placed.words]
    options = {word.partition("=")[0] for placed in listens for word in placed.words}
    options |= {placed.name for placed in config.called("http2")}
    every: dict[str, Position] = {}
    tls: dict[str, Position] = {}
    for placed in listens:
        if not placed.words[0].startswith("unix:"):
            every.setdefault(_address(placed.words[0]), placed.end)
            if "ssl" in placed.words:
                tls.setdefault(_address(placed.words[0]), placed.end)
    adopted = Adopted()
    backlog = f'{{{{ " backlog=" ~ backlog if backlog != {BACKLOG} else "" }}}}'
    for name, default, text, first in (
        ("backlog", BACKLOG, backlog, every),
        ("reuseport", False, '{{ " reuseport" if reuseport else "" }}', every),
        ("http2", False, '{{ " http2" if http2 else "" }}', tls),
    ):
        if not first:
            adopted.left[name] = "there is no `listen`"
        elif name in options or not accepts(name, default):
            adopted.left[name] = f"`listen` has `{name}` already"
        else:
            edits = tuple(Edit.insertion(position, text) for position in first.values())
            adopted = joined(adopted, Adopted(edits, {name: default}))
    return adopted


def _address(word: str) -> str:
    """`80`, `*:80` and `0.0.0.0:80` are one place to listen at."""
    host, colon, port = word.rpartition(":")
    if word.endswith("]") or (not colon and not word.isdigit()):
        return f"{word}:80"
    return f"{'*' if host in ('', '0.0.0.0') else host}:{port}"  # noqa: S104  # compared, not bound


def _access_log(config: Config, accepts: Accepts) -> Adopted:
    """``buffer=`` behind every access log that is a plain file in a known format."""
    edits = []
    for placed in config.called("access_log"):
        path, *options = placed.words or ("off",)
        plain = not path.startswith(("off", "syslog:", "memory:")) and "$" not in path
        if not plain or len(options) > 1 or "=" in "".join(options):
            continue
        form = "" if options else " combined"
        text = (
            f'{{{{ "{form} buffer=" ~ access_log_buffer ~ "k flush=5s" '
            'if access_log_buffer else "" }}'
        )
        edits.append(Edit.insertion(placed.end, text))
    if not edits or not accepts("access_log_buffer", BUFFER):
        return Adopted(left={"access_log_buffer": "there is no `access_log` without a buffer"})
    return Adopted(tuple(edits), {"access_log_buffer": BUFFER})


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
    places: list[str] = []
    for placed in config.called(directive):
        word = (placed.words or ("",))[0]
        place = word.partition("://")[2] or word
        place = place if place.startswith("unix:") else place.partition("/")[0]
        places += servers.get(place, [place])
    return tuple(dict.fromkeys(places))


ADOPTION = Adoption(
    known_as="nginx",
    units=(UNIT,),
    paths=("etc/nginx",),
    version="runs nginx.service && nginx -v 2>&1 | sed -n 's,^nginx version: nginx/,nginx ,p'",
    find=find,
    tune=tune,
)
