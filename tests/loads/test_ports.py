from __future__ import annotations

import pytest

from autotune.loads.ports import Ports

STOCK = "32768\t60999\n2\nsockets: used 14\nTCP: inuse 31 orphan 0 tw 25000 alloc 40 mem 29\nUDP: inuse 0"


def test_as_linux_writes_it() -> None:
    assert Ports.read(STOCK) == Ports(size=28_232, waiting=25_000, used=31, reuse=2)


@pytest.mark.parametrize("text", ["", "32768 60999\n", "2\nTCP: inuse 1 orphan 0 tw 2 alloc 1"])
def test_a_host_that_does_not_say(text: str) -> None:
    assert Ports.read(text) is None


# waiting, reuse, loopback, requests/s, seconds → enough
CASES = [
    (0, 0, True, 2000, 3, True),
    (25_000, 0, True, 2000, 3, False),
    (25_000, 1, False, 2000, 3, True),
    (25_000, 2, True, 2000, 3, True),
    (25_000, 2, False, 2000, 3, False),
    (0, 1, False, 14_000, 1, False),  # a port a second is all that even reuse gives
    (0, 0, False, 500, 60, False),
]


@pytest.mark.parametrize(("waiting", "reuse", "loopback", "rate", "seconds", "enough"), CASES)
def test_ports_are_counted_before_they_run_out(
    waiting: int, reuse: int, loopback: bool, rate: float, seconds: float, enough: bool
) -> None:
    ports = Ports(28_232, waiting, 30, reuse)
    short = ports.shortage(rate, seconds, loopback=loopback)
    assert (short is None) == enough
    assert short is None or "tcp_tw_reuse" in short
