"""Simplification of a winner: as few changes and restarts as keep its capacity.

Presets and the search change settings that contribute nothing to the gain. Before the proof of a
winner, measurements decide which changes to revert to the baseline. The model estimates the
probability that a block of changes costs next to nothing. A block is the changes of a service (all,
or those with a restart), of a class of effect, or those least likely to matter. The most promising
block is measured, and the model learns from it. The first block is all changes that hardly matter
by the guides. An accepted block is the base of the next one. A refused block is never tried again
inside a larger one. The simplified winner is proven.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from autotune.optimize.gp.scale import decompress
from autotune.optimize.gp.surrogate import SurrogateModel
from autotune.parameter_name import ParameterName
from autotune.services.base import Action, Effect, Settings
from autotune.space.rules import Rule
from autotune.space.space import SearchSpace

Array = npt.NDArray[np.float64]

# The maximum cost of all reverted changes: a share of the gain, or a log ratio of the capacity if larger.
MAX_LOSS, MIN_LOSS = 0.03, 0.003
# The model's probability that a block costs no more. From PROMISING on, a block is worth one of the
# reserved measurements. From ACCEPTED on, it may be reverted after its measurement.
PROMISING_PROBABILITY, ACCEPTED_PROBABILITY = 0.05, 0.2
# What a change fewer is worth, of the logarithm of the capacity: a block is reverted only if the loss to
# expect is no more than that. One measurement hardly shows what a block costs; for one or two changes a
# doubt is not worth it, for twenty it is.
CHANGE_PRICE = 0.004
RESTART_WEIGHT = 2.0  # of a change that needs a restart, in changes that need none
MODEL_DRAWS = 400


@dataclass(frozen=True)
class SimplifiedWinner:
    """``settings`` with ``revert_changes`` back at the baseline.

    ``probability`` is the model's probability that this costs next to nothing.
    """

    settings: Settings
    reverted: tuple[str, ...]
    probability: float


def simplify_winner(
    surrogate: SurrogateModel,
    space: SearchSpace,
    winner: Settings,
    accepted: Collection[str] = (),
    rejected: Sequence[Collection[str]] = (),
) -> SimplifiedWinner:
    """Return the next configuration to measure: ``winner`` with more changes reverted than
    ``accepted``.

    Its changes include no set in ``rejected``. ``revert_changes`` does not grow if no set is
    promising.
    """
    changed = [d.name for d in space.tunable_dimensions if winner[d.name] != space.baseline[d.name]]
    chosen, probability, value = frozenset(accepted), 1.0, (False, 0.0)
    first = chosen | _find_unimportant(space, winner, changed)
    weights = {name: _change_weight(space, name) for name in changed}
    effective, keeps_rules = space.active_parameters(winner), _build_rule_check(space, winner)

    def allowed(names: frozenset[str]) -> bool:
        return keeps_rules(names) and not any(names >= set(block) for block in rejected)

    blocks = _list_blocks(surrogate, space, winner, changed, chosen, allowed)
    sets = [
        names for names in dict.fromkeys(blocks)
        if names > chosen and effective & set(changed) - names and allowed(names)
    ]  # fmt: skip
    for names, chance in zip(sets, keep_probabilities(surrogate, space, winner, sets), strict=True):
        weight = sum(weights[name] for name in names - frozenset(accepted))
        promise = (names == first, chance * weight)
        if chance >= PROMISING_PROBABILITY and promise > value:
            chosen, probability, value = names, chance, promise
    order = tuple(name for name in changed if name in chosen)
    return SimplifiedWinner(revert_changes(space, winner, chosen), order, probability)


def _find_unimportant(
    space: SearchSpace, winner: Settings, changed: Sequence[str]
) -> frozenset[str]:
    """Changes that hardly matter by the guides, or have no effect under the winner's settings."""
    core = {dimension.name for dimension in space.tunable_dimensions if dimension.is_core}
    return frozenset(changed) - (core & space.active_parameters(winner))


def revert_changes(space: SearchSpace, winner: Settings, names: Collection[str]) -> Settings:
    """``winner`` with these parameters as they are in the baseline."""
    return {**winner, **{name: space.baseline[name] for name in names}}


def keep_probabilities(
    surrogate: SurrogateModel, space: SearchSpace, winner: Settings, sets: Sequence[Collection[str]]
) -> list[float]:
    """For each set of changes the probability that ``winner`` loses next to nothing without it."""
    if not sets:
        return []
    log_peaks = draw_log_peaks(
        surrogate,
        [winner, space.baseline, *(revert_changes(space, winner, names) for names in sets)],
    )
    gain = np.maximum(log_peaks[:, 0] - log_peaks[:, 1], 0.0)
    limit = np.maximum(-np.log1p(MAX_LOSS * np.expm1(-gain)), MIN_LOSS)
    return [float((log_peaks[:, 0] - each <= limit).mean()) for each in log_peaks[:, 2:].T]


def is_expendable(
    surrogate: SurrogateModel,
    space: SearchSpace,
    winner: Settings,
    block: Collection[str],
    accepted: Collection[str],
) -> bool:
    """True if a measured ``block`` is to be reverted, beyond those ``accepted`` before."""
    if keep_probabilities(surrogate, space, winner, [block])[0] < ACCEPTED_PROBABILITY:
        return False
    sets = [revert_changes(space, winner, names) for names in (accepted, block)]
    with_it, without_it = draw_log_peaks(surrogate, sets).mean(axis=0)
    return bool(with_it - without_it <= CHANGE_PRICE * len(set(block) - set(accepted)))


def _list_blocks(
    surrogate: SurrogateModel,
    space: SearchSpace,
    winner: Settings,
    changed: Sequence[str],
    accepted: frozenset[str],
    is_allowed: Callable[[frozenset[str]], bool],
) -> Iterator[frozenset[str]]:
    """Return sets of changes to revert, each with the accepted changes.

    The last sets grow by one change each, from the least important. A change that is not
    ``is_allowed`` in the set is skipped.
    """
    dimensions = {d.name: d for d in space.tunable_dimensions}
    remaining = [name for name in changed if name not in accepted]
    if not remaining:
        return
    restarts = [n for n in remaining if dimensions[n].parameter.action is Action.RESTART]
    yield accepted | _find_unimportant(space, winner, remaining)
    for group in (restarts, remaining):
        for owner in dict.fromkeys(ParameterName.parse(name).service_prefix for name in group):
            yield accepted | {n for n in group if ParameterName.parse(n).service_prefix == owner}
    for effect in Effect:
        yield accepted | {n for n in remaining if dimensions[n].parameter.effect is effect}
    without = [revert_changes(space, winner, accepted | {name}) for name in remaining]
    log_peaks = draw_log_peaks(surrogate, [revert_changes(space, winner, accepted), *without])
    losses = log_peaks[:, :1] - log_peaks[:, 1:]
    order = np.argsort(losses.mean(axis=0) + losses.std(axis=0), kind="stable")
    names = accepted
    for index in order:
        more = names | {remaining[index]}
        if is_allowed(more):
            names = more
            yield names


def draw_log_peaks(surrogate: SurrogateModel, settings: Sequence[Settings]) -> Array:
    """The model's draws of the log peaks of these configurations: ``[draw, configuration]``."""
    points = surrogate.grid.reset_inactive(surrogate.grid.encode_all(list(settings)))
    model, rng = (
        surrogate.composite_model or surrogate.log_peak_model,
        np.random.default_rng(len(settings)),
    )
    drawn = model.sample(points, MODEL_DRAWS, rng)
    # Above the best that was measured, the scale is the logarithm itself.
    return np.where(drawn > 0, drawn, decompress(drawn))


def _change_weight(space: SearchSpace, name: str) -> float:
    action = next(d.parameter.action for d in space.tunable_dimensions if d.name == name)
    return RESTART_WEIGHT if action is Action.RESTART else 1.0


def _build_rule_check(space: SearchSpace, winner: Settings) -> Callable[[frozenset[str]], bool]:
    """Return a predicate: True if reverting a set of changes breaks no rule further than ``winner``
    does.

    The winner breaks only rules over sizes that were measured since.
    """

    def keeps(rule: Rule, settings: Settings) -> bool:
        if not rule.applies(settings) or space.is_kept(rule, settings):
            return True
        return rule.applies(winner) and space.relative_excess(
            rule, settings
        ) <= space.relative_excess(rule, winner)

    @cache
    def kept(names: frozenset[str]) -> bool:
        settings = revert_changes(space, winner, names)
        return all(keeps(rule, settings) for rule in space.constraints)

    return kept
