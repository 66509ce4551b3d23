"""The resource that limits a stack, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from autotune.services.diagnosis import Resource


class RelatedShortage(NamedTuple):
    """Another shortage that shows in the same readings; the changes against it are recommended last."""

    tier: str
    service: str
    resource: Resource


@dataclass(frozen=True)
class Bottleneck:
    """The resource that limits a configuration. The limiting resource of a stack. ``evidence`` is one
    verifiable line, and ``confidence`` is from 0 to 1.

    The confidence of the rule depends on how directly it observes the bottleneck. It is multiplied
    by the fraction of the readings just above the peak that agree. ``gain`` is the factor in
    requests/s that its removal would give, 0 if unknown. ``related`` are other shortages, such as
    the workers that wait because of this one.
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
