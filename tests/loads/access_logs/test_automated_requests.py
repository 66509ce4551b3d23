"""Health checks and crawlers, by user agent, path and interval."""

from __future__ import annotations

import random

import pytest

from autotune.loads.access_logs.automated_requests import (
    RegularRequests,
    find_automation,
    is_check_path,
    is_regular,
    parse_time,
)
from autotune.loads.access_logs.line_formats import LoggedRequest

AGENTS = {
    "ELB-HealthChecker/2.0": "health check or monitoring",
    "kube-probe/1.29": "health check or monitoring",
    "Prometheus/2.45.0": "health check or monitoring",
    "check_http/v2.3 (monitoring-plugins 2.3)": "health check or monitoring",
    "Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)": "crawler",
    "Mozilla/5.0 (compatible; AhrefsBot/7.0)": "crawler",
    "GPTBot/1.0": "crawler",
    "Mozilla/5.0 (Linux; Android 9; CUBOT_X18) AppleWebKit/537.36": "",
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/120.0 Safari/537.36": "",
    "curl/8.5.0": "",
}
PATHS = {
    "/healthz": True,
    "/health": True,
    "/livez?verbose": True,
    "/nginx_status": True,
    "/actuator/health/readiness": True,
    "/health/insurance": False,
    "/status": False,
    "/": False,
}


@pytest.mark.parametrize("agent", AGENTS)
def test_a_user_agent_names_its_kind(agent: str) -> None:
    assert find_automation(agent.encode()) == AGENTS[agent]


@pytest.mark.parametrize("path", PATHS)
def test_paths_for_checks(path: str) -> None:
    assert is_check_path(path.encode()) is PATHS[path]


def intervals(every: float, count: int = 40, start: float = 0.0) -> list[float]:
    return [float(int(start + every * n)) for n in range(count)]


@pytest.mark.parametrize(
    ("times", "regular"),
    [
        (intervals(10), True),
        (intervals(2.003), True),
        (intervals(1.001), True),
        (intervals(10) + intervals(10, start=3.5), True),  # two processes of one balancer
        (intervals(5, 20) + intervals(5, 20, start=4000), True),  # an outage between
        (intervals(10, 5), False),  # too few
        (intervals(0.1), False),  # a burst
        ([0.0] * 30, False),
        ([], False),
    ],
)
def test_regular_intervals(times: list[float], regular: bool) -> None:
    assert is_regular(times) is regular


@pytest.mark.parametrize("mean", [0.5, 1, 2, 5, 30, 600])
def test_requests_at_random_moments_are_not_regular(mean: float) -> None:
    for seed in range(20):
        chance, now, times = random.Random(seed), 0.0, []
        for _ in range(64):
            now += chance.expovariate(1 / mean)
            times.append(float(int(now)))
        assert not is_regular(times)


@pytest.mark.parametrize(
    ("earlier", "later", "seconds"),
    [
        (b"22/Nov/2026:08:00:01 +0000", b"22/Nov/2026:08:01:02 +0000", 61.0),
        (b"22/Nov/2026:08:00:01.250", b"22/Nov/2026:08:00:02.500", 1.25),
        (b"2026-11-22T08:00:01+00:00", b"2026-11-22T08:00:03Z", 2.0),
        (b"1764000000.5", b"1764000001", 0.5),
    ],
)
def test_times_of_each_format(earlier: bytes, later: bytes, seconds: float) -> None:
    first, second = parse_time(earlier), parse_time(later)
    assert first is not None
    assert second is not None
    assert second - first == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", [b"", b"soon", b"22/Foo/2026:08:00:01", b"99/Nov/0000:99:99:99", b"-"]
)
def test_other_times_are_unknown(text: bytes) -> None:
    assert parse_time(text) is None


def test_only_so_many_clients_are_followed() -> None:
    def request(client: int) -> LoggedRequest:
        return LoggedRequest(b"GET", b"/", b"1.0", b"200", b"", b"host%d - - " % client, b"1")

    regular = RegularRequests()
    kept = [regular.keep(request(client), b"GET /") for client in range(6000)]
    assert sum(kept) == len(regular.series) == 5000
    assert regular.keep(request(0), b"GET /")
