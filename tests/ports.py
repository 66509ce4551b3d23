"""Ports for the servers of tests."""

from __future__ import annotations

import os
from itertools import count

from autotune.deploy.private_servers import is_port_free

# : Ports below those that the kernel assigns to clients, and autotune to servers. Each process
# starts at another port.
FIRST, EACH, PLACES = 10_000, 100, 100
_START = os.getpid() % PLACES * EACH
_ports = (FIRST + (_START + number) % (EACH * PLACES) for number in count())


def free_port() -> int:
    """Return a port on which no process listens. This process returns it only once, and other
    processes rarely return it.
    """
    return next(port for port in _ports if is_port_free("127.0.0.1", port))
