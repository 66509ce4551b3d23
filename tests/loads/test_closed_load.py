"""Real output of ab 2.3, wrk 4.1 and memcaslap 1.0 (Debian 12), healthy, overloaded and broken."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.loads.base import Request
from autotune.loads.closed_load import (
    AbGenerator,
    ClosedLoopCeiling,
    ClosedLoopClients,
    ClosedLoopGenerator,
    WrkGenerator,
)
from autotune.loads.memcaslap import CACHE_SHAPES, CacheCeiling, build_command, parse_output
from autotune.services.base import Endpoint

FIXTURES = Path(__file__).parent / "fixtures" / "closed"
REQUEST = Request(Endpoint("127.0.0.1", 8080), "/kv.php?a=1&b=$(reboot)")


def read(load: ClosedLoopGenerator, name: str, clients: int = 5) -> ClosedLoopCeiling:
    printed = (FIXTURES / f"{load.name}-{name}.txt").read_text()
    return load.parse_checked(printed, ClosedLoopClients(clients, 2.0))


def test_ab_healthy() -> None:
    found = read(AbGenerator(), "healthy")
    assert (found.requests, found.seconds, found.errors) == (20_839, 2.001, {})
    assert found.rate == pytest.approx(10_414, abs=1)
    assert found.percentiles[95.0] == pytest.approx(0.002623)
    assert found.percentiles[100.0] == pytest.approx(0.044345)
    assert list(found.percentiles) == sorted(found.percentiles)


def test_ab_overloaded() -> None:
    found = read(AbGenerator(), "overloaded", 20)
    assert found.rate == pytest.approx(45, abs=1)
    assert found.percentiles[99.0] == pytest.approx(1.978, abs=0.001)


def test_ab_errors_are_no_throughput() -> None:
    wrong = read(AbGenerator(), "502", 20)
    assert wrong.errors == {"status": wrong.requests}
    assert wrong.rate == 0
    refused = read(AbGenerator(), "refused", 20)
    assert refused.errors == {"broken off": 17_988}
    assert refused.rate == 0


def test_wrk() -> None:
    found = read(WrkGenerator(), "healthy")
    assert (found.requests, found.seconds, found.errors) == (123_015, 2.09, {})
    expected = {50.0: 34e-6, 75.0: 1.9e-3, 90.0: 12.15e-3, 99.0: 48.05e-3}
    assert found.percentiles == pytest.approx(expected)
    assert read(WrkGenerator(), "overloaded", 30).rate == pytest.approx(15.3, abs=0.1)
    wrong = read(WrkGenerator(), "502")
    assert wrong.errors == {"status": 200_591}
    assert wrong.rate == 0
    assert "Connection refused" in (read(WrkGenerator(), "refused").failure or "")


def test_wrk_counts_broken_connections() -> None:
    printed = (FIXTURES / "wrk-healthy.txt").read_text()
    errors = "  Socket errors: connect 100, read 20, write 3, timeout 4\n"
    found = WrkGenerator().parse_checked(
        printed.replace("Requests/sec", errors + "Requests/sec"), ClosedLoopClients(5, 2.0)
    )
    assert found.errors == {"refused": 100, "reset": 20, "reset while sending": 3, "timeout": 4}
    # wrk counts only responses, and a timeout is a late response.
    assert found.requests == 123_015 + 123
    assert found.rate == pytest.approx((123_015 - 4) / 2.09)
    assert found.sent_rate == pytest.approx((123_015 + 23) / 2.09)


@pytest.mark.parametrize("load", [AbGenerator(), WrkGenerator()], ids=lambda load: load.name)
def test_nothing_printed_is_no_ceiling(load: ClosedLoopGenerator) -> None:
    assert "printed no result: nothing" in (
        load.parse_checked("", ClosedLoopClients(1, 2.0)).failure or ""
    )
    assert "command not found" in (
        load.parse_checked("x: command not found", ClosedLoopClients(1, 2)).failure or ""
    )


@pytest.mark.parametrize("load", [AbGenerator(), WrkGenerator()], ids=lambda load: load.name)
def test_its_command_is_bounded_and_addresses_the_entry_alone(load: ClosedLoopGenerator) -> None:
    words = load.build_command(REQUEST, ClosedLoopClients(7, 4.5))
    assert "timeout" in words
    assert words[-1] == "http://127.0.0.1:8080/kv.php?a=1&b=$(reboot)"
    assert "7" in words
    assert sum("http" in word for word in words) == 1


def cache(name: str, shape: int = 0) -> CacheCeiling:
    return parse_output((FIXTURES / f"memcaslap-{name}.txt").read_text(), CACHE_SHAPES[shape])


def test_memcaslap() -> None:
    small, mixed = cache("healthy"), cache("2k", 1)
    assert small.rate == pytest.approx(60_688, abs=1)
    assert small.hit_share == 1.0
    assert small.gigabits == pytest.approx(8e-9 * (15_170_592 + 4_126_997) / 2)
    assert mixed.gigabits == pytest.approx(1.848, abs=0.001)
    assert cache("udp").rate == pytest.approx(65_803, abs=1)
    assert "printed no result" in (cache("refused").failure or "")
    assert cache("refused").rate == 0


def test_memcaslap_is_told_the_shape() -> None:
    assert CACHE_SHAPES[1].build_config() == (
        b"key\n17 17 1\nvalue\n4 100 0.76\n1024 2048 0.095\n5120 20480 0.145\ncmd\n0 0.1\n1 0.9\n"
    )
    mean = sum(share * (low + high) / 2 for low, high, share in CACHE_SHAPES[1].sizes)
    assert 1900 < mean < 2200
    two = (Endpoint("a", 1), Endpoint("b", 2))
    assert "--division" not in build_command(two, CACHE_SHAPES[0], 8, 5.0)
    keys_per_get = replace(CACHE_SHAPES[0], keys_per_get=100)
    words = build_command(two, keys_per_get, 8, 5.0, udp=True)
    assert words[words.index("--division") + 1] == "100"
    assert "a:1,b:2" in words
    assert words[words.index("--concurrency") + 1] == "16"
    assert words[-2:] == ("--udp", "--cfg_cmd")  # what standard input holds comes behind it


def test_a_ceiling_without_a_result_says_of_which_load() -> None:
    at_once = parse_output("", replace(CACHE_SHAPES[0], keys_per_get=100))
    assert at_once.failure
    assert (at_once.shape, at_once.keys_per_get) == (CACHE_SHAPES[0].name, 100)
