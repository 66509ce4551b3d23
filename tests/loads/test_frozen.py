"""A server that stands still: a generator that waits with it hides what its users would have met.

Coordinated omission (Tene, How NOT to Measure Latency, 2013). Open loops count everybody who came
meanwhile, so the long answers are a good part of all; a closed loop counts each client once.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autotune.loads.base import LoadSpec
from autotune.loads.closed import LABEL, Clients
from autotune.loads.registry import CLOSED, LOADS
from autotune.loads.take import take
from autotune.transports.local import LocalTransport
from tests.loads.tls import Site, each, serving

pytestmark = pytest.mark.stack
SECONDS, FROZEN, LONG = 4.0, 1.5, 0.5
MET = (FROZEN - LONG) / SECONDS  # part of the users, coming evenly, who wait longer than LONG


@contextmanager
def freezing(site: Site, after: float) -> Iterator[None]:
    """The server stands still for FROZEN seconds, ``after`` some from the first request."""
    pid = int((site.directory / "pid").read_text())

    def freeze() -> None:
        deadline = time.monotonic() + 60
        while not site.asked() and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(after)
        site.signal(pid, signal.SIGSTOP)
        time.sleep(FROZEN)
        site.signal(pid, signal.SIGCONT)

    thread = threading.Thread(target=freeze)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@pytest.mark.parametrize("name", each(LOADS))
def test_an_open_loop_counts_all_who_came_meanwhile(tmp_path: Path, name: str) -> None:
    spec = LoadSpec(50, SECONDS, timeout=10.0, limit=LONG, ramp=0.0)
    with serving(tmp_path) as site, freezing(site, 1.0):
        result = take(LOADS[name], site.request(), spec, LocalTransport())
    assert result.limited is None
    late = result.later_than(LONG) + result.failed
    assert late >= 0.8 * MET * result.intended, result


@pytest.mark.parametrize("name", sorted(CLOSED))
def test_a_closed_loop_counts_each_client_once_and_is_labelled(tmp_path: Path, name: str) -> None:
    """So it is only ever a ceiling, and never what finds a capacity.

    wrk sends as little meanwhile, and adds to its percentiles whom it would have sent.
    """
    assert name not in LOADS
    assert "closed loop" in LABEL
    clients = Clients(2, SECONDS, timeout=10.0)
    with serving(tmp_path) as site, freezing(site, 1.0):
        printed = LocalTransport().run(CLOSED[name].argv(site.request(), clients), timeout=60)
    ceiling = CLOSED[name].parse(printed.stdout, clients)
    assert ceiling.failed is None
    assert (ceiling.percentiles[90] > LONG) == (name == "wrk")
