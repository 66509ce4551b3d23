"""Two load balancers in front of one tier: the load arrives at both, as their own counters have it."""

from __future__ import annotations

import pytest

from autotune.environments.load_meter import LoadMeter
from autotune.environments.load_session import LoadSession
from autotune.monitor.counters import CounterReader
from autotune.services.base import Role
from tests.deploy.conftest import Opened

pytestmark = pytest.mark.stack
HOST = "  here: {address: 127.0.0.1, transport: local}\n"
SECOND = (HOST, f"{HOST}{HOST.replace('here', 'there')}")
ENTRIES = (
    "lb:    {hosts: here, runtime: embedded, service: nginx,",
    "lb:    {hosts: [here, there], runtime: embedded, service: haproxy,",
)
# However slow the machine is, nothing is given up or late.
TIMES = ("p99: 50ms", "p50: 5s"), ("max_rate: 8000/s", "max_rate: 8000/s, timeout: 20s")


def test_the_load_arrives_at_both(opened: Opened) -> None:
    with opened(SECOND, ENTRIES, *TIMES) as context:
        session = context.session
        assert isinstance(session, LoadSession)
        meter = session.meter
        assert isinstance(meter, LoadMeter)
        entries = meter.request.each()
        assert len({entry.endpoint for entry in entries}) == 2
        session.fleet.deploy(context.space.candidate({}).settings)
        readers = [CounterReader(part, None) for part in meter.stack.of_role(Role.PROXY)]
        before = [connections(reader) for reader in readers]
        taken = meter.take(40, 2.0)
        asked = [connections(reader) - start for reader, start in zip(readers, before, strict=True)]
        for reader in readers:
            reader.close()
    assert taken.reading.violations == 0
    # Half of the reading and of its ramp each, a connection for a request; the rest are looks at
    # whole answers and at counters.
    assert len(asked) == 2
    assert all(60 <= share <= 90 for share in asked), asked


def connections(reader: CounterReader) -> float:
    counters = reader.read()
    assert counters is not None
    return counters.values["CumConns"]
