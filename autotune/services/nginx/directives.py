"""Directives of nginx that have the name of their parameter: where they belong, and how they are written.

What nginx does for some sites alone is tuned where their own files have it: TLS where it is spoken, a
lock where a cache is declared and used. What is cached, and for how long, is the owner's.
"""

from __future__ import annotations

from autotune.services.base import Parameter, Role, Value
from autotune.services.directives import (
    KILOBYTES,
    NUMBER,
    ON_OFF,
    SECONDS,
    Notation,
    notation_of,
    size,
)

EVENTS = ("worker_connections", "multi_accept", "accept_mutex", "use")
CLIENTS = ("keepalive_timeout", "keepalive_requests")
FILES = ("gzip", "gzip_comp_level", "gzip_min_length", "open_file_cache", "open_file_cache_valid",
         "open_file_cache_min_uses")  # fmt: skip
TLS = ("ssl_session_cache", "ssl_session_timeout", "ssl_session_tickets", "ssl_buffer_size")
CACHES = {Role.PROXY: "proxy_cache", Role.WEB: "fastcgi_cache"}
LOCKS = tuple(f"{cache}_lock" for cache in CACHES.values())
_MEGABYTES = size("MB")


def _sessions(word: str) -> Value | None:
    kind, _, rest = word.partition(":")
    if word in ("none", "off"):
        return 0
    return _MEGABYTES.read(rest.partition(":")[2]) if kind == "shared" else None


def _files(word: str) -> Value | None:
    return 0 if word == "off" else NUMBER.read(word.removeprefix("max="))


_OWN = {
    # A zone of that name is nowhere else, so that no other block can ask for another size of it.
    "ssl_session_cache": Notation(
        _sessions, lambda v: f'("shared:autotune:" ~ {v} ~ "m" if {v} else "none")'
    ),
    # Where it has a second word it cannot be `off`: one file is as good as none.
    "open_file_cache": Notation(_files, lambda v: f'"max=" ~ ([{v}, 1] | max)'),
}


def notation(parameter: Parameter) -> Notation:
    return _OWN.get(parameter.name) or notation_of(parameter, ON_OFF, s=SECONDS, KB=KILOBYTES)
