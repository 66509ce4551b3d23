"""A winner without what does nothing: as few changes, and restarts, as keep its capacity.

A preset and a search leave settings that have nothing to do with the gain. Before a winner is proven,
they go back to what runs, by measurement: the model says how likely each block of changes is to cost
next to nothing (services, classes of effect, those that need a restart, and the least likely to matter
together), the block that promises most is measured, and the model learns from it. All that hardly matters
by what guides say is the first. What is accepted is the base of the next block; what is refused is never
tried again as a part of a larger one. What is proven is the result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from autotune.optimize.gp.scale import decompress
from autotune.optimize.gp.surrogate import Surrogate
from autotune.parameter_name import ParameterName
from autotune.services.base import Action, Effect, Settings
from autotune.space.space import Infeasible, Space

Array = npt.NDArray[np.float64]

# Of the gain, what may be lost by all that is reverted; and of the logarithm of the capacity, no less
# than this may.
LOSS, LEAST = 0.03, 0.003
# Probability of losing no more, by the model, at which a block is worth one of the measurements that time
# is kept for; and at which it is reverted once it was measured and did not clearly carry less.
PROMISING, ACCEPTED = 0.05, 0.5
RESTART_WEIGHT = 2.0  # of a change that needs a restart, in changes that need none
DRAWS = 400


@dataclass(frozen=True)
class Simplified:
    """``settings`` with the ``reverted`` parameters as they are in the baseline; ``probability`` that
    this costs next to nothing, by the model."""

    settings: Settings
    reverted: tuple[str, ...]
    probability: float


def simplified(
    surrogate: Surrogate,
    space: Space,
    winner: Settings,
    accepted: Collection[str] = (),
    refused: Sequence[Collection[str]] = (),
) -> Simplified:
    """What to measure next: ``winner`` with more reverted than was ``accepted``, and no set that holds
    one of ``refused``. Nothing more is ``reverted`` where nothing promises anything."""
    changed = [d.name for d in space.tunable if winner[d.name] != space.baseline[d.name]]
    chosen, probability, value = frozenset(accepted), 1.0, (False, 0.0)
    first = chosen | _unimportant(space, winner, changed)
    weights = {name: _weight(space, name) for name in changed}
    effective, keeps_rules = space.active(winner), _rules_kept(space, winner)

    def allowed(names: frozenset[str]) -> bool:
        return keeps_rules(names) and not any(names >= set(block) for block in refused)

    blocks = _blocks(surrogate, space, winner, changed, chosen, allowed)
    sets = [
        names for names in dict.fromkeys(blocks)
        if names > chosen and effective & set(changed) - names and allowed(names)
    ]  # fmt: skip
    for names, chance in zip(sets, chances(surrogate, space, winner, sets), strict=True):
        weight = sum(weights[name] for name in names - frozenset(accepted))
        promise = (names == first, chance * weight)
        if chance >= PROMISING and promise > value:
            chosen, probability, value = names, chance, promise
    order = tuple(name for name in changed if name in chosen)
    return Simplified(reverted(space, winner, chosen), order, probability)


def _unimportant(space: Space, winner: Settings, changed: Sequence[str]) -> frozenset[str]:
    """What hardly matters, as guides say, and what has no effect beside the other settings."""
    core = {dimension.name for dimension in space.tunable if dimension.core}
    return frozenset(changed) - (core & space.active(winner))


def reverted(space: Space, winner: Settings, names: Collection[str]) -> Settings:
    """``winner`` with these parameters as they are in the baseline."""
    return {**winner, **{name: space.baseline[name] for name in names}}


def chances(
    surrogate: Surrogate, space: Space, winner: Settings, sets: Sequence[Collection[str]]
) -> list[float]:
    """For each set of changes the probability that ``winner`` loses next to nothing without it."""
    if not sets:
        return []
    log_peaks = _draws(
        surrogate, [winner, space.baseline, *(reverted(space, winner, names) for names in sets)]
    )
    gain = np.maximum(log_peaks[:, 0] - log_peaks[:, 1], 0.0)
    limit = np.maximum(-np.log1p(LOSS * np.expm1(-gain)), LEAST)
    return [float((log_peaks[:, 0] - each <= limit).mean()) for each in log_peaks[:, 2:].T]


def _blocks(
    surrogate: Surrogate,
    space: Space,
    winner: Settings,
    changed: Sequence[str],
    accepted: frozenset[str],
    allowed: Callable[[frozenset[str]], bool],
) -> Iterator[frozenset[str]]:
    """Sets of changes to revert, what was accepted included. The last are of more and more changes, those
    that hardly matter first; one that is not ``allowed`` beside them is passed over."""
    dimensions = {d.name: d for d in space.tunable}
    left = [name for name in changed if name not in accepted]
    if not left:
        return
    restarts = [n for n in left if dimensions[n].parameter.action is Action.RESTART]
    yield accepted | _unimportant(space, winner, left)
    for group in (restarts, left):
        for owner in dict.fromkeys(ParameterName.parse(name).owner for name in group):
            yield accepted | {n for n in group if ParameterName.parse(n).owner == owner}
    for effect in Effect:
        yield accepted | {n for n in left if dimensions[n].parameter.effect is effect}
    without = [reverted(space, winner, accepted | {name}) for name in left]
    log_peaks = _draws(surrogate, [reverted(space, winner, accepted), *without])
    losses = log_peaks[:, :1] - log_peaks[:, 1:]
    order = np.argsort(losses.mean(axis=0) + losses.std(axis=0), kind="stable")
    names = accepted
    for index in order:
        more = names | {left[index]}
        if allowed(more):
            names = more
            yield names


def _draws(surrogate: Surrogate, settings: Sequence[Settings]) -> Array:
    """Log peaks of these configurations, as the model may have them: ``[draw, configuration]``."""
    points = surrogate.grid.canonical(surrogate.grid.encode_all(list(settings)))
    model, rng = surrogate.composite or surrogate.log_peak, np.random.default_rng(len(settings))
    drawn = model.draws(points, DRAWS, rng)
    # Above the best that was measured, the scale is the logarithm itself.
    return np.where(drawn > 0, drawn, decompress(drawn))


def _weight(space: Space, name: str) -> float:
    action = next(d.parameter.action for d in space.tunable if d.name == name)
    return RESTART_WEIGHT if action is Action.RESTART else 1.0


def _rules_kept(space: Space, winner: Settings) -> Callable[[frozenset[str]], bool]:
    """Whether without a set of changes no rule is broken that ``winner`` keeps."""
    broken = _broken(space, winner) or frozenset()

    @cache
    def kept(names: frozenset[str]) -> bool:
        breaks = _broken(space, reverted(space, winner, names))
        return breaks is not None and breaks <= broken

    return kept


def _broken(space: Space, settings: Settings) -> frozenset[str] | None:
    """The rules that these settings do not keep as they are: of a winner those that came of what was
    measured since. ``None`` where nothing keeps them."""
    try:
        return frozenset(str(binding.rule) for binding in space.candidate(settings).bindings)
    except Infeasible:
        return None
