"""A server that stands still: a generator that waits with it hides what its users would have met.

Coordinated omission (Tene, How NOT to Measure Latency, 2013). Open loops count everybody who came
meanwhile, so the long answers are a good part of all; a closed loop counts each client once.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from autotune.loads.base import LoadResult, LoadSpec
from autotune.loads.closed_load import CLOSED_LOOP_LABEL, ClosedLoopCeiling, ClosedLoopClients
from autotune.loads.reading_run import take_reading
from autotune.loads.registry import CLOSED_LOOP_GENERATORS, LOAD_GENERATORS
from autotune.transports.local import LocalTransport
from tests.loads.tls import Site, each, serving
from tests.undisturbed import undisturbed

pytestmark = pytest.mark.stack
RATE, SECONDS, FROZEN, LONG = 300, 4.0, 1.5, 0.5
MET = (FROZEN - LONG) / SECONDS  # part of the users, coming evenly, who wait longer than LONG
LEAST = 0.8 * MET  # of Poisson arrivals 1,200 give 300 ± 15 late: 60 fewer is four deviations


FURTHER = 20  # requests: clients who send them have read the answers that were late


@dataclass
class Frozen:
    """When the server stopped, and had ``FURTHER`` requests after: s from the first, at most."""

    stopped: float = math.inf
    asked_again: float = math.inf

    def all_came(self) -> bool:
        """Whether an open loop sent all, as planned, who wait longer than LONG."""
        return self.stopped + FROZEN - LONG <= SECONDS

    def all_answered(self) -> bool:
        """Whether a closed loop's clients were still there when their late answers came."""
        return self.asked_again <= SECONDS


@contextmanager
def freezing(site: Site, after: float) -> Iterator[Frozen]:
    """The server stands still for FROZEN seconds, ``after`` some from the first request."""
    pid = int((site.directory / "pid").read_text())
    requests = len(site.asked())
    frozen = Frozen()

    def freeze() -> None:
        idle = time.monotonic()
        deadline = idle + 60
        while len(site.asked()) == requests and time.monotonic() < deadline:
            idle = time.monotonic()
            time.sleep(0.02)
        time.sleep(after)
        site.signal(pid, signal.SIGSTOP)
        frozen.stopped = time.monotonic() - idle
        time.sleep(FROZEN)
        answered = len(site.asked())
        site.signal(pid, signal.SIGCONT)
        while time.monotonic() - idle <= SECONDS:
            if len(site.asked()) >= answered + FURTHER:
                frozen.asked_again = time.monotonic() - idle
                break
            time.sleep(0.02)

    thread = threading.Thread(target=freeze)
    thread.start()
    try:
        yield frozen
    finally:
        thread.join()


@pytest.mark.parametrize("name", each(LOAD_GENERATORS))
def test_an_open_loop_counts_all_who_came_meanwhile(tmp_path: Path, name: str) -> None:
    """Where the machine stops for less than a generator says, those who came then are sent after it."""
    spec = LoadSpec(RATE, SECONDS, timeout=10.0, latency_limit=LONG, ramp_seconds=0.0)

    def offer() -> tuple[Frozen, LoadResult]:
        with freezing(site, 1.0) as frozen:
            result = take_reading(
                LOAD_GENERATORS[name], site.request(), spec, LocalTransport(), max_rate=20_000.0
            )
        return frozen, result

    def late(result: LoadResult) -> float:
        return (result.count_later_than(LONG) + result.error_count) / result.intended

    def whole(taken: tuple[Frozen, LoadResult]) -> bool:
        frozen, result = taken
        return frozen.all_came() and result.limited is None and late(result) >= LEAST

    with serving(tmp_path) as site:
        frozen, result = undisturbed(offer, whole)
    assert result.limited is None
    assert frozen.all_came(), frozen
    assert late(result) >= LEAST, result


@pytest.mark.parametrize("name", sorted(CLOSED_LOOP_GENERATORS))
def test_a_closed_loop_counts_each_client_once_and_is_labelled(tmp_path: Path, name: str) -> None:
    """So it is only ever a ceiling, and never what finds a capacity.

    wrk sends as little meanwhile, and adds to its percentiles whom it would have sent.
    """
    assert name not in LOAD_GENERATORS
    assert "closed loop" in CLOSED_LOOP_LABEL
    clients = ClosedLoopClients(2, SECONDS, timeout=10.0)

    def run_clients() -> tuple[Frozen, ClosedLoopCeiling]:
        argv = CLOSED_LOOP_GENERATORS[name].build_command(site.request(), clients)
        with freezing(site, 1.0) as frozen:
            printed = LocalTransport().run(argv, timeout=60)
        return frozen, CLOSED_LOOP_GENERATORS[name].parse_checked(printed.stdout, clients)

    def as_expected(ceiling: ClosedLoopCeiling) -> bool:
        return ceiling.failure is None and (ceiling.percentiles[90] > LONG) == (name == "wrk")

    def whole(taken: tuple[Frozen, ClosedLoopCeiling]) -> bool:
        """Where the machine keeps wrk from sending as well, it adds too few late clients."""
        frozen, ceiling = taken
        return frozen.all_answered() and as_expected(ceiling)

    with serving(tmp_path) as site:
        frozen, ceiling = undisturbed(run_clients, whole)
    assert frozen.all_answered(), frozen
    assert as_expected(ceiling), ceiling
