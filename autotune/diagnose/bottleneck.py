"""The bottleneck of a stack, and other shortages in the readings that show the bottleneck."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from autotune.services.diagnosis import Resource


class RelatedShortage(NamedTuple):
    """A shortage other than the bottleneck. Changes that reduce this shortage are recommended last."""

    tier: str
    service: str
    resource: Resource


@dataclass(frozen=True)
class Bottleneck:
    """The resource that limits a configuration. ``evidence`` is one line of text that can be verified.

    ``confidence`` (0 to 1) is higher if the rule observes the bottleneck directly, and if more readings
    just above the peak agree. ``gain`` is the estimated factor by which requests/s rise if the bottleneck
    is removed, or 0 if unknown. ``related`` are other shortages, such as workers that wait because of
    this bottleneck.
    """

    tier: str
    service: str
    host: str
    resource: Resource
    evidence: str
    confidence: float
    gain: float = 0.0
    related: tuple[RelatedShortage, ...] = ()

    @property
    def evidence_words(self) -> frozenset[str]:
        """Return the words of the evidence, which may name a parameter that helps."""
        return frozenset(re.findall(r"\w+", self.evidence))

    def __str__(self) -> str:
        return f"{self.tier}.{self.service} on {self.host}: {self.resource}: {self.evidence}"
