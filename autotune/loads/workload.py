"""Loads with more than one path: lists of URIs, and sessions.

Sessions have the format of httperf's `--wsesslog`: one line for each burst, which starts with its
path. Lines that start with a space belong to the burst above them. `think=2.5` is the pause after a
burst, in seconds. An empty line ends a session, and `#` starts a comment.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from autotune.strict_parsing import parse_decimal, split_lines
from autotune.target.requests_file import SessionStep, WeightedVisit

MAX_SESSION_KINDS = 8
# in a session, because a reading of a few seconds must contain complete sessions
MAX_THINK_SECONDS = 2.0


class UnusableWorkload(ValueError):
    """A file of URIs or sessions cannot be used as load. The error's text is the reason."""


@dataclass(frozen=True)
class SessionKind:
    """Sessions with the same number of requests and the same sum of pauses (``think_seconds``).

    A session's duration therefore determines how long its requests took. The file contains
    ``session_count`` such sessions, in ``session_log``.
    """

    request_count: int
    think_seconds: float
    session_count: int
    session_log: str


def parse_uris(text: str) -> tuple[str, ...]:
    """Return paths, one per line or separated by NUL. Raises UnusableWorkload."""
    paths = tuple(word.strip() for word in split_lines(text.replace("\0", "\n")) if word.strip())
    if not paths:
        raise UnusableWorkload("the file contains no path")
    for path in paths:
        _check_path(path)
    return paths


def parse_session_kinds(text: str) -> tuple[SessionKind, ...]:
    """Return the sessions grouped by kind, the most frequent kind first. Raises
    UnusableWorkload.
    """
    by_kind: dict[tuple[int, float], list[str]] = defaultdict(list)
    for session in _split_sessions(text):
        by_kind[len(session), _sum_pauses(session)].append("\n".join(session))
    if not by_kind:
        raise UnusableWorkload("the file contains no session")
    if len(by_kind) > MAX_SESSION_KINDS:
        raise UnusableWorkload(
            f"the sessions have {len(by_kind)} different lengths or pauses; at most "
            f"{MAX_SESSION_KINDS} are supported"
        )
    if longest := next((think for _, think in by_kind if think > MAX_THINK_SECONDS), None):
        raise UnusableWorkload(
            f"a session pauses for {longest:g} s; the maximum is {MAX_THINK_SECONDS:g} s"
        )
    kinds = [
        SessionKind(calls, think, len(sessions), "\n\n".join(sessions) + "\n")
        for (calls, think), sessions in by_kind.items()
    ]
    return tuple(sorted(kinds, key=lambda kind: -kind.session_count))


def expand_visits(visits: Sequence[WeightedVisit], slot_count: int) -> tuple[WeightedVisit, ...]:
    """Return each visit as often as its weight requires, evenly mixed, with at most ``slot_count``
    in total.
    """
    weights = [visit.weight for visit in visits]
    if all(weight == int(weight) for weight in weights):
        divisor = gcd(*map(int, weights))
        weights = [weight / divisor for weight in weights]
    total_weight = sum(weights)
    fits_slots = total_weight <= slot_count and all(weight == int(weight) for weight in weights)
    counts = [
        int(w) if fits_slots else max(1, round(w * slot_count / total_weight)) for w in weights
    ]
    positions = sorted(
        ((step + 0.5) / count, index) for index, count in enumerate(counts) for step in range(count)
    )
    return tuple(visits[index] for _, index in positions[:slot_count])


def format_session_line(step: SessionStep) -> str:
    """Return a request as a line in a session log."""
    words = [step.path] if step.method == "GET" else [step.path, f"method={step.method}"]
    if step.body is not None:
        words.append(f'contents="{escape_text(step.body)}"')
    return " ".join([*words, f"think={step.think:g}"] if step.think else words)


def escape_text(text: str) -> str:
    r"""Return text in httperf's syntax, in which ``\\`` starts an escape."""
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
                    f"a session starts with {line.strip()!r}, which belongs to a burst"
                )
            sessions[-1].append(line.rstrip())
    return [session for session in sessions if session]


def _sum_pauses(session: list[str]) -> float:
    """Return the sum of the pauses between bursts (seconds). The pause after the last burst has no
    effect.
    """
    bursts = [line for line in session if not line[0].isspace()]
    words = [word for line in bursts[:-1] for word in line.split() if word.startswith("think=")]
    try:
        return round(sum(parse_decimal(word.removeprefix("think=")) for word in words), 3)
    except ValueError as error:
        raise UnusableWorkload(f"a pause is not a number of seconds: {error}") from error


def _check_path(path: str) -> None:
    if not path.startswith("/"):
        raise UnusableWorkload(f"{path!r} is not a path: it does not start with /")
