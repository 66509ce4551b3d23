"""States of HAProxy's servers, and the time that its health checks need."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.services.base import Placement, ServerCheck
from autotune.services.config_files import ConfigSyntaxError
from autotune.services.haproxy.stats import TOTAL_ROWS, build_stats_command, parse_rows
from autotune.services.haproxy.syntax import parse_directives
from autotune.strict_parsing import is_uint

# Defaults of `inter` in seconds and of `rise` (HAProxy Configuration Manual, 5.2).
DEFAULT_INTERVAL_SECONDS, DEFAULT_RISE = 2.0, 2
MAX_RECOVERY_SECONDS = 600.0
_TIME_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def build_server_check(placement: Placement) -> ServerCheck:
    """Return the check of all servers over the stats socket."""
    return ServerCheck(build_stats_command(placement), parse_down_servers)


def parse_down_servers(text: str) -> tuple[str, ...]:
    """Return ``backend/server`` of each server in state DOWN. Raises ValueError without any state.

    A server that fails its checks on the way up has the state ``DOWN 1/2``.
    """
    rows = [row for row in parse_rows(text) if row.get("status")]
    if not rows:
        raise ValueError(f"no states in {text[:200]!r}")
    return tuple(f"{row['pxname']}/{row['svname']}" for row in rows
                 if row["svname"] not in TOTAL_ROWS and row["status"].startswith("DOWN"))  # fmt: skip


def find_recovery_seconds(files: Mapping[str, bytes]) -> float:
    """Return the largest interval times the largest number of successes, 0 without health checks."""
    intervals, rises, checks = [DEFAULT_INTERVAL_SECONDS], [DEFAULT_RISE], False
    for content in files.values():
        try:
            directives = parse_directives(content.decode(errors="replace"))
        except ConfigSyntaxError:
            continue
        for directive in directives:
            words = [word.text for word in directive.arguments]
            match directive.name.text:
                case "server" | "default-server" | "server-template":
                    checks |= "check" in words
                case "server inter":
                    intervals.append(_parse_seconds(words[0]))
                case "server rise" if is_uint(words[0]):
                    rises.append(int(words[0]))
    return min(max(intervals) * max(rises), MAX_RECOVERY_SECONDS) if checks else 0.0


def _parse_seconds(text: str) -> float:
    """Return a time of HAProxy in seconds: milliseconds without a unit, 0 if it is not a time."""
    number = text.rstrip("usmhd")
    unit = text[len(number) :] or "ms"
    return int(number) * _TIME_UNITS[unit] if is_uint(number) and unit in _TIME_UNITS else 0.0
