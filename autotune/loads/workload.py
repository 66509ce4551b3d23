"""Loads of more than one path: lists of URIs, and sessions.

Sessions are written as httperf's `--wsesslog` reads them: a line for each burst, its path first; lines
that begin with a space are asked for together with the one above; `think=2.5` is the pause after a
burst, in seconds; an empty line ends a session, `#` begins a comment.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from autotune.strict_parsing import parse_decimal, split_lines
from autotune.target.requests_file import SessionStep, WeightedVisit

MAX_SESSION_KINDS = 8
MAX_THINK_SECONDS = 2.0  # seconds of a session: readings last a few, and must hold whole sessions


class UnusableWorkload(ValueError):
    """A file of URIs or sessions that no load can be made of; its text says why."""


@dataclass(frozen=True)
class SessionKind:
    """Sessions with the same number of ``request_count`` and the same pauses in sum
    (``think_seconds``, seconds), so
    that a session's duration tells what its requests took. The file has ``session_count``, as
    ``session_log``."""

    request_count: int
    think_seconds: float
    session_count: int
    session_log: str


def parse_uris(text: str) -> tuple[str, ...]:
    """Paths, one a line or with NUL between. Raises Unusable."""
    paths = tuple(word.strip() for word in split_lines(text.replace("\0", "\n")) if word.strip())
    if not paths:
        raise UnusableWorkload("there is no path in it")
    for path in paths:
        _check_path(path)
    return paths


def parse_session_kinds(text: str) -> tuple[SessionKind, ...]:
    """The sessions by kind, the most frequent first. Raises Unusable."""
    alike: dict[tuple[int, float], list[str]] = defaultdict(list)
    for session in _split_sessions(text):
        alike[len(session), _sum_pauses(session)].append("\n".join(session))
    if not alike:
        raise UnusableWorkload("there is no session in it")
    if len(alike) > MAX_SESSION_KINDS:
        raise UnusableWorkload(
            f"its sessions are of {len(alike)} different lengths or pauses, and "
            f"{MAX_SESSION_KINDS} are the "
            "most that can be told apart"
        )
    if longest := next((think for _, think in alike if think > MAX_THINK_SECONDS), None):
        raise UnusableWorkload(
            f"a session pauses for {longest:g} s: {MAX_THINK_SECONDS:g} s are the most"
        )
    kinds = [
        SessionKind(calls, think, len(sessions), "\n\n".join(sessions) + "\n")
        for (calls, think), sessions in alike.items()
    ]
    return tuple(sorted(kinds, key=lambda kind: -kind.session_count))


def expand_visits(visits: Sequence[WeightedVisit], slot_count: int) -> tuple[WeightedVisit, ...]:
    """Each visit as often as its weight says, ``slot_count`` in all, evenly mixed from any place on."""
    weights = [visit.weight for visit in visits]
    if all(weight == int(weight) for weight in weights):
        divisor = gcd(*map(int, weights))
        weights = [weight / divisor for weight in weights]
    total = sum(weights)
    fits = total <= slot_count and all(weight == int(weight) for weight in weights)
    counts = [int(w) if fits else max(1, round(w * slot_count / total)) for w in weights]
    locations = sorted(
        ((turn + 0.5) / count, index) for index, count in enumerate(counts) for turn in range(count)
    )
    return tuple(visits[index] for _, index in locations[:slot_count])


def format_session_line(step: SessionStep) -> str:
    """A request as a line of a log of sessions."""
    words = [step.path] if step.method == "GET" else [step.path, f"method={step.method}"]
    if step.body is not None:
        words.append(f'contents="{escape_text(step.body)}"')
    return " ".join([*words, f"think={step.think:g}"] if step.think else words)


def escape_text(text: str) -> str:
    r"""As httperf reads it back: ``\\`` begins an escape."""
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _split_sessions(text: str) -> list[list[str]]:
    sessions: list[list[str]] = [[]]
    for line in split_lines(text):
        if not line.strip():
            sessions.append([])
        elif not line.lstrip().startswith("#"):
            _check_path(line.split()[0])
            if line[0].isspace() and not sessions[-1]:
                raise UnusableWorkload(
                    f"a session begins with {line.strip()!r}, which belongs to a burst"
                )
            sessions[-1].append(line.rstrip())
    return [session for session in sessions if session]


def _sum_pauses(session: list[str]) -> float:
    """The sum of the pauses between bursts (seconds); nothing waits for the one after the last."""
    bursts = [line for line in session if not line[0].isspace()]
    words = [word for line in bursts[:-1] for word in line.split() if word.startswith("think=")]
    try:
        return round(sum(parse_decimal(word.removeprefix("think=")) for word in words), 3)
    except ValueError as error:
        raise UnusableWorkload(f"a pause is no number of seconds: {error}") from error


def _check_path(path: str) -> None:
    if not path.startswith("/"):
        raise UnusableWorkload(f"{path!r} is no path: it does not begin with /")
