"""Two load balancers in front of one tier: the load arrives at both, as their own counters have it.

It goes to each of them, or to the one address that they share.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from autotune.deploy.deployment import Deployment
from autotune.environments.load_meter import LoadMeter
from autotune.environments.load_session import LoadSession
from autotune.monitor.counters import CounterReader
from autotune.services.base import Endpoint, Role
from tests.deploy.conftest import Opened

pytestmark = pytest.mark.stack
HOST = "  here: {address: 127.0.0.1, transport: local}\n"
SECOND = (HOST, f"{HOST}{HOST.replace('here', 'there')}")
ENTRIES = (
    "lb:    {hosts: here, runtime: embedded, service: nginx,",
    "lb:    {hosts: [here, there], runtime: embedded, service: haproxy,",
)
# However slow the machine is, nothing is given up or late.
TIMES = ("p99: 50ms", "p50: 15s"), ("max_rate: 8000/s", "max_rate: 8000/s, timeout: 40s")
VIP = "127.0.0.9"
# What routers and ARP do for an address that hosts share: each connection goes to one of them.
_SHARED = """
defaults
    mode tcp
    timeout connect 30s
    timeout client 60s
    timeout server 60s
listen shared
    bind {address}
    {servers}
"""


@contextmanager
def shared(address: Endpoint, hosts: Sequence[Endpoint], directory: Path) -> Iterator[None]:
    config = directory / "shared.cfg"
    servers = "\n    ".join(f"server {number} {host}" for number, host in enumerate(hosts))
    config.write_text(_SHARED.format(address=address, servers=servers))
    process = subprocess.Popen(("haproxy", "-db", "-q", "-f", str(config)))
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.parametrize("vip", [False, True], ids=["each", "vip"])
def test_the_load_arrives_at_both(opened: Opened, tmp_path: Path, vip: bool) -> None:
    path = "path: /kv.php,"
    one_address = (path, f"{path} vip: {VIP},") if vip else (path, path)
    with opened(SECOND, ENTRIES, one_address, *TIMES) as context:
        session = context.session
        assert isinstance(session, LoadSession)
        meter = session.meter
        assert isinstance(meter, LoadMeter)
        stack = meter.stack
        hosts = (stack.entry, *stack.other_entries)
        asked_at = {entry.endpoint for entry in meter.request.per_endpoint()}
        assert asked_at == ({Endpoint(VIP, stack.entry.port)} if vip else {*hosts})
        assert len(hosts) == 2
        assert isinstance(session.fleet, Deployment)
        assert session.fleet.readiness.probe.min_interval == (1 if vip else 2) / 8000  # `max_rate`
        with shared(Endpoint(VIP, stack.entry.port), hosts, tmp_path):
            session.fleet.deploy(context.space.build_candidate({}).settings)
            readers = [CounterReader(part, None) for part in stack.instances_with_role(Role.PROXY)]
            before = [connections(reader) for reader in readers]
            taken = meter.take_reading(40, 2.0)
            asked = [connections(reader) - start
                     for reader, start in zip(readers, before, strict=True)]  # fmt: skip
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
