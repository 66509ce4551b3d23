"""Loads with more than one path: visits from lists of URIs and session logs, and kinds of sessions.

Session logs have the format of httperf's `--wsesslog`. Each line is a request and starts with its path.
A line that starts with a space continues the burst of the line above; the requests of a burst follow
one after the other. `think=2.5` is the pause after a burst, in seconds. An empty line ends a session,
and `#` starts a comment.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from autotune.strict_parsing import parse_decimal, split_lines
from autotune.target.field_types import METHOD_PATTERN, PATH_PATTERN
from autotune.target.messages import suggest_name
from autotune.target.requests_file import SessionStep, WeightedVisit

MAX_SESSION_KINDS = 8
SESSION_OPTIONS = ("think", "method", "contents")
# longest pause in a session, because a reading of a few seconds must contain complete sessions
MAX_THINK_SECONDS = 2.0
_WORD_PATTERN = re.compile(
    r"""(\w+)=("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^\s'"]\S*|(?=\s|$))(?=\s|$)"""
)
_ESCAPED_LETTERS = {"n": "\n", "r": "\r", "t": "\t"}  # as in httperf


class UnusableWorkload(ValueError):
    """A file of URIs or sessions cannot be used as load. The error's text is the reason.

    ``line`` is the line of the mistake in the file, and ``index`` the index of a visit; both may be
    unknown.
    """

    def __init__(
        self,
        reason: str,
        *,
        hint: str | None = None,
        line: int | None = None,
        index: int | None = None,
    ) -> None:
        super().__init__(reason)
        self.hint, self.line, self.index = hint, line, index


@dataclass(frozen=True)
class SessionKind:
    """Sessions with the same number of requests and the same sum of pauses (``think_seconds``).

    A session's duration therefore determines the mean latency of its requests. ``sessions`` contains
    the text of each session in a session log.
    """

    request_count: int
    think_seconds: float
    sessions: tuple[str, ...]

    @property
    def session_count(self) -> int:
        return len(self.sessions)

    @property
    def session_log(self) -> str:
        return "\n\n".join(self.sessions) + "\n"


def parse_uris(file_text: str) -> tuple[WeightedVisit, ...]:
    """Return a visit for each path. Paths are separated by line ends or by NUL. Raises
    UnusableWorkload.
    """
    lines = enumerate(split_lines(file_text.replace("\0", "\n")), 1)
    paths = {number: line.strip() for number, line in lines if line.strip()}
    if not paths:
        raise UnusableWorkload("the file contains no path", hint="write one path per line")
    for number, path in paths.items():
        _check_path(path, number)
    return tuple(WeightedVisit.model_construct(path=path) for path in paths.values())


def parse_sessions(log_text: str) -> tuple[WeightedVisit, ...]:
    """Return a visit for each session in a session log. Raises UnusableWorkload."""
    sessions: list[list[SessionStep]] = [[]]
    for number, line in enumerate(split_lines(log_text), 1):
        if not line.strip():
            sessions.append([])
        elif not line.lstrip().startswith("#"):
            _add_step(sessions[-1], line, number)
    visits = tuple(
        WeightedVisit.model_construct(session=tuple(steps)) for steps in sessions if steps
    )
    if not visits:
        raise UnusableWorkload("the file contains no session", hint="write one path per line")
    return visits


def _add_step(session: list[SessionStep], line: str, number: int) -> None:
    """Add the request in a line of a session log. A burst's pause follows the last request of the
    burst.
    """
    step = _parse_step(line, number)
    if line[0].isspace():
        if not session:
            raise UnusableWorkload(
                f"a session starts with the indented line {line.strip()!r}, which continues a burst",
                hint="remove the spaces at the start of the line",
                line=number,
            )
        step = step.model_copy(update={"think": session[-1].think})
        session[-1] = session[-1].model_copy(update={"think": 0.0})
    session.append(step)


def _parse_step(line: str, number: int) -> SessionStep:
    path, *word_texts = line.split(maxsplit=1)
    _check_path(path, number)
    options = _parse_options("".join(word_texts), number)
    method, body = options.get("method", "GET"), options.get("contents") or None
    if not re.fullmatch(METHOD_PATTERN, method):
        hint = "write it in capital letters, such as `method=POST`"
        raise UnusableWorkload(f"{method!r} is not a method", hint=hint, line=number)
    if body is not None and method in ("GET", "HEAD"):
        hint = "add `method=POST`, or remove `contents`"
        raise UnusableWorkload(f"a {method} request has no body", hint=hint, line=number)
    pause_seconds = _parse_pause(options.get("think", "0"), number)
    return SessionStep.model_construct(path=path, method=method, body=body, think=pause_seconds)


def _parse_options(text: str, number: int) -> dict[str, str]:
    """Return the options after a path, by key. Raises UnusableWorkload for any other text."""
    if unread_words := _WORD_PATTERN.sub("", text).split():
        hint = "write options as `method=POST`, `think=0.5` or `contents='a=1'`"
        raise UnusableWorkload(f"{unread_words[0]!r} is not an option", hint=hint, line=number)
    options = {key: _unquote(value) for key, value in _WORD_PATTERN.findall(text)}
    for key in options:
        if key not in SESSION_OPTIONS:
            hint = suggest_name(key, SESSION_OPTIONS)
            raise UnusableWorkload(f"unknown option {key!r}", hint=hint, line=number)
    return options


def _parse_pause(text: str, number: int) -> float:
    try:
        pause_seconds = parse_decimal(text)
    except ValueError as error:
        reason = f"a pause is not a number of seconds: {error}"
        hint = "write seconds without a unit, such as `think=0.5`"
        raise UnusableWorkload(reason, hint=hint, line=number) from error
    if pause_seconds < 0:
        raise UnusableWorkload("a pause is negative", hint="write `think=0.5`", line=number)
    return pause_seconds


def _unquote(quoted_text: str) -> str:
    """Return a word of a session log without its quotes and escapes."""
    text = quoted_text[1:-1] if quoted_text[:1] in ("'", '"') else quoted_text
    return re.sub(r"\\(.)", lambda match: _ESCAPED_LETTERS.get(match[1], match[1]), text)


def group_sessions(visits: Sequence[WeightedVisit]) -> tuple[SessionKind, ...]:
    """Return the visits grouped by kind, the most frequent kind first. Raises UnusableWorkload."""
    # a list repeats its visits, so each visit is formatted only once
    text_by_visit = {
        id(visit): "\n".join(map(format_session_line, visit.session_steps))
        for visit in {id(visit): visit for visit in visits}.values()
    }
    session_texts: dict[tuple[int, float], list[str]] = defaultdict(list)
    for visit in visits:
        session_texts[len(visit.session_steps), sum_pauses(visit)].append(text_by_visit[id(visit)])
    if len(session_texts) > MAX_SESSION_KINDS:
        raise UnusableWorkload(
            f"the sessions have {len(session_texts)} different lengths or pauses; at most "
            f"{MAX_SESSION_KINDS} are supported"
        )
    check_pauses(visits)
    kinds = [
        SessionKind(calls, pause_seconds, tuple(sessions))
        for (calls, pause_seconds), sessions in session_texts.items()
    ]
    return tuple(sorted(kinds, key=lambda kind: -kind.session_count))


def sum_pauses(visit: WeightedVisit) -> float:
    """Return the sum of a visit's pauses in seconds. The pause after the last request has no effect."""
    return round(sum(step.think for step in visit.session_steps[:-1]), 3)


def check_pauses(visits: Sequence[WeightedVisit]) -> None:
    """Raise UnusableWorkload if a session pauses for too long for a reading of a few seconds.

    The last requests of such sessions would be sent after the reading, so the reading would offer fewer
    requests/s than requested.
    """
    pauses = [sum_pauses(visit) for visit in visits]
    longest_pause = max(pauses, default=0.0)
    if longest_pause > MAX_THINK_SECONDS:
        raise UnusableWorkload(
            f"a session pauses for {longest_pause:g} s; the maximum is {MAX_THINK_SECONDS:g} s",
            hint=f"shorten its pauses (`think`) to {MAX_THINK_SECONDS:g} s in total",
            index=pauses.index(longest_pause),
        )


def expand_visits(visits: Sequence[WeightedVisit], slot_count: int) -> tuple[WeightedVisit, ...]:
    """Repeat each visit in proportion to its weight, evenly mixed, with about ``slot_count`` visits
    in total.

    Every visit occurs at least once. A part of the list has about the same mix as the whole list,
    because a reading sends only a part.
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
    indices_by_count: dict[int, list[int]] = defaultdict(list)
    for index, count in enumerate(counts):
        indices_by_count[count].append(index)
    # Visits with the same count would otherwise be next to each other, and not in most readings.
    positions = sorted(
        ((step + (rank + 0.5) / len(indices)) / count, index)
        for count, indices in indices_by_count.items()
        for rank, index in enumerate(indices)
        for step in range(count)
    )
    return tuple(visits[index] for _, index in positions)


def format_session_line(step: SessionStep) -> str:
    """Return a request as a line in a session log."""
    fields = [step.path] if step.method == "GET" else [step.path, f"method={step.method}"]
    if step.body is not None:
        fields.append(f'contents="{escape_text(step.body)}"')
    return " ".join([*fields, f"think={step.think:g}"] if step.think else fields)


def escape_text(text: str) -> str:
    r"""Return text in httperf's syntax, in which ``\\`` starts an escape."""
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _check_path(path: str, line: int) -> None:
    if not path.startswith("/"):
        reason, hint = "it does not start with /", "write only the path, such as /cart"
        if path.endswith(":") or path.startswith("- "):
            hint = "a YAML file of requests belongs to `load: {requests: FILE}`"
        elif path.startswith("#"):
            hint = "remove the comment: each line is a path"
    elif not re.fullmatch(PATH_PATTERN, path):
        reason = "it contains a space or is not ASCII"
        hint = "write one path per line, and encode spaces and other letters, such as %20"
    else:
        return
    raise UnusableWorkload(f"{path!r} is not a path: {reason}", hint=hint, line=line)
