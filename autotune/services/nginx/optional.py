"""What nginx does for some sites alone: TLS, compression, files kept open, a cache's locks.

Each is tuned where a site's own files have it: TLS where it is spoken, a lock where a cache is declared
and used. What is cached, and for how long, is the owner's.
"""

from __future__ import annotations

from autotune.services.base import Role, Settings, Value
from autotune.services.config_files import Config
from autotune.services.directives import KILOBYTES, NUMBER, ON_OFF, SECONDS, Notation, size
from autotune.services.nginx import syntax

_MEGABYTES = size("MB")


def _sessions(word: str) -> Value | None:
    kind, _, rest = word.partition(":")
    if word in ("none", "off"):
        return 0
    return _MEGABYTES.read(rest.partition(":")[2]) if kind == "shared" else None


def _files(word: str) -> Value | None:
    return 0 if word == "off" else NUMBER.read(word.removeprefix("max="))


# A zone of that name is nowhere else, so that no other block can ask for another size of it.
SESSIONS = Notation(_sessions, lambda v: f'("shared:autotune:" ~ {v} ~ "m" if {v} else "none")')
# Where it has a second word it cannot be `off`: one file is as good as none.
FILES = Notation(_files, lambda v: f'"max=" ~ ([{v}, 1] | max)')
# Directives of the same name as their parameter, how they are written, and nginx' own value.
TLS: tuple[tuple[str, Notation, Value], ...] = (
    ("ssl_session_cache", SESSIONS, 0),
    ("ssl_session_timeout", SECONDS, 300),
    ("ssl_session_tickets", ON_OFF, True),
    ("ssl_buffer_size", KILOBYTES, 16),
)
ANY: tuple[tuple[str, Notation, Value], ...] = (
    ("gzip", ON_OFF, False),
    ("gzip_comp_level", NUMBER, 1),
    ("gzip_min_length", NUMBER, 20),
    ("open_file_cache", FILES, 0),
    ("open_file_cache_valid", SECONDS, 60),
    ("open_file_cache_min_uses", NUMBER, 1),
)
LOCKS = {Role.PROXY: "proxy_cache", Role.WEB: "fastcgi_cache"}


def rows(config: Config, role: Role) -> list[tuple[str, Notation, Value]]:
    """Those that these files have a place for."""
    rows = [*ANY]
    if any("ssl" in placed.words for placed in config.called("listen")):
        rows += TLS
    cache = LOCKS[role]
    if config.called(cache) and config.called(f"{cache}_path"):
        rows.append((f"{cache}_lock", ON_OFF, False))
    return rows


def in_effect(text: str) -> Settings:
    """What ``nginx -T`` prints of them, the outermost of each."""
    notations = {name: notation for name, notation, _ in (*TLS, *ANY)}
    notations |= {f"{cache}_lock": ON_OFF for cache in LOCKS.values()}
    words = syntax.directives({name: name for name in notations}, str)(text)
    values = {name: notations[name].read(str(word)) for name, word in words.items()}
    return {name: value for name, value in values.items() if value is not None}
