"""An access log as a workload: its successful requests, with their frequencies.

It reads the combined and common formats of nginx and Apache, with an optional virtual host in
front. Skipped lines are counted by reason. Values of a query and components of a path that look
like secrets are masked; the load requests the page without them.
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
NOT_MODIFIED_STATUS = "304"  # for cached pages; a load generator gets the whole page
_LINE_PATTERN = re.compile(
    r"(?:\S+ )?\S+ \S+ (?:[^\[]{0,200} )?\[[^\]]{5,60}\] "
    r'"(?P<request>(?:[^"\\]|\\.)*)" (?P<status>\d{3}) '
)
_REQUEST_PATTERN = re.compile(r"(?P<method>[A-Z]+) (?P<path>/[!-~]*) HTTP/[0-9.]+")
_MAX_BRACKET_PAIRS = 10
_SEPARATOR_PATTERN = re.compile(r"([/?&;=])")


@dataclass
class LoggedRequests:
    """Requests of a log by (method, path), and counts of ``skipped`` lines by reason.

    ``masked_count`` is the number of requests that contained a possible secret.
    """

    requests: Counter[tuple[str, str]] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    masked_count: int = 0

    @property
    def used_count(self) -> int:
        return self.requests.total()

    def format_request_file(self, log: str) -> str:
        """Return the text of a `requests:` file."""
        lines = [
            f"# from-log: {self.used_count} requests for {len(self.requests)} pages, {json.dumps(log)}",
            *(f"# left out: {line}" for line in self.describe_skipped()),
            "requests:",
        ]
        for (method, path), count in self.requests.most_common():
            method_key = "" if method == "GET" else f"method: {method}, "
            lines.append(f"  - {{{method_key}path: {_quote_for_yaml(path)}, weight: {count}}}")
        return "\n".join(lines) + "\n"

    def describe_skipped(self) -> Iterator[str]:
        """Yield one line for each reason to skip requests, the most frequent first."""
        for reason, count in self.skipped.most_common():
            yield f"{count} × {reason}"


def parse_access_log(
    lines: Iterable[str], *, keep_unsafe: bool = False, max_requests: int = MAX_REQUESTS
) -> LoggedRequests:
    """Return the requests of a log. ``keep_unsafe`` keeps methods that may change data."""
    log = LoggedRequests()
    for line in lines:
        match = _LINE_PATTERN.match(line)
        request = _REQUEST_PATTERN.fullmatch(match["request"]) if match else None
        if match is None or request is None:
            log.skipped["not a request in combined format"] += bool(line.strip())
        elif request["method"] not in SAFE_METHODS and not keep_unsafe:
            log.skipped[f"{request['method']} may change data (--unsafe keeps it)"] += 1
        elif not match["status"].startswith("2") and match["status"] != NOT_MODIFIED_STATUS:
            log.skipped[f"status {match['status']}"] += 1
        else:
            path = mask_secrets(request["path"])
            log.masked_count += path != request["path"]
            log.requests[request["method"], path] += 1
    for page, count in log.requests.most_common()[max_requests:]:
        del log.requests[page]
        log.skipped[f"page is not among the {max_requests} most frequent"] += count
    return log


def _quote_for_yaml(path: str) -> str:
    """Return the path quoted for YAML.

    Unpaired or many brackets become escapes, because the reader of the file limits open brackets.
    """
    is_paired = all(path.count(a) == path.count(b) <= _MAX_BRACKET_PAIRS for a, b in ("[]", "{}"))
    escaped = re.sub(r"[][{}]", lambda bracket: f"\\u{ord(bracket[0]):04x}", json.dumps(path))
    return json.dumps(path) if is_paired else escaped


def mask_secrets(path: str) -> str:
    """Return the path with ``MASK_TEXT`` in place of each component that looks like a secret."""
    words = _SEPARATOR_PATTERN.split(path)
    for index, word in enumerate(words):
        name = words[index - 2] if index >= 2 and words[index - 1] == "=" else ""
        text = f"{name}={word}" if name else word
        if word and not is_uint(word) and find_secrets(text):
            words[index] = MASK_TEXT
    return "".join(words)
