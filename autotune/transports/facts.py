"""What a host is made of, asked of the host itself."""

from __future__ import annotations

import re

from autotune.errors import AutotuneError
from autotune.space.facts import HostFacts
from autotune.transports.base import Transport


def host_facts(transport: Transport) -> HostFacts:
    """CPUs this account may use, and memory in bytes. Raises AutotuneError if it does not say."""
    cpus = transport.run(["nproc"])
    memory = transport.get("/proc/meminfo")
    total = re.search(rb"MemTotal:\s+(\d+) kB", memory or b"")
    if not cpus.ok or total is None:
        raise AutotuneError(f"{transport.name} does not say what CPUs and memory it has")
    return HostFacts(cpus=float(cpus.stdout), memory=int(total[1]) * 1024)
