"""A check of whole answers, which load generators do not make.

httperf takes any 200 for a success. While it runs, curl fetches the same page now and then, each
time over a connection of its own as the load does; the share of wrong bodies in this sample stands
for the share among all right statuses. A sample of n finds a share s of wrong bodies with the
probability 1 − (1 − s)ⁿ: one web host of two that answers nonsense is found for certain, one answer
in a thousand is not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import ceil

from autotune.loads.base import LoadResult, LoadSpec
from autotune.services.base import Argv
from autotune.transports import curl
from autotune.transports.request import Request

PER_SECOND = 6.0
SHARE = 0.01  # of the load that the look may add
LEAST = 2
PACKAGE = "curl"  # Debian's name

_END = re.compile(r"\n<autotune (\d{3}) (\d+)>\n")  # of an answer
TIMED_OUT = "28"  # curl's exit code
_GLOB = re.compile(r"([\[\]{}\\])")


@dataclass(frozen=True)
class Look:
    """Answers with a 2xx status that were looked at, and how many of them had a wrong body."""

    looked_at: int
    wrong: int

    def __add__(self, other: Look) -> Look:
        return Look(self.looked_at + other.looked_at, self.wrong + other.wrong)

    def reclassify(self, result: LoadResult) -> LoadResult:
        """``result`` with this share of wrong bodies, less those that it already counts."""
        if not self.wrong:
            return result
        already = result.errors.get("wrong body", 0)
        wrong = ceil(self.wrong / self.looked_at * (result.replies_ok + already))
        return result.reclassify("wrong body", wrong - already)


def count(spec: LoadSpec) -> int:
    """How many answers are looked at: a few a second, never more than a trace of the load."""
    return max(LEAST, round(spec.seconds * min(PER_SECOND, SHARE * spec.rate)))


def per_minute(spec: LoadSpec) -> int:
    """The requests per minute that curl is told, rounded up to whole ones."""
    return ceil(60 * count(spec) / spec.seconds)


def argv(request: Request, spec: LoadSpec) -> Argv:
    """curl to one entry, spread over ``spec.seconds``, ended after them.

    The counter stands in the fragment of the URL, which is not sent, so the requests equal the load's.
    """
    times = count(spec)
    sent = [word for name, value in curl.sends(request) for word in (f"--{name}", value)]
    url = _GLOB.sub(r"\\\1", request.url)
    argv = (
        "timeout", "--kill-after=1", str(ceil(spec.seconds + spec.timeout)),
        "curl", "--silent", "--no-buffer", "--noproxy", "*", "--max-time", f"{spec.timeout:g}",
        *curl.options(request), *sent, "--rate", f"{per_minute(spec)}/m",
        "--write-out", r"\n<autotune %{http_code} %{exitcode}>\n", f"{url}#[1-{times}]",
    )  # fmt: skip
    return request.trusting(argv)


def parse(printed: str, expect: bytes) -> Look:
    """Compare bodies that came with a 2xx status to the expected one, byte for byte.

    The load generator counts other statuses, and answers that did not end in time.
    """
    right = expect.decode(errors="replace")
    pieces = _END.split(printed)  # after the last mark comes what did not end in time
    answers = zip(pieces[:-1:3], pieces[1::3], pieces[2::3], strict=True)
    bodies = [
        body for body, status, code in answers if status.startswith("2") and code != TIMED_OUT
    ]
    return Look(len(bodies), sum(body != right for body in bodies))
