"""Connections that nginx keeps to the servers behind it: tuned where a site has them, or could.

`keepalive` is in an upstream, behind the method that it balances by. Web servers then have to be asked
in HTTP/1.1 without `Connection: close`, PHP-FPM with `fastcgi_keep_conn`
(nginx.org, ngx_http_upstream_module).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from autotune.services.base import Role, Value
from autotune.services.config_files import Config
from autotune.services.directives import (
    NUMBER,
    ON_OFF,
    Absent,
    Accepts,
    Adopted,
    Edit,
    Position,
    Tunable,
    inside,
    map_directives,
)

_KEPT = "upstream_keepalive"
_TO_WEB = (
    r'{{ "\n        keepalive " ~ upstream_keepalive ~ ";\n        keepalive_requests " ~'
    r' upstream_keepalive_requests ~ ";" if upstream_keepalive else "" }}'
)
_TO_POOL = r'{{ "\n        keepalive " ~ fastcgi_keepalive ~ ";" if fastcgi_keep_conn else "" }}'
_HTTP = (
    r"""{{ '\n    proxy_http_version 1.1;\n    proxy_set_header Connection "";'"""
    ' if upstream_keepalive else "" }}'
)
_HEADER = r"""{{ 'proxy_set_header Connection "";\n    ' if upstream_keepalive else "" }}"""


def tune(config: Config, role: Role, accepts: Accepts) -> Adopted:
    """What is kept to web servers by a proxy, or to PHP-FPM, in these files."""
    return _to_web(config, accepts) if role is Role.PROXY else _to_pools(config, accepts)


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
    headers = [p for p in config.called("proxy_set_header") if p.words]
    if any(p.words[0].lower() == "connection" for p in headers) or config.called(
        "proxy_http_version"
    ):
        why = "the site has its own `proxy_http_version` or `Connection` for what is behind it"
        return Adopted(left={_KEPT: why, requests: why})
    http = inside("http")(config)
    edits = [(end, _TO_WEB) for end in ends] + [(place, _HEADER) for place in _headers(config)]
    edits += [(http, _HTTP)] if http else []
    addable = ends if http else ()
    return _added(addable, edits, {_KEPT: 0, requests: 1000}, accepts)


def _to_pools(config: Config, accepts: Accepts) -> Adopted:
    ends, http = _ends(config, "fastcgi_pass"), inside("http")
    switch = (
        Absent(default=False, position=http, text=r'"\n    fastcgi_keep_conn on;"')
        if ends
        else None
    )
    kept = map_directives(
        config,
        (Tunable("fastcgi_keep_conn", "fastcgi_keep_conn", ON_OFF, absent=switch),
         Tunable("fastcgi_keepalive", "keepalive", NUMBER, ("upstream",))),
        accepts,
    )  # fmt: skip
    if "fastcgi_keepalive" in kept.values or "fastcgi_keep_conn" not in kept.values or not ends:
        return kept
    added = _added(ends, [(end, _TO_POOL) for end in ends], {"fastcgi_keepalive": 8}, accepts)
    return Adopted((*kept.edits, *added.edits), {**kept.values, **added.values}, added.left)


def _added(
    upstreams: Iterable[Position],
    edits: Iterable[tuple[Position, str]],
    values: Mapping[str, Value],
    accepts: Accepts,
) -> Adopted:
    """Directives that no upstream has yet, which come with other ``values``."""
    if not [*upstreams] or not all(accepts(name, value) for name, value in values.items()):
        return Adopted(left=dict.fromkeys(values, "there is no `upstream` to have a `keepalive`"))
    return Adopted(tuple(Edit.insertion(place, text) for place, text in edits), dict(values))


def _ends(config: Config, directive: str) -> list[Position]:
    """Where each upstream ends that ``directive`` leads to, none of which says how much it keeps."""
    words = (placed.words[0] for placed in config.called(directive) if placed.words)
    names = {(word.partition("://")[2] or word).partition("/")[0] for word in words}
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
