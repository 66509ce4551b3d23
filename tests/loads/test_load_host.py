"""What a load host's kernel is changed to, whatever it has."""

from __future__ import annotations

import pytest

from autotune.loads import load_host
from autotune.loads.base import LoadSpec, Request
from autotune.loads.load_host import (
    OPEN_FILES_KEY,
    PORT_RANGE_KEY,
    PORT_REUSE_KEY,
    ClientPorts,
    PortWait,
    fit_kernel_values,
)
from autotune.services.base import Argv, Endpoint
from autotune.transports.base import CommandResult
from autotune.transports.local import LocalTransport

STOCK = {PORT_RANGE_KEY: "32768 60999", PORT_REUSE_KEY: "2", OPEN_FILES_KEY: "9223372036854775807"}


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (STOCK, {PORT_RANGE_KEY: "1024 65535", PORT_REUSE_KEY: "1"}),
        ({**STOCK, PORT_RANGE_KEY: "1024 65535", PORT_REUSE_KEY: "1"}, {}),
        (
            {**STOCK, PORT_RANGE_KEY: "500 60999"},
            {PORT_RANGE_KEY: "500 65535", PORT_REUSE_KEY: "1"},
        ),
        (
            {**STOCK, OPEN_FILES_KEY: "8192"},
            {PORT_RANGE_KEY: "1024 65535", PORT_REUSE_KEY: "1", OPEN_FILES_KEY: "65536"},
        ),
        ({PORT_RANGE_KEY: None, PORT_REUSE_KEY: None, OPEN_FILES_KEY: None}, {}),
        ({PORT_RANGE_KEY: "nonsense", PORT_REUSE_KEY: "0"}, {PORT_REUSE_KEY: "1"}),
        ({}, {}),
    ],
)
def test_only_what_is_too_tight_is_changed(
    found: dict[str, str | None], wanted: dict[str, str]
) -> None:
    assert fit_kernel_values(found) == wanted
    assert fit_kernel_values({**found, **wanted}) == {}


FREE_PORTS = (
    "32768\t60999\n2\nsockets: used 14\n"
    "TCP: inuse 31 orphan 0 tw 25000 alloc 40 mem 29\nUDP: inuse 0"
)


def test_as_linux_writes_it() -> None:
    assert ClientPorts.parse(FREE_PORTS) == ClientPorts(
        range_size=28_232, time_wait=25_000, in_use=31, reuse_mode=2
    )


@pytest.mark.parametrize("text", ["", "32768 60999\n", "2\nTCP: inuse 1 orphan 0 tw 2 alloc 1"])
def test_a_host_that_does_not_say(text: str) -> None:
    assert ClientPorts.parse(text) is None


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
    ports = ClientPorts(28_232, waiting, 30, reuse)
    short = ports.find_shortage(rate, seconds, loopback=loopback)
    assert (short is None) == enough
    assert short is None or "tcp_tw_reuse" in short.reason


class Waiting(LocalTransport):
    """A load host with fewer ports in TIME-WAIT each time it is asked, and ``left`` for good."""

    def __init__(self, waiting: int, left: int = 0) -> None:
        super().__init__("load1")
        self.waiting, self.left = waiting, left

    def run(self, argv: Argv, **_: object) -> CommandResult:
        self.waiting = max(self.left, self.waiting - 9000)
        return CommandResult(argv, 0, FREE_PORTS.replace("25000", f"{self.waiting}"), "")


@pytest.mark.parametrize(
    ("waiting", "left", "rate", "enough", "told"),
    [
        (9000, 0, 2000, True, 0),
        (36_000, 0, 2000, True, 1),
        (36_000, 0, 14_000, False, 0),  # more than there are
        (36_000, 27_000, 2000, False, 1),  # somebody else's
    ],
)
def test_ports_are_waited_for_as_long_as_time_wait_lasts(
    monkeypatch: pytest.MonkeyPatch, waiting: int, left: int, rate: int, enough: bool, told: int
) -> None:
    monkeypatch.setattr(load_host, "WAIT_POLL_SECONDS", 0.0)
    monkeypatch.setattr(load_host, "MAX_WAIT_SECONDS", 0.01)
    notes: list[str] = []
    request, spec = Request(Endpoint("10.0.0.1", 80), "/"), LoadSpec(rate, 2.0)
    wait, host = PortWait(notes.append), Waiting(waiting, left)
    if enough:
        monkeypatch.setattr(load_host, "MAX_WAIT_SECONDS", 60.0)
    assert [wait.wait_for_ports([host], request, spec) for _ in range(2)] == [enough] * 2
    assert len(notes) == told
