"""The look at whole answers that load generators do not take.

httperf counts any 200 as a success. While it runs, a slow trickle of requests fetches the same page
with its body; the share of wrong bodies in it stands for the share among all.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotune.loads.base import Argv, Request

PER_SECOND = 10
LEAST = 5
_AFTER_BODY, _AFTER_STATUS = "\x1e", "\x1f"


@dataclass(frozen=True)
class Bodies:
    """Answers with a status of success that were looked at, and how many had a wrong body."""

    seen: int
    wrong: int

    @property
    def share(self) -> float:
        return self.wrong / self.seen if self.seen else 0.0


def command(request: Request, seconds: float, timeout: float) -> Argv:
    """curl, asking ``PER_SECOND`` times a second for ``seconds``."""
    count = max(LEAST, round(seconds * PER_SECOND))
    return (
        "timeout", "--kill-after=1", f"{seconds + timeout + 5:.0f}",
        "curl", "--silent", "--globoff", "--rate", f"{PER_SECOND}/s",
        "--max-time", f"{timeout:g}", "--write-out", f"{_AFTER_BODY}%{{http_code}}{_AFTER_STATUS}",
        *[request.url] * count,
    )  # fmt: skip


def parse(printed: str, expect: bytes) -> Bodies:
    """Bodies of answers with status 2xx against the expected one; the rest is counted elsewhere."""
    right = expect.decode(errors="replace")
    answers = [answer.split(_AFTER_BODY) for answer in printed.split(_AFTER_STATUS)[:-1]]
    bodies = [a[0] for a in answers if len(a) == 2 and a[1].startswith("2")]
    return Bodies(len(bodies), sum(body != right for body in bodies))


def wrong_by_size(mean: float | None, expect: bytes, answered: int) -> int:
    """At least how many of ``answered`` bodies were wrong, by their mean size alone.

    A wrong body that differs by one byte moves the mean least, so each byte of difference stands for
    one wrong answer. The mean is printed with one decimal: less than that is rounding.
    """
    if mean is None or abs(mean - len(expect)) <= 0.05:
        return 0
    return min(answered, max(1, round(abs(mean - len(expect)) * answered)))
