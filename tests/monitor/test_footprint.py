"""What is kept of the hosts with each reading."""

from __future__ import annotations

from autotune.monitor.footprint import footprints
from autotune.monitor.watch import Seen, WatchedHost

from .test_activity import FIRST, FPM, HOST, LAST


def test_a_host_in_a_few_numbers() -> None:
    found = footprints((HOST,), Seen(samples={"web1": (FIRST, LAST)}), seconds=2.0)["web1"]
    assert (found.cpu, found.steal, found.load, found.running) == (0.75, 0.0, 1.5, 3.0)
    assert (found.memory, found.sockets, found.time_wait) == (0.7, 9, 100)
    assert found.network == 1000
    assert found.rss == {FPM.name: 40}
    assert found.workers == {FPM.name: 5}


def test_a_host_that_was_not_seen_is_left_out() -> None:
    hidden = WatchedHost("web2", 2.0, ())
    assert footprints((hidden,), Seen(samples={"web2": (FIRST,)}), seconds=2.0) == {}
