"""Presets from an earlier study of another target, on other hosts.

Its leaders are tried first, as far as their parameters exist here: a ranking of configurations carries
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
    presets: list[dict[str, Value]] = []
    dimensions = {d.name: d for d in space.tunable}
    for settings in ranked:
        changed = {n: v for n, v in settings.items() if v != baseline.get(n)}
        applies = {n: dimensions[n].clip(v) for n, v in changed.items() if n in dimensions}
        new = {n: v for n, v in applies.items() if v != dimensions[n].baseline}
        if len(applies) >= LEAST_SHARE * len(changed) and new and new not in presets:
            presets.append(new)
    return tuple(presets[:most])
