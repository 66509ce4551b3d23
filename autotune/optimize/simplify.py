"""Simplification of a winner: the fewest changes and restarts that keep its capacity.

Some changes of presets and of the search contribute nothing to the gain. Before the proof of a winner,
measurements decide which changes to revert to the baseline. The model estimates the probability that
reverting a block of changes costs almost nothing. A block contains all changes of a service, only its
changes that need a restart, or the changes of one class of effect. Other blocks contain the changes
that are least likely to matter. The most promising block is reverted and measured, and the model learns
from the result. The first block contains all changes that hardly matter according to guides. The next
block extends an accepted block. A rejected block is never tried again inside a larger block. Finally,
the simplified winner is proven.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from autotune.optimize.gp.scale import decompress_log_peaks
from autotune.optimize.gp.surrogate import SurrogateModel
from autotune.parameter_name import ParameterName
from autotune.services.base import Action, Effect, Settings
from autotune.space.rules import Rule
from autotune.space.space import SearchSpace

Array = npt.NDArray[np.float64]

# The maximum loss from all reverted changes: the share MAX_LOSS of the gain, or MIN_LOSS as a log ratio
# of the capacity, whichever is larger.
MAX_LOSS, MIN_LOSS = 0.03, 0.003
# Minimum probabilities, according to the model, that a block stays within the maximum loss. With at
# least PROMISING_PROBABILITY, the block is measured. With at least ACCEPTED_PROBABILITY after its
# measurement, the block may be reverted.
PROMISING_PROBABILITY, ACCEPTED_PROBABILITY = 0.05, 0.2
# The loss (as a log ratio) that is acceptable for one change fewer. A block is reverted only if its
# expected loss per change is not larger. One measurement hardly shows so small a loss. An uncertain loss
# is acceptable for twenty fewer changes, but not for one or two.
CHANGE_PRICE = 0.004
# Prior sd of the effect of one change, as a log ratio of the capacity. Documented small effects are a
# few percent at most. Documented cosmetic effects are not measurable.
EFFECT_SDS = {Effect.SMALL: 0.02, Effect.COSMETIC: 0.005}
# weight of a change that needs a restart, relative to a change without a restart
RESTART_WEIGHT = 2.0
MODEL_DRAWS = 400


@dataclass(frozen=True)
class SimplifiedWinner:
    """The winner's ``settings`` with the ``reverted`` changes back at their baseline values.

    ``probability`` is the model's probability that reverting these changes costs almost nothing.
    """

    settings: Settings
    reverted: tuple[str, ...]
    probability: float


def simplify_winner(
    surrogate: SurrogateModel,
    space: SearchSpace,
    winner: Settings,
    accepted_changes: Collection[str] = (),
    rejected_sets: Sequence[Collection[str]] = (),
    kept_changes: Collection[str] = (),
) -> SimplifiedWinner:
    """Return the next configuration to measure: ``winner`` with more changes reverted than
    ``accepted_changes``.

    No set in ``rejected_sets`` is reverted completely, and no change in ``kept_changes`` at all. If no
    larger set is promising, only the changes in ``accepted_changes`` are reverted.
    """
    changed_names = [
        d.name for d in space.tunable_dimensions if winner[d.name] != space.baseline[d.name]
    ]
    revertible_names = [name for name in changed_names if name not in kept_changes]
    chosen_names, probability, best_promise = frozenset(accepted_changes), 1.0, (False, 0.0)
    first_names = chosen_names | _find_unimportant(space, winner, revertible_names)
    change_weights = {name: _get_change_weight(space, name) for name in changed_names}
    active_names, rule_check = space.active_parameters(winner), _build_rule_check(space, winner)

    def is_allowed(names: frozenset[str]) -> bool:
        return rule_check(names) and not any(names >= set(block) for block in rejected_sets)

    blocks = _list_blocks(surrogate, space, winner, revertible_names, chosen_names, is_allowed)
    candidate_sets = [
        names
        for names in dict.fromkeys(blocks)
        if names > chosen_names and active_names & set(changed_names) - names and is_allowed(names)
    ]
    for names, keep_probability in zip(
        candidate_sets,
        compute_keep_probabilities(surrogate, space, winner, candidate_sets),
        strict=True,
    ):
        weight = sum(change_weights[name] for name in names - frozenset(accepted_changes))
        block_promise = (names == first_names, keep_probability * weight)
        if keep_probability >= PROMISING_PROBABILITY and block_promise > best_promise:
            chosen_names, probability, best_promise = names, keep_probability, block_promise
    ordered_names = tuple(name for name in changed_names if name in chosen_names)
    return SimplifiedWinner(revert_changes(space, winner, chosen_names), ordered_names, probability)


def _find_unimportant(
    space: SearchSpace, winner: Settings, changed_names: Sequence[str]
) -> frozenset[str]:
    """Return the changes that hardly matter according to guides, or have no effect under the winner's
    settings.
    """
    core_names = {dimension.name for dimension in space.tunable_dimensions if dimension.is_core}
    return frozenset(changed_names) - (core_names & space.active_parameters(winner))


def revert_changes(space: SearchSpace, winner: Settings, names: Collection[str]) -> Settings:
    """Return ``winner`` with these parameters at their baseline values."""
    return {**winner, **{name: space.baseline[name] for name in names}}


def compute_keep_probabilities(
    surrogate: SurrogateModel,
    space: SearchSpace,
    winner: Settings,
    change_sets: Sequence[Collection[str]],
) -> list[float]:
    """Return, for each set of changes, the probability that ``winner`` loses almost nothing
    without that set.
    """
    if not change_sets:
        return []
    log_peaks = draw_log_peaks(
        surrogate,
        [winner, space.baseline, *(revert_changes(space, winner, names) for names in change_sets)],
    )
    gains = np.maximum(log_peaks[:, 0] - log_peaks[:, 1], 0.0)
    max_losses = np.maximum(-np.log1p(MAX_LOSS * np.expm1(-gains)), MIN_LOSS)
    return [
        float((log_peaks[:, 0] - set_log_peaks <= max_losses).mean())
        for set_log_peaks in log_peaks[:, 2:].T
    ]


def is_expendable(
    surrogate: SurrogateModel,
    space: SearchSpace,
    winner: Settings,
    block: Collection[str],
    accepted_changes: Collection[str],
) -> bool:
    """True if a measured ``block`` should be reverted, in addition to ``accepted_changes``."""
    if compute_keep_probabilities(surrogate, space, winner, [block])[0] < ACCEPTED_PROBABILITY:
        return False
    configurations = [revert_changes(space, winner, names) for names in (accepted_changes, block)]
    log_peaks = draw_log_peaks(surrogate, configurations)
    losses, changes = log_peaks[:, 0] - log_peaks[:, 1], set(block) - set(accepted_changes)
    active_changes = changes & space.active_parameters(winner)
    return _compute_expected_loss(losses, space, active_changes) <= CHANGE_PRICE * len(changes)


def _compute_expected_loss(losses: Array, space: SearchSpace, changes: Collection[str]) -> float:
    """Return the expected loss, given the model's draws of the loss and the documented effects.

    The model scales effects by the spread of all peaks. If a study multiplies the capacity, the model
    expects large effects even from changes that cannot have them. The documented effects limit the
    expected loss, unless ``changes`` contains a change with a large documented effect.
    """
    effects = [d.parameter.effect for d in space.tunable_dimensions if d.name in changes]
    mean_loss, variance = float(losses.mean()), float(losses.var())
    if not all(effect in EFFECT_SDS for effect in effects):
        return mean_loss
    prior_variance = sum(EFFECT_SDS[effect] ** 2 for effect in effects)
    return mean_loss * prior_variance / (prior_variance + variance) if variance else mean_loss


def _list_blocks(
    surrogate: SurrogateModel,
    space: SearchSpace,
    winner: Settings,
    changed_names: Sequence[str],
    accepted_changes: frozenset[str],
    is_allowed: Callable[[frozenset[str]], bool],
) -> Iterator[frozenset[str]]:
    """Yield sets of changes to revert, each including the accepted changes.

    The last sets grow by one change at a time, the least important change first. A change is skipped if
    ``is_allowed`` rejects the set with that change.
    """
    dimensions = {d.name: d for d in space.tunable_dimensions}
    remaining_names = [name for name in changed_names if name not in accepted_changes]
    if not remaining_names:
        return
    restart_names = [n for n in remaining_names if dimensions[n].parameter.action is Action.RESTART]
    yield accepted_changes | _find_unimportant(space, winner, remaining_names)
    for group in (restart_names, remaining_names):
        for service in dict.fromkeys(ParameterName.parse(name).service_prefix for name in group):
            yield accepted_changes | {
                n for n in group if ParameterName.parse(n).service_prefix == service
            }
    for effect in Effect:
        yield accepted_changes | {
            n for n in remaining_names if dimensions[n].parameter.effect is effect
        }
    reverted_settings = [
        revert_changes(space, winner, accepted_changes | {name}) for name in remaining_names
    ]
    log_peaks = draw_log_peaks(
        surrogate, [revert_changes(space, winner, accepted_changes), *reverted_settings]
    )
    losses = log_peaks[:, :1] - log_peaks[:, 1:]
    ranked_indices = np.argsort(losses.mean(axis=0) + losses.std(axis=0), kind="stable")
    names = accepted_changes
    for index in ranked_indices:
        larger_block = names | {remaining_names[index]}
        if is_allowed(larger_block):
            names = larger_block
            yield names


def draw_log_peaks(surrogate: SurrogateModel, settings: Sequence[Settings]) -> Array:
    """Return the model's draws of the log peaks of these configurations: ``[draw, configuration]``."""
    points = surrogate.grid.reset_inactive(surrogate.grid.encode_all(list(settings)))
    model, rng = (
        surrogate.composite_model or surrogate.log_peak_model,
        np.random.default_rng(len(settings)),
    )
    return decompress_log_peaks(model.draw_samples(points, MODEL_DRAWS, rng))


def _get_change_weight(space: SearchSpace, name: str) -> float:
    action = next(d.parameter.action for d in space.tunable_dimensions if d.name == name)
    return RESTART_WEIGHT if action is Action.RESTART else 1.0


def _build_rule_check(space: SearchSpace, winner: Settings) -> Callable[[frozenset[str]], bool]:
    """Return a predicate for sets of changes: true if reverting the set breaks no rule by more than
    ``winner`` does.

    The winner breaks only rules about sizes that were measured after it was suggested.
    """

    def keeps_rule(rule: Rule, settings: Settings) -> bool:
        if not rule.applies(settings) or space.is_kept(rule, settings):
            return True
        return rule.applies(winner) and space.compute_relative_excess(
            rule, settings
        ) <= space.compute_relative_excess(rule, winner)

    @cache
    def keeps_all_rules(names: frozenset[str]) -> bool:
        settings = revert_changes(space, winner, names)
        return all(keeps_rule(rule, settings) for rule in space.constraints)

    return keeps_all_rules
