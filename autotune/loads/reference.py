"""Facts about the load generators, for the reference page."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Loop(StrEnum):
    """Kinds of loops: open and closed. In a closed loop, a slow server lowers the rate."""

    OPEN = "open: it sends at the given rate, even if the server is slow"
    CLOSED = "closed: each client waits for its response"


@dataclass(frozen=True)
class GeneratorReference:
    """Facts about a generator, in Markdown. ``used`` is the setting or command that selects the
    generator.
    """

    name: str
    loop: Loop
    used: str
    arrivals: str
    connections: str
    notes: tuple[str, ...] = ()


GENERATOR_REFERENCES = (
    GeneratorReference(
        "httperf", Loop.OPEN, "`load: {generator: httperf}`, the default",
        "at random (Poisson): the intervals are exponentially distributed",
        "a new one for each request; a session keeps its connection",
        (
            "It sends no server name (SNI) in TLS and does not verify certificates.",
            "autotune itself verifies the certificate before each trial.",
            "autotune refuses sessions over TLS, because httperf leaves part of a long response unread.",
            "The latency of a session is the mean latency of its requests. Pauses last at most 2 s.",
            "It supports only IPv4.",
        ),
    ),
    GeneratorReference(
        "k6", Loop.OPEN, "`load: {generator: k6}`",
        "at equal intervals", "kept open",
        (
            "With `load: {script: FILE}`, it runs your own script, and rates are in runs/s.",
            "It measures the latency of each request in a session separately.",
        ),
    ),
    GeneratorReference(
        "oha", Loop.OPEN, "`load: {generator: oha}`",
        "at equal intervals", "kept open",
        ("It selects the pages in a `requests:` file by weight. It sends only single GET requests.",),
    ),
    GeneratorReference(
        "command", Loop.OPEN, "`load: {command: [./mine]}`, your own program",
        "your program decides", "your program decides",
        (
            "It reads the rate and the request as JSON from standard input, and prints counts as JSON.",
            "autotune can check only the printed counts, so your program must respect `max_rate`.",
        ),
    ),
    GeneratorReference(
        "wrk", Loop.CLOSED, "`autotune measure --closed`",
        "as fast as responses arrive, up to `max_rate`", "kept open",
        ("It only shows a ceiling. autotune never compares configurations with a closed loop.",),
    ),
    GeneratorReference(
        "ab", Loop.CLOSED, "`autotune measure --closed`, if wrk is not installed",
        "as fast as responses arrive", "a new one for each request",
        ("It cannot limit its rate, so it needs `load: {unpaced: true}`.",),
    ),
    GeneratorReference(
        "mutilate", Loop.OPEN, "`autotune measure --tier TIER`, for the caches of a tier",
        "at random (Poisson)", "kept open",
        ("`scripts/build-mutilate` builds it from source.",),
    ),
    GeneratorReference(
        "memcaslap", Loop.CLOSED, "`autotune measure --tier TIER`, if mutilate is missing",
        "as fast as responses arrive", "kept open",
        ("It cannot limit its rate, so it needs `load: {unpaced: true}`.",),
    ),
)  # fmt: skip
