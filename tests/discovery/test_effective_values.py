"""Values of real servers are read before their files are believed."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

import pytest

from autotune.discovery.effective_values import read_effective_values
from autotune.transports.local import LocalTransport
from tests.discovery.places import adopted, host
from tests.ports import free_port

pytestmark = pytest.mark.stack


@pytest.fixture
def port() -> Iterator[int]:
    """The port of a memcached that has 100 MB and 500 connections."""
    port = free_port()
    words = [
        "memcached",
        "-u",
        "nobody",
        "-l",
        "127.0.0.1",
        "-p",
        str(port),
        "-m",
        "100",
        "-c",
        "500",
    ]
    process = subprocess.Popen(words)
    try:
        deadline = time.monotonic() + 30
        while subprocess.run(["bash", "-c", f": </dev/tcp/127.0.0.1/{port}"], check=False,
                             stderr=subprocess.DEVNULL).returncode:  # fmt: skip
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait(30)


def test_a_value_that_the_server_contradicts_is_left(port: int) -> None:
    text = f"-p {port}\n-l 127.0.0.1\n-m 64\n-c 500\n"
    found = host("h1", "127.0.0.1", {"/etc/memcached.conf": text}, "memcached.service")
    tier = adopted(read_effective_values(LocalTransport(), found))
    reason = "its files imply 64, but the running software reports 100"
    assert tier.skipped["memcached.memory"] == reason
    assert tier.baseline_values["memcached.connections"] == 500
