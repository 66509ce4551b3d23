"""Recognise requests that no user makes: health checks, monitoring, and crawlers."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from itertools import pairwise
from statistics import median

from autotune.loads.access_logs.line_formats import LoggedRequest, find_client

HEALTH_CHECK = "health check or monitoring"
_CRAWLER = "crawler"
_MONITOR_PATTERN = re.compile(
    rb"(?i)health[-_ ]?check|health[-_ ]?probe|kube-probe|googlehc|uptime|pingdom|statuscake|site24x7"
    rb"|check_http|nagios|icinga|zabbix|checkmk|\bmonit/|blackbox|prometheus|datadog|newrelicpinger"
    rb"|haproxy|load ?balancer|route ?53|traffic ?manager|cloudflare-traffic|freshping|hetrixtools"
)
_CRAWLER_PATTERN = re.compile(
    rb"(?i)(?<!cu)bot(?![a-z])|bots?[/;+ ]|crawl|spider|slurp|scrapy|archiver|archive\.org"
    rb"|facebookexternalhit|mediapartners|bingpreview|google-inspectiontool|feedfetcher|feedburner"
    rb"|feedly|yandex(?:images|direct|media|metrika)|lighthouse|pagespeed|semrush|ahrefs|screaming"
    rb"|zgrab|masscan|nmap|nuclei|censys|nikto|sqlmap|headlesschrome|whatsapp|embedly|validator"
)
_CHECK_PATH_PATTERN = re.compile(
    rb"(?i)/(?:healthz?|livez?|readyz?|health[-_]?check|liveness|readiness|server-status"
    rb"|(?:nginx|basic|stub)_status|fpm-(?:status|ping)|-/(?:health|healthy|ready)"
    rb"|actuator/health(?:/[a-z]+)?)(?:\?.*)?"
)
_MONTHS = {
    name: number
    for number, name in enumerate(b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), 1)
}
_MAX_SERIES = 5_000  # maximum number of request series in memory
_MAX_TIMES = 64  # maximum number of recorded times per series
_MIN_TIMES = 10  # fewer requests may have regular intervals by chance
_MAX_CHECKERS = 3  # maximum number of processes behind one address that check independently
# minimum share of similar intervals; restarts and outages cause irregular intervals
_REGULAR_SHARE = 0.8


@lru_cache(maxsize=4096)
def find_automation(agent: bytes) -> str:
    """Return the kind of automated client that a user agent identifies, or an empty string."""
    if _MONITOR_PATTERN.search(agent):
        return HEALTH_CHECK
    return _CRAWLER if _CRAWLER_PATTERN.search(agent) else ""


def is_check_path(path: bytes) -> bool:
    """True if a path is used for health checks by convention."""
    return _CHECK_PATH_PATTERN.fullmatch(path) is not None


@dataclass
class _RequestSeries:
    """Requests of one client for one page."""

    count: int = 0
    times: list[float] = field(default_factory=list)


@dataclass
class RegularRequests:
    """Requests without a user agent, kept by client and page until it is known whether they are
    periodic.

    Load balancers check the health of servers at fixed intervals, and usually send no user agent.
    """

    series: dict[tuple[bytes, bytes], _RequestSeries] = field(default_factory=dict)

    def keep(self, request: LoggedRequest, page: bytes) -> bool:
        """Keep a request if it may be a health check, and return true if it was kept."""
        if request.agent or (request.agent is None and request.protocol != b"1.0"):
            return False
        series_key = find_client(request.head), page
        if series_key not in self.series and len(self.series) >= _MAX_SERIES:
            return False
        series = self.series.setdefault(series_key, _RequestSeries())
        series.count += 1
        if len(series.times) < _MAX_TIMES and (seconds := parse_time(request.time)) is not None:
            series.times.append(seconds)
        return True

    def split(self) -> tuple[int, dict[bytes, int]]:
        """Return the number of kept requests that are health checks, and the counts of all other
        kept requests by page.
        """
        health_check_count, pages = 0, dict[bytes, int]()
        for (_, page), series in self.series.items():
            if is_regular(series.times):
                health_check_count += series.count
            else:
                pages[page] = pages.get(page, 0) + series.count
        return health_check_count, pages


def is_regular(times: list[float]) -> bool:
    """True if requests were sent at a fixed interval, by up to ``_MAX_CHECKERS`` processes.

    The tolerance allows for timestamps with a resolution of one second.
    """
    if len(times) < _MIN_TIMES:
        return False
    sorted_times = sorted(times)
    for checker_count in range(1, _MAX_CHECKERS + 1):
        intervals = [
            sorted_times[i + checker_count] - sorted_times[i]
            for i in range(len(sorted_times) - checker_count)
        ]
        typical_interval = median(intervals)
        tolerance = 1 + 0.1 * typical_interval if typical_interval >= 5 else 0.1
        similar_count = sum(abs(interval - typical_interval) <= tolerance for interval in intervals)
        if (
            typical_interval >= 1
            and similar_count >= _REGULAR_SHARE * len(intervals)
            and _is_spread_out(sorted_times)
        ):
            return True
    return False


def _is_spread_out(sorted_times: list[float]) -> bool:
    """True if at most half of the requests have the same time as the previous request; bursts are
    not health checks.
    """
    repeated_count = sum(later == earlier_time for earlier_time, later in pairwise(sorted_times))
    return repeated_count <= len(sorted_times) / 2


@lru_cache(maxsize=256)
def parse_time(text: bytes) -> float | None:
    """Return the time of a log line in seconds, or ``None`` if its format is unknown.

    Only times from the same log are comparable.
    """
    try:
        if text[2:3] == b"/":  # day/month/year, then a time zone or a fraction of a second
            calendar_time = time.struct_time(
                (
                    int(text[7:11]),
                    _MONTHS[text[3:6]],
                    int(text[:2]),
                    int(text[12:14]),
                    int(text[15:17]),
                    int(text[18:20]),
                    0,
                    0,
                    0,
                )
            )
            fraction = text[20:24] if text[20:21] == b"." else b"0"
            return datetime(*calendar_time[:6]).timestamp() + float(fraction)  # noqa: DTZ001
        if b"-" in text[1:]:
            return datetime.fromisoformat(text.decode()).timestamp()
        return float(text)
    except (ValueError, KeyError, OverflowError):
        return None
