"""What an earlier study of another target, on other hosts, has to say to this one.

Its leaders are tried first, as far as their parameters exist here: an order of configurations carries
over where requests/s do not. That costs a few trials at most and cannot mislead a model, since each
is measured here before anything is concluded from it.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.services.base import Settings, Value
from autotune.space.space import Space

MOST = 3
# A configuration of which less than this part of its changes exists here is another configuration.
LEAST_SHARE = 0.5


def transferred(
    ranked: Sequence[Settings], baseline: Settings, space: Space, most: int = MOST
) -> tuple[dict[str, Value], ...]:
    """Values for this space from the configurations of another study, best first.

    ``baseline`` is that study's own. Only what was changed there is changed here, within the bounds
    of this space; configurations that come to the same are tried once.
    """
    found: list[dict[str, Value]] = []
    known = {d.name: d for d in space.tunable}
    for settings in ranked:
        changed = {n: v for n, v in settings.items() if v != baseline.get(n)}
        applies = {n: known[n].clip(v) for n, v in changed.items() if n in known}
        new = {n: v for n, v in applies.items() if v != known[n].baseline}
        if len(applies) >= LEAST_SHARE * len(changed) and new and new not in found:
            found.append(new)
    return tuple(found[:most])
