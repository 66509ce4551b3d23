"""ApacheBench: a closed loop with a new connection per request, and every percentile to 99.

It writes its percentiles, in milliseconds with three decimals, as CSV to a file; standard output is
one too, and the table stands somewhere in what it prints. Its time limit (``-t``) implies a number of
requests, so both are given. A refused connection counts as a failed request (twice, in the total).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import ceil

from autotune.loads.base import Request
from autotune.loads.closed import Ceiling, Clients, no_result
from autotune.services.base import Argv

MOST = 50_000_000  # requests; the time is what ends it
WANTED = (50.0, 75.0, 90.0, 95.0, 98.0, 99.0, 100.0)
_LINE = re.compile(r"^(\d+),([\d.]+)$", re.M)
_COUNT = re.compile(r"^(Complete requests|Non-2xx responses):\s+(\d+)$", re.M)
_FAILED = re.compile(r"\(Connect: (\d+), Receive: (\d+), Length: (\d+), Exceptions: (\d+)\)")
_TIME = re.compile(r"^Time taken for tests:\s+([\d.]+) seconds$", re.M)


@dataclass(frozen=True)
class Ab:
    """Debian's ab 2.3 (httpd.apache.org/docs/2.4/programs/ab.html)."""

    name: str = "ab"
    packages: tuple[str, ...] = ("apache2-utils",)

    def argv(self, request: Request, clients: Clients) -> Argv:
        bound = ceil(clients.seconds + 2 * clients.timeout + 2)
        return (
            "timeout", "--signal=INT", "--kill-after=1", str(bound),
            "ab", "-q", "-l", "-r", "-c", str(clients.concurrency),
            "-t", str(ceil(clients.seconds)), "-n", str(MOST), "-s", str(ceil(clients.timeout)),
            "-e", "/dev/stdout", request.url,
        )  # fmt: skip

    def parse(self, printed: str, clients: Clients) -> Ceiling:
        counts = {name: int(count) for name, count in _COUNT.findall(printed)}
        time = _TIME.search(printed)
        if time is None or "Complete requests" not in counts:
            return no_result(self.name, printed, clients)
        failed = _FAILED.search(printed)
        kinds = {"status": counts.get("Non-2xx responses", 0)}
        if failed:
            # An exception is the same request's broken connection, counted once more.
            kinds |= {"refused": int(failed[1]), "broken off": int(failed[2])}
        found = {float(at): float(ms) / 1000 for at, ms in _LINE.findall(printed)}
        return Ceiling(
            clients.concurrency,
            float(time[1]),
            counts["Complete requests"],
            {kind: count for kind, count in kinds.items() if count},
            {at: found[at] for at in WANTED if at in found},
        )
