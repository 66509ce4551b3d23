"""wrk: a closed loop over connections that stay open.

Its latency is measured from when a client happened to ask: see `loads.closed` for what that hides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import ceil

from autotune.loads.base import Request
from autotune.loads.closed import Ceiling, Clients, no_result
from autotune.services.base import Argv

UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}
_TOTAL = re.compile(r"^\s+(\d+) requests in ([\d.]+)(us|ms|s|m),", re.M)
_PERCENTILE = re.compile(r"^\s+([\d.]+)%\s+([\d.]+)(us|ms|s|m)$", re.M)
_STATUS = re.compile(r"^\s+Non-2xx or 3xx responses: (\d+)$", re.M)
_SOCKETS = re.compile(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)")


@dataclass(frozen=True)
class Wrk:
    """Debian's wrk 4.1 (github.com/wg/wrk), one thread."""

    name: str = "wrk"
    packages: tuple[str, ...] = ("wrk",)

    def argv(self, request: Request, clients: Clients) -> Argv:
        bound = ceil(clients.seconds + 2 * clients.timeout + 2)
        return (
            "timeout", "--kill-after=1", str(bound),
            "wrk", "--threads", "1", "--connections", str(clients.concurrency),
            "--duration", f"{ceil(clients.seconds)}s", "--timeout", f"{ceil(clients.timeout)}s",
            "--latency", request.url,
        )  # fmt: skip

    def parse(self, printed: str, clients: Clients) -> Ceiling:
        total = _TOTAL.search(printed)
        if total is None:
            return no_result(self.name, printed, clients)
        errors = {}
        if status := _STATUS.search(printed):
            errors["status"] = int(status[1])
        if sockets := _SOCKETS.search(printed):
            errors |= dict(
                zip(("refused", "reset", "reset while sending", "timeout"),
                    map(int, sockets.groups()), strict=True)
            )  # fmt: skip
        return Ceiling(
            clients.concurrency,
            float(total[2]) * UNITS[total[3]],
            int(total[1]),
            {kind: count for kind, count in errors.items() if count},
            {float(at): float(t) * UNITS[unit] for at, t, unit in _PERCENTILE.findall(printed)},
        )
