"""The peak of the caches alone, with mutilate's words as it prints them (`tests/loads/fixtures`)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from autotune.environments.cache_peak import (
    CachePeak,
    _build_cache_peak,
    derive_cache_slo,
    measure_cache_peak,
)
from autotune.loads.base import LoadError
from autotune.loads.mutilate import CACHE_SHAPES
from autotune.measure import Capacity, Noise, Slo
from autotune.measure.capacity import CapacityVerdict
from autotune.services.base import Argv, Endpoint
from autotune.transports.base import CommandResult

SERVERS = (Endpoint("198.18.0.5", 11211),)
STACK = Slo(limit=0.050)
OBJECTIVE = derive_cache_slo(STACK)
GETS = 0.9
MAX_RATE = 1e7  # operations/s
BYTES = 150  # of an operation, both ways


@dataclass
class Host:
    """A load host whose mutilate finds a cache that answers in 1 ms up to ``capacity``/s, and in
    20 ms beyond it; from ``tired`` on, mutilate itself makes no more."""

    capacity: float
    tired: float = 1e9
    fills: bool = True
    asked: list[Argv] = field(default_factory=list)
    name: str = "load1"

    def run(self, argv: Argv, *, timeout: float = 30.0, **_: object) -> CommandResult:
        assert timeout > 0
        self.asked.append(argv)
        if "--loadonly" in argv:
            code, said = (0, "") if self.fills else (255, "refused")
            return CommandResult(argv, code, "", said)
        if "-q" in argv:
            return CommandResult(argv, 0, self._measured(argv), "")
        return CommandResult(argv, 0, "4711\n", "")  # an agent's number, or its end

    def _measured(self, argv: Argv) -> str:
        rate, seconds = (float(argv[argv.index(option) + 1]) for option in ("-q", "-t"))
        made = int(min(rate, self.tired) * seconds)
        gets = int(GETS * made)
        late = max(0.0, min(1.0, (rate - self.capacity) / self.capacity * 5 + 0.002))
        chance = random.Random(int(rate))
        latencies = (20_000.0 if chance.random() < late else 1000.0 for _ in range(gets))
        row = "  1000.0  10.0" + "  1000.0" * 5 + ("  20000.0" if late > 0.01 else "  1000.0")
        lines = (f"{i * seconds / gets:.6f} {took:.6f}" for i, took in enumerate(latencies))
        return "\n".join(
            [
                f"read{row}", f"update{row}", "",
                f"Total QPS = {made / seconds:.1f} ({made} / {seconds:.1f}s)", "",
                f"Misses = {gets // 100} (1.0%)", "Skipped TXs = 0 (0.0%)", "",
                f"RX {made * (BYTES - 50)} bytes :    1.0 MB/s",
                f"TX {made * 50} bytes :    1.0 MB/s",
                "<autotune code 0>", "<autotune samples>", *lines,
            ]
        )  # fmt: skip

    def put(self, content: bytes, path: str, *, mode: int = 0o644, sudo: bool = False) -> None:
        raise AssertionError("nothing is put there")

    def get(self, path: str, *, sudo: bool = False) -> bytes | None:
        raise AssertionError("nothing is fetched")

    def close(self) -> None:
        """Nothing is held."""


def found(host: Host, *helpers: Host) -> CachePeak:
    hosts = {f"198.18.0.{10 + i}": one for i, one in enumerate((host, *helpers))}
    return measure_cache_peak(SERVERS, CACHE_SHAPES[0], hosts, OBJECTIVE, MAX_RATE)


def rates(host: Host) -> Iterator[float]:
    return (float(argv[argv.index("-q") + 1]) for argv in host.asked if "-q" in argv)


def test_the_objective_is_a_tenth_of_the_stacks() -> None:
    assert pytest.approx(0.005) == OBJECTIVE.limit
    assert OBJECTIVE.quantile == STACK.quantile


def test_it_finds_what_the_cache_can_do() -> None:
    host = Host(capacity=4000)
    one = found(host)
    assert one.failure is None
    # Latency that rises at once is no shape the search expects: its interval has to hold all the same.
    assert one.rate == pytest.approx(4000, rel=0.08)
    assert one.low <= 4000 <= one.high
    assert one.low <= one.rate <= one.high < 1.6 * one.low
    assert one.hit_share == pytest.approx(0.99, abs=0.001)
    assert one.gigabits == pytest.approx(8e-9 * BYTES * one.rate, rel=0.01)
    assert "mutilate, 99 % within 5 ms" in one.generator
    assert "--loadonly" in host.asked[0]


def test_a_mutilate_that_makes_no_more_is_no_limit_of_the_cache() -> None:
    one = found(Host(capacity=1e9, tired=3000))
    assert "limited by the load generator fell behind" in (one.failure or one.generator)
    assert one.rate <= 3000


def test_helpers_are_agents_for_as_long_as_it_takes() -> None:
    host, helper = Host(capacity=3000), Host(capacity=3000, name="load2")
    found(host, helper)
    assert helper.asked[0][-1] == "-A"
    assert helper.asked[-1] == ("kill", "4711")
    assert not any(rates(helper))
    assert all("198.18.0.11" in argv for argv in host.asked if "-q" in argv)


def test_caches_that_cannot_be_filled_are_said_to_be() -> None:
    with pytest.raises(LoadError, match="refused"):
        found(Host(capacity=3000, fills=False))


@pytest.mark.parametrize(
    ("verdict", "is_failure"),
    [("measured", False), ("unsettled", False), ("unmet", True)],
)
def test_a_guess_is_no_peak(verdict: CapacityVerdict, is_failure: bool) -> None:
    """If the search ends before any rate met the objective, its peak is only an estimate."""
    capacity = Capacity(900.0, 800.0, 1000.0, 0.1, verdict, (), 60.0, Noise())
    peak = _build_cache_peak(CACHE_SHAPES[0], "mutilate", capacity, [])
    assert (peak.failure is not None) is is_failure
    assert peak.rate == (0.0 if is_failure else 900.0)


@pytest.mark.parametrize(("verdict", "limit"), [("measured", None), ("limited", "load.max_rate")])
def test_a_peak_of_a_limited_load_is_a_lower_bound(
    verdict: CapacityVerdict, limit: str | None
) -> None:
    capacity = Capacity(900.0, 900.0, 1000.0, 0.1, verdict, (), 60.0, Noise(), limit)
    peak = _build_cache_peak(CACHE_SHAPES[0], "mutilate", capacity, [])
    assert (peak.rate, peak.failure) == (900.0, None)
    assert peak.is_load_limited is (limit is not None)
