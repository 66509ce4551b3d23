"""Ports for servers of tests."""

from __future__ import annotations

import os
from itertools import count

from autotune.deploy.private_servers import is_port_free

#: Below those that the kernel gives clients, and autotune servers; each process begins elsewhere.
FIRST, EACH, PLACES = 10_000, 100, 100
_START = os.getpid() % PLACES * EACH
_ports = (FIRST + (_START + number) % (EACH * PLACES) for number in count())


def free_port() -> int:
    """Where nobody listens; this process hands it out once, and few others hand it out at all."""
    return next(port for port in _ports if is_port_free("127.0.0.1", port))
