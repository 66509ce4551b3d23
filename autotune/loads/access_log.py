"""An access log as a workload: the requests that were answered, each with how often it came.

It reads nginx's and Apache's combined format (and the common one), with or without a virtual host in
front. What is left out is counted by its reason. Values of a query, and parts of a path, that look
like secrets are masked: the page is requested without them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from autotune.secret_detection import spans
from autotune.strict import is_whole
from autotune.target.requests import MOST

MASK = "masked"
SAFE = frozenset({"GET", "HEAD"})
UNCHANGED = "304"  # answers a browser that has the page cached; others get the whole page
_LINE = re.compile(
    r'(?:\S+ )?\S+ \S+ (?:[^\[]{0,200} )?\[[^\]]{5,60}\] "(?P<asked>(?:[^"\\]|\\.)*)" (?P<status>\d{3}) '
)
_ASKED = re.compile(r"(?P<method>[A-Z]+) (?P<path>/[!-~]*) HTTP/[0-9.]+")
_MOST_PAIRS = 10
_SEPARATORS = re.compile(r"([/?&;=])")


@dataclass
class Recorded:
    """``requests`` counts by (method, path), ``left_out`` by reason; ``masked`` is how many requests
    had something that looks like a secret."""

    requests: Counter[tuple[str, str]] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    masked: int = 0

    @property
    def used(self) -> int:
        return self.requests.total()

    def text(self, log: str) -> str:
        """The file of requests that a target names."""
        lines = [
            f"# from-log: {self.used} requests for {len(self.requests)} pages, {json.dumps(log)}",
            *(f"# left out: {line}" for line in self.account()),
            "requests:",
        ]
        for (method, path), count in self.requests.most_common():
            written = "" if method == "GET" else f"method: {method}, "
            lines.append(f"  - {{{written}path: {_quoted(path)}, weight: {count}}}")
        return "\n".join(lines) + "\n"

    def account(self) -> Iterator[str]:
        """What was left out, a line each, the most frequent first."""
        for reason, count in self.left_out.most_common():
            yield f"{count} × {reason}"


def read(lines: Iterable[str], *, unsafe: bool = False, most: int = MOST) -> Recorded:
    """The requests of a log; ``unsafe`` keeps methods that may change data."""
    recorded = Recorded()
    for line in lines:
        match = _LINE.match(line)
        asked = _ASKED.fullmatch(match["asked"]) if match else None
        if match is None or asked is None:
            recorded.left_out["no request in combined format"] += bool(line.strip())
        elif asked["method"] not in SAFE and not unsafe:
            recorded.left_out[f"{asked['method']}, which may change data (--unsafe keeps it)"] += 1
        elif not match["status"].startswith("2") and match["status"] != UNCHANGED:
            recorded.left_out[f"answered with {match['status']}"] += 1
        else:
            path = without_secrets(asked["path"])
            recorded.masked += path != asked["path"]
            recorded.requests[asked["method"], path] += 1
    for page, count in recorded.requests.most_common()[most:]:
        del recorded.requests[page]
        recorded.left_out[f"of pages rarer than the {most} most frequent"] += count
    return recorded


def _quoted(path: str) -> str:
    """The path quoted for YAML. Brackets that are not paired, or too many, are written as escapes:
    the reader of the file counts open brackets."""
    pairs = all(path.count(a) == path.count(b) <= _MOST_PAIRS for a, b in ("[]", "{}"))
    coded = re.sub(r"[][{}]", lambda bracket: f"\\u{ord(bracket[0]):04x}", json.dumps(path))
    return json.dumps(path) if pairs else coded


def without_secrets(path: str) -> str:
    """The path with ``MASK`` in place of each part that looks like a secret."""
    words = _SEPARATORS.split(path)
    for place, word in enumerate(words):
        name = words[place - 2] if place >= 2 and words[place - 1] == "=" else ""
        text = f"{name}={word}" if name else word
        if word and not is_whole(word) and spans(text):
            words[place] = MASK
    return "".join(words)
