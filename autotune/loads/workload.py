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

from autotune.strict import decimal, split_lines
from autotune.target.requests import Step, Visit

MOST_KINDS = 8
LONGEST_THINK = 2.0  # seconds of a session: readings last a few, and must hold whole sessions


class Unusable(ValueError):
    """A file of URIs or sessions that no load can be made of; its text says why."""


@dataclass(frozen=True)
class Kind:
    """Sessions with the same number of ``calls`` and the same pauses in sum (``think``, seconds), so
    that a session's duration tells what its requests took. The file has ``count``, as ``text``."""

    calls: int
    think: float
    count: int
    text: str


def uris(text: str) -> tuple[str, ...]:
    """Paths, one a line or with NUL between. Raises Unusable."""
    paths = tuple(word.strip() for word in split_lines(text.replace("\0", "\n")) if word.strip())
    if not paths:
        raise Unusable("there is no path in it")
    for path in paths:
        _path(path)
    return paths


def kinds(text: str) -> tuple[Kind, ...]:
    """The sessions by kind, the most frequent first. Raises Unusable."""
    alike: dict[tuple[int, float], list[str]] = defaultdict(list)
    for session in _sessions(text):
        alike[len(session), _think(session)].append("\n".join(session))
    if not alike:
        raise Unusable("there is no session in it")
    if len(alike) > MOST_KINDS:
        raise Unusable(
            f"its sessions are of {len(alike)} different lengths or pauses, and {MOST_KINDS} are the "
            "most that can be told apart"
        )
    if longest := next((think for _, think in alike if think > LONGEST_THINK), None):
        raise Unusable(f"a session pauses for {longest:g} s: {LONGEST_THINK:g} s are the most")
    kinds = [
        Kind(calls, think, len(sessions), "\n\n".join(sessions) + "\n")
        for (calls, think), sessions in alike.items()
    ]
    return tuple(sorted(kinds, key=lambda kind: -kind.count))


def slots(visits: Sequence[Visit], most: int) -> tuple[Visit, ...]:
    """Each visit as often as its weight says, ``most`` in all, evenly mixed from any place on."""
    weights = [visit.weight for visit in visits]
    if all(weight == int(weight) for weight in weights):
        divisor = gcd(*map(int, weights))
        weights = [weight / divisor for weight in weights]
    total = sum(weights)
    fits = total <= most and all(weight == int(weight) for weight in weights)
    counts = [int(w) if fits else max(1, round(w * most / total)) for w in weights]
    places = sorted(
        ((turn + 0.5) / count, index) for index, count in enumerate(counts) for turn in range(count)
    )
    return tuple(visits[index] for _, index in places[:most])


def session_line(step: Step) -> str:
    """A request as a line of a log of sessions."""
    words = [step.path] if step.method == "GET" else [step.path, f"method={step.method}"]
    if step.body is not None:
        words.append(f'contents="{escaped(step.body)}"')
    return " ".join([*words, f"think={step.think:g}"] if step.think else words)


def escaped(text: str) -> str:
    r"""As httperf reads it back: ``\\`` begins an escape."""
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _sessions(text: str) -> list[list[str]]:
    sessions: list[list[str]] = [[]]
    for line in split_lines(text):
        if not line.strip():
            sessions.append([])
        elif not line.lstrip().startswith("#"):
            _path(line.split()[0])
            if line[0].isspace() and not sessions[-1]:
                raise Unusable(f"a session begins with {line.strip()!r}, which belongs to a burst")
            sessions[-1].append(line.rstrip())
    return [session for session in sessions if session]


def _think(session: list[str]) -> float:
    """The sum of the pauses between bursts (seconds); nothing waits for the one after the last."""
    bursts = [line for line in session if not line[0].isspace()]
    words = [word for line in bursts[:-1] for word in line.split() if word.startswith("think=")]
    try:
        return round(sum(decimal(word.removeprefix("think=")) for word in words), 3)
    except ValueError as error:
        raise Unusable(f"a pause is no number of seconds: {error}") from error


def _path(path: str) -> None:
    if not path.startswith("/"):
        raise Unusable(f"{path!r} is no path: it does not begin with /")
