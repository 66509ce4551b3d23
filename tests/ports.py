"""Ports for servers of tests."""

from __future__ import annotations

import os

from autotune.deploy.private_servers import is_free

FIRST, EACH, PLACES = (
    10_000,
    100,
    100,
)  # below those that the kernel gives clients, and autotune servers
_ports = iter(range(FIRST + os.getpid() % PLACES * EACH, FIRST + PLACES * EACH))


def free_port() -> int:
    """Where nobody listens; this process hands it out once, and few others hand it out at all."""
    return next(port for port in _ports if is_free("127.0.0.1", port))
