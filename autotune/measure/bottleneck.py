"""The bottleneck: a resource of a service of a tier, and why one may think so."""

from __future__ import annotations

import enum
from dataclasses import dataclass

# How directly a rule sees its cause.
TOLD, MEASURED, INFERRED = 0.95, 0.85, 0.7
FULL = 0.90  # of a CPU, a link, a pool: what is left over is lost to bursts


class Resource(enum.StrEnum):
    """What can run out."""

    CPU = "cpu"
    WORKERS = "workers"
    CONNECTIONS = "connections"
    DESCRIPTORS = "descriptors"
    MEMORY = "memory"
    NETWORK = "network"
    STORE = "store"
    CACHE = "cache"
    GENERATOR = "generator"
    ANSWERS = "answers"  # nothing is short: a host answers wrong


@dataclass(frozen=True)
class Bottleneck:
    """``evidence`` is one line that can be checked; ``confidence`` is 0 … 1: how directly the rule
    saw it, times the part of the readings just above the peak that agree."""

    tier: str
    service: str
    host: str
    resource: Resource
    evidence: str
    confidence: float

    def __str__(self) -> str:
        return f"{self.tier}.{self.service} on {self.host}: {self.resource}: {self.evidence}"
