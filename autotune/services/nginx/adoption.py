"""Which directives of nginx are parameters, and what its files say of the stack."""

from __future__ import annotations

from collections.abc import Iterator

from autotune.services.adoption import Adoption, RunningHost, RunningService
from autotune.services.base import Role, Value
from autotune.services.config_files import Config, PlacedDirective, Tree, gather, included
from autotune.services.directives import (
    KILOBYTES,
    NUMBER,
    ON_OFF,
    SECONDS,
    WORD,
    Absent,
    Accepts,
    Adopted,
    Edit,
    Notation,
    Tunable,
    automatic,
    before,
    inside,
    joined,
    map_directives,
)
from autotune.services.nginx import syntax

MAIN = "/etc/nginx/nginx.conf"
OF_CLIENTS = ("http", "server", "location")
BACKLOG, BUFFER = 511, 0  # nginx' own on Linux


def read(tree: Tree) -> Config:
    return gather(tree, MAIN, syntax.read, included)


def find(host: RunningHost) -> Iterator[RunningService | str]:
    if not host.runs("nginx.service"):
        return
    config = read(host.tree)
    listening = ports(config)
    if not listening:
        yield "nginx listens nowhere without TLS, which autotune's load does not speak"
        return
    to_proxy = passes(config, "proxy_pass")
    yield RunningService(
        host=host,
        key="nginx",
        config=config,
        kind="lb" if to_proxy else "web",
        port=listening[0],
        behind=to_proxy,
        gateway="fastcgi" if passes(config, "fastcgi_pass") else "",
    )


def tune(service: RunningService, accepts: Accepts) -> Adopted:
    """Every parameter of nginx in these files; its `auto` comes to the host's processors."""
    config = service.config
    adopted = map_directives(config, _tunables(service.role, service.host.processors), accepts)
    for special in (_descriptors, _listening, _access_log):
        adopted = joined(adopted, special(config, adopted, accepts))
    return adopted


def _tunables(role: Role, processors: int) -> Iterator[Tunable]:
    yield Tunable("worker_processes", "worker_processes", automatic(processors), ("",),
                  absent=Absent(1, before("events"),
                                r'"worker_processes " ~ worker_processes ~ ";\n"'))  # fmt: skip
    yield Tunable("worker_connections", "worker_connections", NUMBER, ("events",),
                  absent=_line("events", "worker_connections", NUMBER, 512))  # fmt: skip
    for name, default in (("multi_accept", False), ("accept_mutex", False)):
        yield Tunable(
            name, name, ON_OFF, ("events",), absent=_line("events", name, ON_OFF, default)
        )
    yield Tunable("use", "use", WORD, ("events",), absent=_line("events", "use", WORD, "epoll"))
    yield Tunable("keepalive_timeout", "keepalive_timeout", SECONDS, OF_CLIENTS,
                  absent=_line("http", "keepalive_timeout", SECONDS, 75))  # fmt: skip
    yield Tunable("keepalive_requests", "keepalive_requests", NUMBER, OF_CLIENTS,
                  absent=_line("http", "keepalive_requests", NUMBER, 1000))  # fmt: skip
    if role is Role.PROXY:
        yield Tunable("upstream_keepalive", "keepalive", NUMBER, ("upstream",))
        yield Tunable("upstream_keepalive_requests", "keepalive_requests", NUMBER, ("upstream",))
        return
    yield Tunable("fastcgi_keepalive", "keepalive", NUMBER, ("upstream",))
    yield Tunable("fastcgi_keep_conn", "fastcgi_keep_conn", ON_OFF)
    yield Tunable("fastcgi_buffer_size", "fastcgi_buffer_size", KILOBYTES,
                  absent=Absent(4, _without_buffers, _BUFFER_SIZE))  # fmt: skip
    yield Tunable("fastcgi_buffers", "fastcgi_buffers", NUMBER,
                  counts=lambda seen: seen.words[1:] == ("4k",),
                  absent=Absent(8, _without_buffers,
                                r'"\n    fastcgi_buffers " ~ fastcgi_buffers ~ " 4k;"'))  # fmt: skip


# nginx refuses less for busy buffers than the first one, and nearly all that there are.
_BUFFER_SIZE = (
    r'"\n    fastcgi_buffer_size " ~ fastcgi_buffer_size ~ "k;\n    fastcgi_busy_buffers_size " ~ '
    r'([8, fastcgi_buffer_size] | max) ~ "k;"'
)


def _line(block: str, name: str, notation: Notation, default: Value) -> Absent:
    return Absent(default, inside(block), rf'"\n    {name} " ~ {notation.write(name)} ~ ";"')


def _without_buffers(config: Config) -> tuple[str, int] | None:
    """In ``http``, where nothing is said of buffers anywhere: their sizes depend on each other."""
    if any(seen.name.startswith("fastcgi_b") for seen in config.seen):
        return None
    return inside("http")(config)


def _descriptors(config: Config, adopted: Adopted, _: Accepts) -> Adopted:
    """More connections than today need more descriptors: two for each, and some for files."""
    now = adopted.values.get("worker_connections")
    if now is None or config.called("worker_rlimit_nofile"):
        return Adopted()
    position = before("events")(config)
    if position is None:
        return Adopted()
    text = (
        '{{ "worker_rlimit_nofile " ~ (2 * worker_connections + 64) ~ ";\\n" '
        f'if worker_connections > {now} else "" }}}}'
    )
    return Adopted((Edit(*position, position[1], text),))


def _listening(config: Config, _: Adopted, accepts: Accepts) -> Adopted:
    """``backlog`` and ``reuseport`` where an address is first listened at: nginx takes them once."""
    places: dict[str, list[PlacedDirective]] = {}
    for seen in config.called("listen"):
        if seen.words and not seen.words[0].startswith("unix:"):
            places.setdefault(_address(seen.words[0]), []).append(seen)
    options = {word.partition("=")[0] for seen in config.called("listen") for word in seen.words}
    edits: list[Edit] = []
    values: dict[str, Value] = {}
    left: dict[str, str] = {}
    if not places:
        return Adopted(left=dict.fromkeys(("backlog", "reuseport"), "there is no `listen`"))
    for name, default, text in (
        ("backlog", BACKLOG, f'{{{{ " backlog=" ~ backlog if backlog != {BACKLOG} else "" }}}}'),
        ("reuseport", False, '{{ " reuseport" if reuseport else "" }}'),
    ):
        if name in options or not accepts(name, default):
            left[name] = f"`listen` has `{name}` already"
            continue
        values[name] = default
        for first, *_rest in places.values():
            end = first.directive.arguments[-1].end
            edits.append(Edit(first.path, end, end, text))
    return Adopted(tuple(edits), values, left)


def _address(word: str) -> str:
    """`80`, `*:80` and `0.0.0.0:80` are one place to listen at."""
    host, colon, port = word.rpartition(":")
    if word.endswith("]") or (not colon and not word.isdigit()):
        return f"{word}:80"
    return f"{'*' if host in ('', '0.0.0.0') else host}:{port}"  # noqa: S104  # compared, not bound


def _access_log(config: Config, _: Adopted, accepts: Accepts) -> Adopted:
    """``buffer=`` behind every access log that is a plain file in a known format."""
    edits = []
    for seen in config.called("access_log"):
        words = seen.words
        plain = (
            words and not words[0].startswith(("off", "syslog:", "memory:")) and "$" not in words[0]
        )
        if not plain or len(words) > 2 or "=" in "".join(words[1:]):
            continue
        form = "" if len(words) == 2 else " combined"
        end = seen.directive.arguments[-1].end
        text = (
            f'{{{{ "{form} buffer=" ~ access_log_buffer ~ "k flush=5s" '
            'if access_log_buffer else "" }}'
        )
        edits.append(Edit(seen.path, end, end, text))
    if not edits or not accepts("access_log_buffer", BUFFER):
        return Adopted(left={"access_log_buffer": "there is no `access_log` without a buffer"})
    return Adopted(tuple(edits), {"access_log_buffer": BUFFER})


# -- what is said of the stack --------------------------------------------------------------------


def ports(config: Config) -> tuple[int, ...]:
    """Where plain HTTP is spoken, the port of a default server first."""
    if config.called("server") and not config.called("listen"):
        return (80,)  # nginx' own, as root
    numbers = [
        (("default_server" in seen.words), int(port))
        for seen in config.called("listen")
        if seen.words and "ssl" not in seen.words and not seen.words[0].startswith("unix:")
        and (port := _address(seen.words[0]).rpartition(":")[2]).isdigit()
    ]  # fmt: skip
    return tuple(dict.fromkeys(port for _, port in sorted(numbers, key=lambda one: not one[0])))


def passes(config: Config, directive: str) -> tuple[str, ...]:
    """Where ``proxy_pass``, ``fastcgi_pass`` or ``memcached_pass`` lead, upstreams looked up."""
    servers: dict[str, list[str]] = {}
    for seen in config.called("server"):
        if seen.block == "upstream" and seen.words:
            servers.setdefault(seen.directive.within[-1][1], []).append(seen.words[0])
    places: list[str] = []
    for seen in config.called(directive):
        place = (seen.words or ("",))[0].partition("://")[2] or (seen.words or ("",))[0]
        place = place if place.startswith("unix:") else place.partition("/")[0]
        places += servers.get(place, [place])
    return tuple(dict.fromkeys(places))


ADOPTION = Adoption(
    known_as="nginx",
    units=("nginx.service",),
    paths=("etc/nginx",),
    version="runs nginx.service && nginx -v 2>&1 | sed -n 's,^nginx version: nginx/,nginx ,p'",
    find=find,
    tune=tune,
)
