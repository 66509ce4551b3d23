"""Agree on a start time with several load hosts, so that their processes start sending together.

The hosts' clocks may differ. Each host's clock is compared with this machine's clock just before
the start, with Cristian's method (Distributed Computing 3, 1989). A host's clock is read between
two readings of this machine's clock, and is assumed to match their midpoint. The error is at most
half of the time between the two readings. Hosts' clocks may therefore be wrong by an hour, drift, or
be set during a study. Because a host may be busy, autotune reads its clock several times and uses the
quickest reply. This machine's clock is monotonic.
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

CLOCK_PROBES = 3  # number of times a clock is read; the quickest reply is used
LEAD_SECONDS = 0.05  # time until the start, in addition to the round trips
LEAD_ROUND_TRIPS = 10.0  # round trips that the commands may take to arrive
MAX_LEAD_SECONDS = 0.5  # a host that is busy for longer starts as soon as it is ready
_CLOCK_COMMAND = ("date", "+%s%N")  # ns since the epoch; every GNU system has this program
# Arguments: the start time (ns on the host's own clock), then the command to run. If the start time is
# in the distant future, the clock was set after the comparison, so the command starts at once.
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
    """A host's clock, which is ``offset_seconds`` ± ``error_seconds`` ahead of this machine's clock."""

    offset_seconds: float
    error_seconds: float


def read_host_clock(transport: Transport, now: Callable[[], float] = time.monotonic) -> HostClock:
    """Compare a host's clock with this machine's clock. Raises HostUnreachable, or AutotuneError if
    the host has no clock.
    """
    clocks = []
    for _ in range(CLOCK_PROBES):
        time_before = now()
        date_result = transport.run(_CLOCK_COMMAND, timeout=10.0)
        time_after = now()
        host_nanoseconds = date_result.stdout.strip()
        if not is_uint(host_nanoseconds):
            raise AutotuneError(
                f"cannot read the clock of {transport.name}: {date_result.error_text[:200]}",
                hint="install GNU coreutils there: `date +%s%N` must print nanoseconds",
            )
        offset = int(host_nanoseconds) / 1e9 - (time_before + time_after) / 2
        clocks.append(HostClock(offset, (time_after - time_before) / 2))
    return min(clocks, key=lambda clock: clock.error_seconds)


def agree_start_times(transports: Sequence[Transport]) -> dict[str, int]:
    """Choose a time in the near future, and return it for each host in nanoseconds on the host's
    clock.

    Raises HostUnreachable, or AutotuneError if a host has no clock.
    """
    clocks = run_on_all(transports, read_host_clock).unwrap()
    slowest_round_trip = max(2 * clock.error_seconds for clock in clocks.values())
    start_time = time.monotonic() + min(
        LEAD_SECONDS + LEAD_ROUND_TRIPS * slowest_round_trip, MAX_LEAD_SECONDS
    )
    return {
        name: round((start_time + clock.offset_seconds) * 1e9) for name, clock in clocks.items()
    }


def delay_command(seconds: float, argv: Argv, start_nanoseconds: int | None = None) -> Argv:
    """Return a command that runs ``argv`` after ``seconds``, counted from now or from
    ``start_nanoseconds`` on the host's clock.
    """
    if start_nanoseconds is not None:
        return start_command_at(start_nanoseconds + round(1e9 * seconds), argv)
    if seconds <= 0:
        return argv
    return ("sh", "-c", 'sleep "$1"; shift; exec "$@"', "sh", f"{seconds:g}", *argv)


def start_command_at(start_nanoseconds: int, argv: Argv) -> Argv:
    """Return a command that runs ``argv`` at ``start_nanoseconds`` on the host's clock, or at once
    if ``start_nanoseconds`` is in the past.
    """
    return ("sh", "-c", _WAIT_SCRIPT, "sh", str(start_nanoseconds), *argv)
