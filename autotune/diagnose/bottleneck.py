"""The bottleneck of a stack, and other shortages in the same readings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from autotune.services.diagnosis import Resource


class RelatedShortage(NamedTuple):
    """Another shortage in the same readings. Changes that reduce this shortage are recommended last."""

    tier: str
    service: str
    resource: Resource


@dataclass(frozen=True)
class Bottleneck:
    """The resource that limits a configuration. ``evidence`` is one verifiable line, and ``confidence``
    is from 0 to 1.

    The confidence depends on how directly the rule observes the bottleneck. The confidence is then
    multiplied by the fraction of the readings just above the peak that agree. ``gain`` is the estimated
    factor by which requests/s rise if the bottleneck is removed, or 0 if unknown. ``related`` are other
    shortages, such as workers that wait because of this bottleneck.
    """

    tier: str
    service: str
    host: str
    resource: Resource
    evidence: str
    confidence: float
    gain: float = 0.0
    related: tuple[RelatedShortage, ...] = ()

    def __str__(self) -> str:
        return f"{self.tier}.{self.service} on {self.host}: {self.resource}: {self.evidence}"
