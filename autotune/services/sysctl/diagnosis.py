"""What settings of the kernel are the remedy of."""

from __future__ import annotations

from autotune.services.diagnosis import Diagnosis, Resource

DIAGNOSIS = Diagnosis(
    counters=None,
    log=None,
    moves={Resource.CONNECTIONS: ("net.core.somaxconn+", "net.ipv4.tcp_max_syn_backlog+")},
)
