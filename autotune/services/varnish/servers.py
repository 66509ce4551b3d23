"""The health of Varnish's backends."""

from __future__ import annotations

from autotune.services.base import Argv, ServerCheck
from autotune.strict_parsing import split_lines

# By default, a probe needs 3 successes at intervals of 5 s (vcl-probe(7)).
RECOVERY_SECONDS = 15.0


def build_server_check(admin_command: Argv) -> ServerCheck:
    """Return the check of all backends. ``admin_command`` is `varnishadm` with its options."""
    return ServerCheck((*admin_command, "backend.list"), parse_sick_backends)


def parse_sick_backends(output: str) -> tuple[str, ...]:
    """Return the backends whose health probe fails. Raises ValueError if the table's header is
    missing.

    A backend that an administrator has set to `sick` is not returned.
    """
    table_header, *backend_lines = [line for line in split_lines(output) if line.strip()] or [""]
    if not table_header.startswith("Backend name"):
        raise ValueError(f"no backends in {output[:200]!r}")
    backend_rows = [line.split() for line in backend_lines]
    return tuple(
        row[0]
        for row in backend_rows
        if row[1:2] == ["probe"] and "sick" in (word.lower() for word in row[2:])
    )
