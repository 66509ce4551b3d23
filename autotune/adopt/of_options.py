"""memcached and Redis: which options are the catalogue's parameters."""

from __future__ import annotations

from autotune.adopt import options
from autotune.adopt.config import Config, gather
from autotune.adopt.knob import Absent, Accepts, Knob, Tuned, at_end, tuned
from autotune.adopt.syntax import Directive
from autotune.adopt.tree import Tree
from autotune.adopt.values import NUMBER, REAL, YES_NO, Kind
from autotune.services.base import Value

MEMCACHED, REDIS = "/etc/memcached.conf", "/etc/redis/redis.conf"
# Option, parameter, and what memcached takes without it.
_MEMCACHED: tuple[tuple[str, str, Kind, Value], ...] = (
    ("-t", "threads", NUMBER, 4),
    ("-c", "connections", NUMBER, 1024),
    ("-R", "requests_per_event", NUMBER, 20),
    ("-m", "memory", NUMBER, 64),
    ("-b", "backlog", NUMBER, 1024),
    ("-f", "growth_factor", REAL, 1.25),
    ("-n", "chunk_size", NUMBER, 48),
)
_REDIS: tuple[tuple[str, str, Kind, Value], ...] = (
    ("io-threads", "io_threads", NUMBER, 1),
    ("tcp-backlog", "tcp_backlog", NUMBER, 511),
    ("maxclients", "maxclients", NUMBER, 10_000),
    ("io-threads-do-reads", "io_threads_do_reads", YES_NO, False),
    ("hz", "hz", NUMBER, 10),
    ("activerehashing", "activerehashing", YES_NO, True),
    ("tcp-keepalive", "tcp_keepalive", NUMBER, 300),
    ("jemalloc-bg-thread", "jemalloc_bg_thread", YES_NO, True),
)


def memcached(tree: Tree) -> Config:
    return gather(tree, MEMCACHED, options.read, lambda _: None)


def redis(tree: Tree) -> Config:
    return gather(tree, REDIS, options.read, _included)


def tune(config: Config, accepts: Accepts) -> Tuned:
    """Every parameter of the service whose main file it is; a new option goes to its end."""
    table = _MEMCACHED if config.main == MEMCACHED else _REDIS
    text = config.texts.get(config.main, "")
    first, last = ("", r"\n") if text.endswith("\n") or not text else (r"\n", "")
    knobs = [
        Knob(parameter, option, kind, absent=Absent(
            default, at_end, f'"{first}{option} " ~ {kind.write(parameter)} ~ "{last}"'))
        for option, parameter, kind, default in table
    ]  # fmt: skip
    return tuned(config, knobs, accepts)


def port(config: Config, option: str, default: int) -> int:
    found = [seen.words[0] for seen in config.called(option) if seen.words]
    return int(found[-1]) if found and found[-1].isdigit() else default


def _included(directive: Directive) -> str | None:
    named = directive.name.text == "include" and len(directive.arguments) == 1
    return directive.arguments[0].text if named else None
