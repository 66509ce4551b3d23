"""A moment that several load hosts agree on, so that their processes send together.

Their clocks need not agree: each is compared with this machine's just before, by Cristian's method
(Distributed Computing 3, 1989). A host's clock is read between two readings of our own and is taken to
belong to their middle; the error is at most half of the time between them. Clocks that are an hour
apart, drift, or are set meanwhile make no difference. A host is asked several times, in case it is
busy, and its quickest answer counts. This machine's clock is one that nobody sets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autotune.errors import AutotuneError
from autotune.services.base import Argv
from autotune.strict_parsing import is_uint
from autotune.transports.base import Transport
from autotune.transports.parallel_hosts import run_on_all

CLOCK_PROBES = 3  # times; the quickest answer counts
LEAD_SECONDS = (
    0.05  # s from now to the start, and ``TRIPS`` round trips for the commands to get there
)
LEAD_ROUND_TRIPS = 10.0
MAX_LEAD_SECONDS = 0.5  # s; a host too busy to be ready by then starts when it is ready
_CLOCK_COMMAND = ("date", "+%s%N")  # ns since the epoch, in one program that every GNU system has
# Arguments: the moment (ns on the host's own clock), then the command to become. If the moment is far
# off, the clock was set meanwhile, and the command starts at once.
_WAIT_SCRIPT = """
left=$(($1 - $(date +%s%N)))
shift
if [ "$left" -gt 0 ] && [ "$left" -lt MOST ]; then
    sleep "$((left / 1000000000)).$(printf %09d $((left % 1000000000)))"
fi
exec "$@"
""".replace("MOST", str(2 * round(MAX_LEAD_SECONDS * 1e9)))


@dataclass(frozen=True)
class HostClock:
    """A host's clock is ``offset_seconds`` of this machine's by so many seconds, give or take
    ``error_seconds``."""

    offset_seconds: float
    error_seconds: float


def read_host_clock(transport: Transport, now: Callable[[], float] = time.monotonic) -> HostClock:
    """Compare clocks. Raises ``HostUnreachable``, or ``AutotuneError`` for a host without one."""
    clocks = []
    for _ in range(CLOCK_PROBES):
        before = now()
        answer = transport.run(_CLOCK_COMMAND, timeout=10.0)
        after = now()
        printed = answer.stdout.strip()
        if not is_uint(printed):
            raise AutotuneError(
                f"{transport.name} does not say what time it is: {answer.error_text[:200]}"
            )
        ahead = int(printed) / 1e9 - (before + after) / 2
        clocks.append(HostClock(ahead, (after - before) / 2))
    return min(clocks, key=lambda clock: clock.error_seconds)


def agree_start_times(transports: Sequence[Transport]) -> dict[str, int]:
    """By the name of each host: the same moment, soon, in nanoseconds on its own clock.

    Raises ``HostUnreachable`` and ``AutotuneError`` as ``read_host_clock`` does.
    """
    clocks = run_on_all(transports, read_host_clock).unwrap()
    slowest = max(2 * clock.error_seconds for clock in clocks.values())
    start = time.monotonic() + min(LEAD_SECONDS + LEAD_ROUND_TRIPS * slowest, MAX_LEAD_SECONDS)
    return {name: round((start + clock.offset_seconds) * 1e9) for name, clock in clocks.items()}


def delay_command(seconds: float, argv: Argv) -> Argv:
    """``argv``, begun so many seconds after it was asked for."""
    if seconds <= 0:
        return argv
    return ("sh", "-c", 'sleep "$1"; shift; exec "$@"', "sh", f"{seconds:g}", *argv)


def start_command_at(moment: int, argv: Argv) -> Argv:
    """``argv``, begun at ``moment`` on the host's clock, or at once if that is over."""
    return ("sh", "-c", _WAIT_SCRIPT, "sh", str(moment), *argv)
