"""One HTTP request made from a host: what it sees, the machine autotune runs on may not."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.strict import decimal, is_whole
from autotune.transports.base import Transport

_LARGEST = 1 << 16  # bytes of a body that are looked at


@dataclass(frozen=True)
class Answer:
    """``seconds`` from the first packet to the last byte, as the host saw it."""

    status: int
    body: bytes
    seconds: float

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


def answer(transport: Transport, url: str, timeout: float = 2.0) -> Answer | str:
    """The answer to one GET over a new connection, or in words why there is none.

    Raises ``HostUnreachable`` when the host itself cannot be reached.
    """
    argv = (
        "curl", "--silent", "--show-error", "--globoff", "--noproxy", "*",
        "--max-time", f"{timeout:g}", "--header", "Connection: close",
        "--write-out", r"\n%{http_code} %{time_total}", url,
    )  # fmt: skip
    done = transport.run(argv, timeout=timeout + 10.0)
    body, _, last = done.stdout.rpartition("\n")
    status, _, seconds = last.partition(" ")
    if not done.ok or not is_whole(status):
        return done.stderr.strip() or f"curl ended with {done.returncode}"
    try:
        return Answer(int(status), body.encode()[:_LARGEST], decimal(seconds))
    except ValueError as error:
        return f"curl printed no answer: {error}"
