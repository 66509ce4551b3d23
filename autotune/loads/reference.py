"""Facts about the load generators for their reference page."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Loop(StrEnum):
    """Open or closed: whether a slow server lowers the rate."""

    OPEN = "open: sends at its rate, whatever the server does"
    CLOSED = "closed: each client waits for its response"


@dataclass(frozen=True)
class GeneratorReference:
    """A generator, in Markdown. ``used``: the setting or command that selects it."""

    name: str
    loop: Loop
    used: str
    arrivals: str
    connections: str
    notes: tuple[str, ...] = ()


GENERATOR_REFERENCES = (
    GeneratorReference(
        "httperf", Loop.OPEN, "`load: {generator: httperf}`, the default",
        "random (Poisson): gaps are exponential",
        "a new one for each request; sessions keep theirs",
        (
            "Checks no certificate and sends no server name in TLS. The probe before each trial does.",
            "Over TLS, sessions are refused: httperf leaves part of a long response unread.",
            "A session counts with the mean latency of its requests. Pauses are two seconds at most.",
        ),
    ),
    GeneratorReference(
        "k6", Loop.OPEN, "`load: {generator: k6}`",
        "even", "kept open",
        (
            "Runs your own script with `load: {script: FILE}`: rates are in runs/s.",
            "Times each request of a session by itself.",
        ),
    ),
    GeneratorReference(
        "oha", Loop.OPEN, "`load: {generator: oha}`",
        "even", "kept open",
        ("Picks the pages of a `requests:` file at random, by weight. Only single GET requests.",),
    ),
    GeneratorReference(
        "command", Loop.OPEN, "`load: {command: [./mine]}`, your own program",
        "up to your program", "up to your program",
        (
            "Reads the rate and the request as JSON from standard input, and prints counts as JSON.",
            "autotune checks the printed counts, not the sent requests: keep to `max_rate`.",
        ),
    ),
    GeneratorReference(
        "wrk", Loop.CLOSED, "`autotune measure --closed`",
        "as fast as responses arrive, up to `max_rate`", "kept open",
        ("Shows a ceiling. A closed loop never decides about a configuration.",),
    ),
    GeneratorReference(
        "ab", Loop.CLOSED, "`autotune measure --closed`, if wrk is not installed",
        "as fast as responses arrive", "a new one for each request",
        ("Has no rate limit, so it needs `load: {unpaced: true}`.",),
    ),
    GeneratorReference(
        "mutilate", Loop.OPEN, "`autotune measure --tier TIER`, for the caches of a tier",
        "random (Poisson)", "kept open",
        ("Built from source: `scripts/build-mutilate`.",),
    ),
    GeneratorReference(
        "memcaslap", Loop.CLOSED, "`autotune measure --tier TIER`, if mutilate is missing",
        "as fast as responses arrive", "kept open",
        ("Has no rate limit, so it needs `load: {unpaced: true}`.",),
    ),
)  # fmt: skip
