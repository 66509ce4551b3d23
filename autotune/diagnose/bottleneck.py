"""The bottleneck: a resource of a service of a tier, and why one may think so."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.services.diagnosis import Resource


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
