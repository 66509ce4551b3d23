"""Many kills at random times, which a seed makes reproducible.

Other tests (``make test``) kill each known step of a protocol. These tests look for unexpected
states.
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
    """Return the random generator for the times in one test. ``AUTOTUNE_SEED`` selects another seed."""
    return random.Random(SEED)


def slice_of(steps: Mapping[Step, Place], part: int) -> dict[Step, Place]:
    """Return the first and the last step of a protocol, and every ``part``-th step between them.
    The seed selects which.
    """
    last = len(steps) - 1
    return {step: place for number, (step, place) in enumerate(steps.items())
            if number in (0, last) or (number + SEED) % part == 0}  # fmt: skip


def kills(usual: int) -> int:
    """Return the number of kills, which ``AUTOTUNE_KILLS`` overrides."""
    return int(os.environ.get("AUTOTUNE_KILLS", usual))


def races(usual: int) -> int:
    """Return the number of deployments and restores that race with adversaries, which
    ``AUTOTUNE_RACES`` overrides.
    """
    return int(os.environ.get("AUTOTUNE_RACES", usual))
