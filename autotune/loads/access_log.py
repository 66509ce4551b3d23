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

from autotune.secret_detection import find_secrets
from autotune.strict_parsing import is_uint
from autotune.target.requests_file import MAX_REQUESTS

MASK_TEXT = "masked"
SAFE_METHODS = frozenset({"GET", "HEAD"})
NOT_MODIFIED_STATUS = "304"  # answers a browser that has the page cached; others get the whole page
_LINE_PATTERN = re.compile(
    r'(?:\S+ )?\S+ \S+ (?:[^\[]{0,200} )?\[[^\]]{5,60}\] "(?P<asked>(?:[^"\\]|\\.)*)" (?P<status>\d{3}) '
)
_REQUEST_PATTERN = re.compile(r"(?P<method>[A-Z]+) (?P<path>/[!-~]*) HTTP/[0-9.]+")
_MAX_BRACKET_PAIRS = 10
_SEPARATOR_PATTERN = re.compile(r"([/?&;=])")


@dataclass
class LoggedRequests:
    """``requests`` counts by (method, path), ``skipped`` by reason; ``masked_count`` is how many requests
    had something that looks like a secret."""

    requests: Counter[tuple[str, str]] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    masked_count: int = 0

    @property
    def used_count(self) -> int:
        return self.requests.total()

    def format_request_file(self, log: str) -> str:
        """The file of requests that a target names."""
        lines = [
            f"# from-log: {self.used_count} requests for {len(self.requests)} pages, {json.dumps(log)}",
            *(f"# left out: {line}" for line in self.describe_skipped()),
            "requests:",
        ]
        for (method, path), count in self.requests.most_common():
            written = "" if method == "GET" else f"method: {method}, "
            lines.append(f"  - {{{written}path: {_quote_for_yaml(path)}, weight: {count}}}")
        return "\n".join(lines) + "\n"

    def describe_skipped(self) -> Iterator[str]:
        """What was left out, a line each, the most frequent first."""
        for reason, count in self.skipped.most_common():
            yield f"{count} × {reason}"


def parse_access_log(
    lines: Iterable[str], *, keep_unsafe: bool = False, max_requests: int = MAX_REQUESTS
) -> LoggedRequests:
    """The requests of a log; ``keep_unsafe`` keeps methods that may change data."""
    recorded = LoggedRequests()
    for line in lines:
        match = _LINE_PATTERN.match(line)
        request = _REQUEST_PATTERN.fullmatch(match["asked"]) if match else None
        if match is None or request is None:
            recorded.skipped["no request in combined format"] += bool(line.strip())
        elif request["method"] not in SAFE_METHODS and not keep_unsafe:
            recorded.skipped[f"{request['method']}, which may change data (--unsafe keeps it)"] += 1
        elif not match["status"].startswith("2") and match["status"] != NOT_MODIFIED_STATUS:
            recorded.skipped[f"answered with {match['status']}"] += 1
        else:
            path = mask_secrets(request["path"])
            recorded.masked_count += path != request["path"]
            recorded.requests[request["method"], path] += 1
    for page, count in recorded.requests.most_common()[max_requests:]:
        del recorded.requests[page]
        recorded.skipped[f"of pages rarer than the {max_requests} most frequent"] += count
    return recorded


def _quote_for_yaml(path: str) -> str:
    """The path quoted for YAML. Brackets that are not paired, or too many, are written as escapes:
    the reader of the file counts open brackets."""
    pairs = all(path.count(a) == path.count(b) <= _MAX_BRACKET_PAIRS for a, b in ("[]", "{}"))
    coded = re.sub(r"[][{}]", lambda bracket: f"\\u{ord(bracket[0]):04x}", json.dumps(path))
    return json.dumps(path) if pairs else coded


def mask_secrets(path: str) -> str:
    """The path with ``MASK_TEXT`` in place of each part that looks like a secret."""
    words = _SEPARATOR_PATTERN.split(path)
    for location, word in enumerate(words):
        name = words[location - 2] if location >= 2 and words[location - 1] == "=" else ""
        text = f"{name}={word}" if name else word
        if word and not is_uint(word) and find_secrets(text):
            words[location] = MASK_TEXT
    return "".join(words)
