"""Many kills at random moments, which can be had again: the same seed gives the same moments.

What each step of a protocol leaves behind when it is killed is proven by tests that choose the step
(``make test``). These look for moments that nobody thought of.
"""

from __future__ import annotations

import os
import random

SEED = int(os.environ.get("AUTOTUNE_SEED", "1"))


def moments() -> random.Random:
    """What chooses the moments of one test; ``AUTOTUNE_SEED`` chooses others."""
    return random.Random(SEED)


def kills(usual: int) -> int:
    """How often to kill; ``AUTOTUNE_KILLS`` asks for more or fewer."""
    return int(os.environ.get("AUTOTUNE_KILLS", usual))
