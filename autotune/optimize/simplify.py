"""A winner without what does nothing: as few changes, and restarts, as its modelled capacity allows.

A search leaves settings where it happened to try them. Before a winner is proven, what the model holds
to be without effect goes back to what runs: whole services first, those that must be restarted before
the others, then single parameters, the least likely to matter first. Each step is kept if the model
loses no more than a small part of the gain by all of them together. What is proven is the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autotune.optimize.gp.scale import decompress
from autotune.optimize.gp.surrogate import Surrogate
from autotune.parameter_name import ParameterName
from autotune.services.base import Action, Effect, Settings
from autotune.space.space import Infeasible, Space

# Of the logarithm of the gain, what may be lost by all that is reverted, and no less than the second:
# a hundredth of the capacity, at a gain of which that is a small part.
LOSS, LEAST = 0.03, 0.003
RANK = {Effect.COSMETIC: 0, Effect.SMALL: 1, Effect.CAPACITY: 2}


@dataclass(frozen=True)
class Simplified:
    """``settings`` with the ``reverted`` parameters as they are in the baseline; ``loss`` is what the
    model believes that to cost, as a logarithm."""

    settings: Settings
    reverted: tuple[str, ...]
    loss: float


def simplified(
    surrogate: Surrogate, space: Space, winner: Settings, least: float = LEAST
) -> Simplified:
    """The simplest configuration that the model holds to be as good as ``winner``."""
    baseline, settings = space.baseline, dict(winner)
    height = _log_peak(surrogate, winner)
    limit = max(LOSS * (height - _log_peak(surrogate, baseline)), least)
    for names in _blocks(surrogate, space, winner):
        wider = {**settings, **{name: baseline[name] for name in names}}
        if _kept(space, wider) and height - _log_peak(surrogate, wider) <= limit:
            settings = wider
    reverted = tuple(name for name in winner if settings[name] != winner[name])
    return Simplified(settings, reverted, height - _log_peak(surrogate, settings))


def _blocks(surrogate: Surrogate, space: Space, winner: Settings) -> Iterator[Sequence[str]]:
    """What to revert together, in the order of trying it."""
    dimensions = {d.name: d for d in space.tunable}
    changed = [name for name in dimensions if winner[name] != space.baseline[name]]
    owners = dict.fromkeys(ParameterName.parse(name).owner for name in changed)
    restarts = [n for n in changed if dimensions[n].parameter.action is Action.RESTART]
    for group in (restarts, changed):
        for owner in owners:
            yield [name for name in group if ParameterName.parse(name).owner == owner]
    for effect in RANK:
        yield [name for name in changed if dimensions[name].parameter.effect is effect]
    full = _log_peak(surrogate, winner)
    losses = {
        name: full - _log_peak(surrogate, {**winner, name: space.baseline[name]})
        for name in changed
    }
    yield from ([name] for name in sorted(changed, key=lambda n: (
        dimensions[n].parameter.action is not Action.RESTART,
        RANK[dimensions[n].parameter.effect],
        losses[n],
    )))  # fmt: skip


def _log_peak(surrogate: Surrogate, settings: Settings) -> float:
    points = surrogate.grid.canonical(surrogate.grid.encode_all([settings]))
    mean, _ = surrogate.predict(points)
    # Above the best that was measured, the scale is the logarithm itself.
    return float(mean[0]) if mean[0] > 0 else float(decompress(mean)[0])


def _kept(space: Space, settings: Settings) -> bool:
    """Whether these settings keep every rule as they are."""
    try:
        return not space.candidate(settings).bindings
    except Infeasible:
        return False
