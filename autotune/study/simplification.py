"""Select which of the winner's changes to revert before the proof, based on the study's records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

from autotune.diagnose.bottleneck import Bottleneck
from autotune.optimize.gp.surrogate import SurrogateModel
from autotune.optimize.simplify import is_expendable, revert_changes, simplify_winner
from autotune.parameter_name import ParameterName
from autotune.services.base import Settings
from autotune.space.space import SearchSpace
from autotune.study.ranking import (
    compute_loss_probability,
    find_simplification,
    is_clearly_worse,
)
from autotune.study.study_state import Phase, State, Trial
from autotune.study.winner_changes import Simplification

# Maximum number of consecutive measurements of blocks that show nothing, for example because the load
# generator failed. More of them would stop the study (`trial.MAX_FAULTS`), which needs no block.
MAX_UNMEASURED_BLOCKS = 2
# A simplified winner that probably loses more, as a log ratio of the capacity, is not measured precisely.
MAX_SIMPLIFICATION_LOSS = 0.1
# If the probability of such a loss is at least this high, one measurement is not enough to revert a
# block. The documented effects of its changes do not count.
OPEN_LOSS_PROBABILITY = 0.25


def select_next_block(
    state: State, surrogate: SurrogateModel, space: SearchSpace, trial_number: int
) -> Simplification:
    """Return the record with the changes of trial ``trial_number`` to revert in the next measurement.

    Parameters whose names occur in the evidence of a bottleneck count as important, even if guides do not
    mention them. If the bottleneck is their own service, they are never reverted.
    """
    space = space.with_core_parameters(_find_named_parameters(state, space))
    leader = state.find_trial(trial_number)
    previous_record = find_simplification(state, trial_number) or Simplification()
    winner = space.replace_impossible_values(leader.effective_settings, leader.settings)
    record = _decide_block(state, surrogate, space, winner, previous_record, trial_number)
    if record is None:
        return _repeat_block(state, previous_record)
    kept_changes = _find_named_parameters(state, space, with_related=False)
    simplified_winner = simplify_winner(
        surrogate, space, winner, record.without, record.refused, kept_changes
    )
    reverts_more = set(simplified_winner.reverted) > set(record.without)
    settings = (
        simplified_winner.settings
        if reverts_more
        else revert_changes(space, winner, record.without)
    )
    return replace(
        record,
        of=trial_number,
        settings=dict(settings),
        reverted=tuple(simplified_winner.reverted) if reverts_more else (),
        measured=len(state.list_started_trials(Phase.SIMPLIFIED)),
    )


def _repeat_block(state: State, record: Simplification) -> Simplification:
    """Return a record that repeats the last measurement.

    After ``MAX_UNMEASURED_BLOCKS`` measurements in a row that showed nothing, no further block is
    measured.
    """
    unmeasured_trials = takewhile(
        lambda trial: trial.is_unmeasured, reversed(state.list_finished_trials(Phase.SIMPLIFIED))
    )
    is_over = len([*unmeasured_trials]) >= MAX_UNMEASURED_BLOCKS
    return replace(
        record,
        reverted=() if is_over else record.reverted,
        measured=len(state.list_started_trials(Phase.SIMPLIFIED)),
    )


def _decide_block(
    state: State,
    surrogate: SurrogateModel,
    space: SearchSpace,
    winner: Settings,
    record: Simplification,
    winner_number: int,
) -> Simplification | None:
    """Return ``record`` with the block that was measured last accepted or refused. Return ``None`` if
    its measurement must be repeated first.
    """
    finished_trials = state.list_finished_trials(Phase.SIMPLIFIED)
    if not record.reverted or not finished_trials:
        return record
    if not (block_trials := _select_equal_trials(finished_trials)):
        return None
    keeps_peak = _keeps_peak(state, winner_number, block_trials)
    if keeps_peak and is_expendable(surrogate, space, winner, record.reverted, record.without):
        if not _is_loss_open(state, winner_number, block_trials):
            return replace(record, accepted=block_trials[-1].number, without=record.reverted)
        if len(block_trials) == 1 and not finished_trials[-1].is_unmeasured:
            return None
    return replace(record, refused=(*record.refused, record.reverted))


def _select_equal_trials(trials: Sequence[Trial]) -> list[Trial]:
    """Return the last of ``trials`` and the trials directly before it with the same settings. Trials
    that show nothing are left out.
    """
    equal_trials = takewhile(lambda trial: trial.settings == trials[-1].settings, reversed(trials))
    return [trial for trial in equal_trials if not trial.is_unmeasured][::-1]


def _is_loss_open(state: State, winner_number: int, block_trials: Sequence[Trial]) -> bool:
    """True if the measurements of a simplified winner do not exclude a large loss."""
    loss_probability = compute_loss_probability(
        state, winner_number, block_trials, MAX_SIMPLIFICATION_LOSS
    )
    return loss_probability >= OPEN_LOSS_PROBABILITY


def _keeps_peak(state: State, winner_number: int, block_trials: Sequence[Trial]) -> bool:
    """True if a simplified winner did not clearly sustain less than the winner.

    The model treats an unexpected loss as a disturbance, but a clear loss must not be ignored.
    """
    return all(map(_shows_capacity, block_trials)) and not is_clearly_worse(
        state, winner_number, block_trials
    )


def _shows_capacity(trial: Trial) -> bool:
    """True if a measurement met the objective, and its peak is not an upper bound.

    A pruned measurement shows a clear loss, although its peak is imprecise.
    """
    return trial.meets_slo and trial.peak is not None and not trial.peak.is_pruned


def _find_named_parameters(
    state: State, space: SearchSpace, *, with_related: bool = True
) -> set[str]:
    """Return the full names of the parameters whose names occur in the evidence of a bottleneck.

    If ``with_related`` is false, only the service that is the bottleneck counts.
    """
    return {
        dimension.name
        for dimension in space.tunable_dimensions
        for bottleneck in state.bottlenecks.values()
        if _is_named(ParameterName.parse(dimension.name), bottleneck, with_related=with_related)
    }


def _is_named(name: ParameterName, bottleneck: Bottleneck, *, with_related: bool) -> bool:
    service_pairs = {(bottleneck.tier, bottleneck.service)}
    if with_related:
        service_pairs |= {(tier, service) for tier, service, _ in bottleneck.related}
    is_concerned = (name.tier, name.service) in service_pairs
    return is_concerned and name.parameter in bottleneck.evidence_words
