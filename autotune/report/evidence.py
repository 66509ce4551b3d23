"""What caveats are worked out from, and what one of them says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.report.claim import Claim, Side
from autotune.report.tally import Tally
from autotune.study.records import State, Trial
from autotune.target.model import Target

Tallies = Mapping[int, Tally]


@dataclass(frozen=True)
class Caveat:
    """``value`` is beyond ``threshold``; ``text`` says what that means, ``remedy`` what to do."""

    code: str
    value: float
    threshold: float
    text: str
    remedy: str


@dataclass(frozen=True)
class Evidence:
    """All that caveats are worked out from."""

    name: str
    target: Target
    state: State
    tallies: Tallies
    claim: Claim

    @property
    def sides(self) -> tuple[Side, ...]:
        return tuple(side for side in (self.claim.baseline, self.claim.best) if side)

    @property
    def behind_the_claim(self) -> tuple[Trial, ...]:
        return tuple(t for side in self.sides for t in (side.repeats or (side.trial,)))


def listed(numbers: Sequence[int]) -> str:
    """The first few of them, as text."""
    shown = ", ".join(map(str, numbers[:8]))
    return f"{shown}, …" if len(numbers) > 8 else shown
