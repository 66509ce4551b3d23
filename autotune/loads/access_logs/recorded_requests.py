"""An access log as a workload: its successful requests, with their frequencies.

Skipped lines are counted by reason. Query values and path components that look like secrets are
masked; the load requests the masked path.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from functools import lru_cache
from pathlib import Path

from autotune.errors import AutotuneError
from autotune.foreign_files import MAX_TARGET_BYTES
from autotune.loads.access_logs.automated_requests import (
    HEALTH_CHECK,
    RegularRequests,
    find_automation,
    is_check_path,
)
from autotune.loads.access_logs.line_formats import (
    MAX_PATH_LENGTH,
    LoggedRequest,
    find_client,
    parse_line,
)
from autotune.loads.access_logs.log_files import MAX_LINE_BYTES
from autotune.loads.access_logs.page_sample import PageSample
from autotune.secret_detection import find_secrets, is_secret_assignment, may_contain_secret
from autotune.strict_parsing import is_uint
from autotune.target.requests_file import MAX_REQUESTS

MASK_TEXT = "masked"
SAFE_METHODS = frozenset({b"GET", b"HEAD"})
DATA_METHODS = frozenset({b"POST", b"PUT", b"PATCH", b"DELETE"})
# The client had cached the page, but the load always requests it whole.
NOT_MODIFIED_STATUS = b"304"
UNKNOWN_LINE = "line in an unknown format"
ERROR_LOG_LINE = "line of an error log"
# The start of a line in the error logs of nginx, Apache and PHP
_ERROR_LINE_PATTERN = re.compile(
    rb"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[[a-z]{4,6}\] \d|"
    rb"\[[A-Z][a-z]{2} [A-Z][a-z]{2} [^\]]{5,40}\] \[(?:\w{1,40}:)?[a-z]{4,6}\d?\] |"
    rb"\[\d\d-[A-Z][a-z]{2}-\d{4} [^\]]{5,40}\] (?:PHP )?[A-Z][A-Za-z ]{2,30}: "
)
_MAX_BRACKET_PAIRS = 10
_COMMENT_BYTES = 10_000  # space for comments: names of logs, and lines about the sample
_SEPARATOR_PATTERN = re.compile(r"([/?&;=])")


@dataclass
class RecordedRequests:
    """Requests of logs by page, and counts of ``skipped`` lines by reason.

    ``used_count`` is the number of requests that ``pages`` represents, and ``masked_count`` is the
    number of such requests with a possible secret. ``logs_without_requests`` contain only other text.
    """

    pages: PageSample = field(default_factory=PageSample)
    skipped: Counter[str] = field(default_factory=Counter)
    used_count: int = 0
    masked_count: int = 0
    logs_without_requests: list[Path] = field(default_factory=list)

    @property
    def requests(self) -> dict[tuple[str, str], int]:
        """Return the weights of pages by (method, path), the largest first."""
        return {_split_page(page): weight for page, weight in self.pages.list_weights()}

    @property
    def coverage(self) -> float:
        """Return the fraction of used requests whose page was kept in the sample."""
        return sum(self.pages.counts.values()) / self.used_count if self.used_count else 1.0

    def add(self, page: bytes, count: int = 1) -> None:
        """Count requests for a page after masking its secrets."""
        masked_page = _mask_page(page)
        self.used_count += count
        self.masked_count += count if masked_page != page else 0
        self.pages.add(masked_page, count)

    def limit_pages(self, max_requests: int, max_bytes: int = MAX_TARGET_BYTES) -> None:
        """Drop pages until a `requests:` file of the pages does not exceed the two limits."""
        self.pages.reduce(max_requests)
        while (file_size := len(self.format_request_file(()))) > max_bytes - _COMMENT_BYTES:
            kept_share = (max_bytes - _COMMENT_BYTES) / file_size
            self.pages.reduce(max(1, int(len(self.pages.counts) * kept_share * 0.95)))

    def format_request_file(self, logs: Sequence[str]) -> str:
        """Return the text of a `requests:` file."""
        requests = self.requests
        log_names = ", ".join(json.dumps(log)[:200] for log in logs[:9])
        lines = [
            f"# from-log: {self.used_count} requests for {len(requests)} pages, {log_names}",
            *(f"# {line}" for line in self.describe_sample()),
            *(f"# left out: {line}" for line in self.describe_skipped()),
            "requests:",
        ]
        for (method, path), weight in requests.items():
            method_entry = "" if method == "GET" else f"method: {method}, "
            lines.append(f"  - {{{method_entry}path: {_quote_for_yaml(path)}, weight: {weight}}}")
        return "\n".join(lines) + "\n"

    def describe_sample(self) -> Iterator[str]:
        """Yield a warning if the pages are a sample."""
        if self.pages.was_reduced:
            yield (
                f"warning: the list is a sample of the pages, and covers {self.coverage:.0%} of the "
                "requests"
            )
            yield "caches may have a higher hit rate than on the site, which serves more pages"

    def describe_skipped(self) -> Iterator[str]:
        """Yield one line for each reason why requests were skipped, the most frequent reason first."""
        for skip_reason, skipped_count in self.skipped.most_common():
            if skip_reason:
                yield f"{skipped_count} × {skip_reason}"


@dataclass(frozen=True)
class RequestFilter:
    """A filter for the requests of a log.

    ``keep_unsafe`` keeps requests whose method may change data. ``exclude`` contains shell patterns
    that match a whole path, client address or user agent.
    """

    keep_unsafe: bool = False
    exclude: tuple[str, ...] = ()

    def explain_skip(self, request: LoggedRequest) -> str:
        """Return why a request is not used, or an empty string if it is used."""
        if self.exclude:
            for pattern, compiled_pattern in _compile_patterns(self.exclude):
                if _matches_request(compiled_pattern, request):
                    return describe_exclusion(pattern)
        return (
            (request.agent and find_automation(request.agent))
            or _explain_unusable_page(request.method, request.path, keep_unsafe=self.keep_unsafe)
            or _explain_unusable_status(request.status)
        )


@lru_cache(maxsize=1 << 14)
def _explain_unusable_page(method: bytes, path: bytes, *, keep_unsafe: bool) -> str:
    """Return why a page cannot be part of a load, or an empty string."""
    if not path:
        return "not a valid request"
    if len(path) > MAX_PATH_LENGTH:
        return f"path longer than {MAX_PATH_LENGTH} characters"
    if is_check_path(path):
        return HEALTH_CHECK
    if method in SAFE_METHODS or (keep_unsafe and method in DATA_METHODS):
        return ""
    if method in DATA_METHODS:
        return f"{method.decode()} may change data (--unsafe keeps such requests)"
    return (
        "the OPTIONS method does not request a page"
        if method == b"OPTIONS"
        else "unsupported method"
    )


@lru_cache(maxsize=1000)
def _explain_unusable_status(status: bytes) -> str:
    if len(status) != 3 or not status.isdigit():
        return "no response status"
    if status[:1] == b"2" or status == NOT_MODIFIED_STATUS:
        return ""
    return f"status {status.decode()}"


_ACCEPT_ALL = RequestFilter()


def describe_exclusion(pattern: str) -> str:
    """Return the skip reason for requests that match an exclusion pattern."""
    return f"excluded by {pattern}"


def record_requests(
    logs: Mapping[Path, Iterable[bytes]],
    request_filter: RequestFilter = _ACCEPT_ALL,
    *,
    max_requests: int = MAX_REQUESTS,
) -> RecordedRequests:
    """Return the requests that the filter accepts in ``logs``, which contains the lines of each log."""
    recorded_requests, regular_requests = RecordedRequests(), RegularRequests()
    recorded_requests.skipped.update(
        dict.fromkeys(map(describe_exclusion, request_filter.exclude), 0)
    )
    for log, lines in logs.items():
        if _record_lines(lines, request_filter, recorded_requests, regular_requests):
            recorded_requests.logs_without_requests.append(log)
    health_check_count, pages = regular_requests.split()
    if health_check_count:
        recorded_requests.skipped[HEALTH_CHECK] += health_check_count
    for page, request_count in pages.items():
        recorded_requests.add(page, request_count)
    recorded_requests.limit_pages(max_requests)
    return recorded_requests


def _record_lines(
    lines: Iterable[bytes],
    request_filter: RequestFilter,
    recorded_requests: RecordedRequests,
    regular_requests: RegularRequests,
) -> bool:
    """Add the requests of one log. Return true if the log contains text, but no request."""
    has_text = has_request = False
    for line in lines:
        request = parse_line(line) if len(line) <= MAX_LINE_BYTES else None
        if request is None:
            reason = _explain_skipped_line(line)
            has_text = has_text or bool(reason)
        else:
            reason = request_filter.explain_skip(request)
            has_request = True
        if request is None or reason:
            recorded_requests.skipped[reason] += bool(reason)
            continue
        page = request.method + b" " + request.path
        if not regular_requests.keep(request, page):
            recorded_requests.add(page)
    return has_text and not has_request


def _explain_skipped_line(line: bytes) -> str:
    """Return why a line is not a request, or an empty string for an empty line."""
    if len(line) > MAX_LINE_BYTES:
        return f"line longer than {MAX_LINE_BYTES // 1024} KB"
    if _ERROR_LINE_PATTERN.match(line):
        return ERROR_LOG_LINE
    return UNKNOWN_LINE if line.strip() else ""


def build_unusable_error(
    recorded_requests: RecordedRequests, log_names: Sequence[str]
) -> AutotuneError:
    """Return the error for logs without a usable request. Its hint fits the most frequent reason."""
    reasons = [reason for reason, count in recorded_requests.skipped.most_common(1) if count]
    message = f"no usable request in {', '.join(log_names)}"
    lines = "\n".join([message, *recorded_requests.describe_skipped()])
    if reasons == [ERROR_LOG_LINE]:
        return AutotuneError(lines, hint="name the access log, such as /var/log/nginx/access.log")
    if reasons in ([], [UNKNOWN_LINE]):
        return AutotuneError(
            lines, hint="name an access log in the common, combined, HAProxy or JSON format"
        )
    return AutotuneError(
        lines, hint="name a log with requests of users, or change --exclude or --unsafe"
    )


@lru_cache(maxsize=8)
def _compile_patterns(patterns: tuple[str, ...]) -> tuple[tuple[str, re.Pattern[bytes]], ...]:
    return tuple((pattern, re.compile(translate(pattern).encode())) for pattern in patterns)


def _matches_request(compiled_pattern: re.Pattern[bytes], request: LoggedRequest) -> bool:
    request_texts = (request.path, find_client(request.head), request.agent or b"")
    return any(compiled_pattern.match(text) for text in request_texts)


def _split_page(page: bytes) -> tuple[str, str]:
    method, _, path = page.decode("ascii").partition(" ")
    return method, path


@lru_cache(maxsize=1 << 14)
def _mask_page(page: bytes) -> bytes:
    method, path = _split_page(page)
    return f"{method} {mask_secrets(path)}".encode() if may_contain_secret(path) else page


def _quote_for_yaml(path: str) -> str:
    """Quote a path. Unpaired or numerous brackets are escaped, because YAML readers limit them."""
    is_paired = all(path.count(a) == path.count(b) <= _MAX_BRACKET_PAIRS for a, b in ("[]", "{}"))
    escaped_path = re.sub(r"[][{}]", lambda bracket: f"\\u{ord(bracket[0]):04x}", json.dumps(path))
    return json.dumps(path) if is_paired else escaped_path


def mask_secrets(path: str) -> str:
    """Return the path with ``MASK_TEXT`` in place of each component that looks like a secret."""
    components = _SEPARATOR_PATTERN.split(path)
    for index, component in enumerate(components):
        name = components[index - 2] if index >= 2 and components[index - 1] == "=" else ""
        if component and not is_uint(component) and _is_secret(name, component):
            components[index] = MASK_TEXT
    return "".join(components)


@lru_cache(maxsize=1 << 12)
def _is_secret(name: str, component: str) -> bool:
    assignment_text = f"{name}={component}" if name else component
    return may_contain_secret(assignment_text) and (
        is_secret_assignment(name, component) or bool(find_secrets(assignment_text))
    )
