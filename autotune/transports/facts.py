"""What a host is made of, asked of the host itself."""

from __future__ import annotations

import re

from autotune.errors import AutotuneError
from autotune.space.facts import HostFacts
from autotune.transports.base import Transport

UNLIMITED = 1_048_576  # what Linux allows where nobody has said otherwise (fs.nr_open)


def host_facts(transport: Transport) -> HostFacts:
    """CPUs and descriptors this account may use, and memory in bytes.

    Raises AutotuneError if the host does not say.
    """
    cpus = transport.run(["nproc"])
    files = transport.run(["sh", "-c", "ulimit -Hn"])
    memory = transport.get("/proc/meminfo")
    total = re.search(rb"MemTotal:\s+(\d+) kB", memory or b"")
    if not cpus.ok or total is None:
        raise AutotuneError(f"{transport.name} does not say what CPUs and memory it has")
    limit = files.stdout.strip()
    return HostFacts(
        cpus=float(cpus.stdout),
        memory=int(total[1]) * 1024,
        nofile=int(limit) if limit.isdigit() else UNLIMITED,
    )
