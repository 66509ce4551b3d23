"""Many kills at random moments, which can be had again: the same seed gives the same moments.

What each step of a protocol leaves behind when it is killed is proven by tests that choose the step
(``make test``). These look for moments that nobody thought of.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from typing import TypeVar

SEED = int(os.environ.get("AUTOTUNE_SEED", "1"))
Step = TypeVar("Step")
Place = TypeVar("Place")


def moments() -> random.Random:
    """What chooses the moments of one test; ``AUTOTUNE_SEED`` chooses others."""
    return random.Random(SEED)


def slice_of(steps: Mapping[Step, Place], part: int) -> dict[Step, Place]:
    """The first and the last of the steps of a protocol, and each ``part``-th; the seed says which."""
    last = len(steps) - 1
    return {step: place for number, (step, place) in enumerate(steps.items())
            if number in (0, last) or (number + SEED) % part == 0}  # fmt: skip


def kills(usual: int) -> int:
    """How often to kill; ``AUTOTUNE_KILLS`` asks for more or fewer."""
    return int(os.environ.get("AUTOTUNE_KILLS", usual))


def races(usual: int) -> int:
    """How many deployments and restores race with adversaries; ``AUTOTUNE_RACES`` sets another number."""
    return int(os.environ.get("AUTOTUNE_RACES", usual))
