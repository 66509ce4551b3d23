"""What Apache's workers do, read off its scoreboard: a letter each (mod_status)."""

from __future__ import annotations

import re
from collections.abc import Mapping

WORKING, KEPT = "working", "kept"
# A worker that has a request in hand: it reads it, works on it, asks for a name, logs it.
_LETTERS = {WORKING: "RWDL", KEPT: "K"}


def doing(text: str) -> Mapping[str, float]:
    """Workers that have a request in hand, the one that answers this not counted, and those that
    wait for the next one of a kept connection. Nothing where there is no scoreboard."""
    found = re.search(r"(?m)^Scoreboard: (\S+)", text)
    if found is None:
        return {}
    count = {name: sum(map(found[1].count, letters)) for name, letters in _LETTERS.items()}
    return {WORKING: max(0.0, count[WORKING] - 1.0), KEPT: float(count[KEPT])}
