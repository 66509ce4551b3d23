"""What a sampler is told about the study it works for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from autotune.search.lattice import Lattice
from autotune.space.space import Space


@dataclass(frozen=True)
class Task:
    """``trials``: configurations the budget allows, those known beforehand included."""

    space: Space
    trials: int = 40
    seed: int = 1

    @cached_property
    def lattice(self) -> Lattice:
        return Lattice.of(self.space.tunable, self.space.baseline)
