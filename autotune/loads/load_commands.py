"""Start programs that send load, and keep them below ``load.max_rate``. No other module starts such
programs.

`run_together` starts every generator, closed loop and sample of complete responses. Before the start,
`run_together` adds up the rates of all commands on all load hosts. A sum above ``load.max_rate`` is an
error.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import inf

from autotune.errors import AutotuneError
from autotune.services.base import Argv
from autotune.transports import wait_notices
from autotune.transports.base import CommandResult, ConnectionLost, Transport

# relative tolerance, because shares of a rate may add up to slightly more than the rate
RATE_TOLERANCE = 1e-9
UNKNOWN_RATE = inf  # for a program that does not state its rate


class RateTooHigh(AutotuneError):
    """A command would offer more load than the target allows."""


@dataclass(frozen=True)
class LoadCommand:
    """A command on a load host that offers at most ``max_rate`` requests/s between ``start`` and
    ``end``.

    The transport waits up to ``timeout`` for the command. All times are in seconds from now.
    """

    host: Transport
    argv: Argv
    max_rate: float
    start: float
    end: float
    timeout: float
    input: bytes | None = None


def find_excess_rate(rate: float, max_rate: float) -> str | None:
    """Return why ``rate`` (requests/s) is not allowed; ``None`` if it is allowed."""
    if rate <= max_rate * (1 + RATE_TOLERANCE):
        return None
    if rate == UNKNOWN_RATE:
        return f"a program without a rate limit could exceed load.max_rate ({max_rate:g}/s)"
    return f"{rate:.12g} requests/s exceed load.max_rate ({max_rate:g}/s)"


def check_rate(rate: float, max_rate: float) -> None:
    """Raise RateTooHigh if ``rate`` is above ``max_rate``, both in requests/s."""
    if reason := find_excess_rate(rate, max_rate):
        raise RateTooHigh(
            reason, hint="lower the rate, or raise `load: {max_rate: …}` in the target"
        )


def compute_highest_rate(commands: Iterable[LoadCommand]) -> float:
    """Return the highest rate that all commands together reach at any time, in requests/s."""
    commands = list(commands)
    start_moments = {command.start for command in commands}
    return max(
        (
            sum(c.max_rate for c in commands if c.start <= at < max(c.end, c.start + 1e-9))
            for at in start_moments
        ),
        default=0.0,
    )


def run_together(commands: Sequence[LoadCommand], max_rate: float) -> list[CommandResult]:
    """Run all commands concurrently, and return their results in the same order.

    Raises RateTooHigh before any command starts, or HostUnreachable. If the connection to a host is
    lost, its program may continue, so the error is raised only after all commands have ended.
    """

    def run(command: LoadCommand) -> CommandResult:
        start_time = time.monotonic()
        with wait_notices.about("the load", usual=command.end):
            try:
                return command.host.run(command.argv, input=command.input, timeout=command.timeout)
            except ConnectionLost:
                time.sleep(max(0.0, start_time + command.end - time.monotonic()))
                raise

    check_rate(compute_highest_rate(commands), max_rate)
    with ThreadPoolExecutor(max(1, len(commands))) as pool:
        futures = [pool.submit(run, command) for command in commands]
        return [future.result() for future in futures]
