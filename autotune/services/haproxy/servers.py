"""The states of HAProxy's servers, and how long health checks take to notice a recovery."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from autotune.services.base import Placement, ServerCheck
from autotune.services.config_files import ConfigSyntaxError
from autotune.services.directives import MILLISECONDS
from autotune.services.haproxy.stats import TOTAL_ROWS, build_stats_command, parse_rows
from autotune.services.haproxy.syntax import OPTION_OWNERS, parse_directives
from autotune.strict_parsing import is_uint

# Defaults for `inter` (in seconds) and `rise` (HAProxy Configuration Manual, 5.2).
DEFAULT_INTERVAL_SECONDS, DEFAULT_RISE = 2.0, 2
MAX_RECOVERY_SECONDS = 600.0


def build_server_check(placement: Placement) -> ServerCheck:
    """Return the check of all servers' states, which uses the stats socket."""
    return ServerCheck(build_stats_command(placement), parse_down_servers)


def parse_down_servers(output: str) -> tuple[str, ...]:
    """Return ``backend/server`` for each server in state DOWN. Raises ValueError if the text
    contains no server states.

    A server that passes some checks, but not yet enough of them, has a state such as ``DOWN 1/2``.
    """
    server_rows = [row for row in parse_rows(output) if row.get("status")]
    if not server_rows:
        raise ValueError(f"HAProxy reported no server states: {output[:200]!r}")
    return tuple(
        f"{row['pxname']}/{row['svname']}"
        for row in server_rows
        if row["svname"] not in TOTAL_ROWS and row["status"].startswith("DOWN")
    )


def find_recovery_seconds(files: Mapping[str, bytes]) -> float:
    """Return the longest check interval in seconds, multiplied by the largest required number of
    successful checks; 0 without health checks.
    """
    intervals, success_counts, has_checks = [DEFAULT_INTERVAL_SECONDS], [DEFAULT_RISE], False
    with suppress(ConfigSyntaxError):
        files_text = b"\n".join(files.values()).decode(errors="replace")
        for directive in parse_directives(files_text):
            name, argument_words = directive.name.text, [word.text for word in directive.arguments]
            has_checks |= OPTION_OWNERS.get(name) == "server" and "check" in argument_words
            if name in ("server inter", "server downinter"):  # `downinter` replaces `inter`
                intervals.append(float(MILLISECONDS.parse(argument_words[0]) or 0) / 1000)
            elif name == "server rise" and is_uint(argument_words[0]):
                success_counts.append(int(argument_words[0]))
    return min(max(intervals) * max(success_counts), MAX_RECOVERY_SECONDS) if has_checks else 0.0
