"""Select which of the winner's changes to revert before the proof, based on the study's records."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile

from autotune.diagnose.bottleneck import Bottleneck
from autotune.optimize.gp.surrogate import SurrogateModel
from autotune.optimize.simplify import is_expendable, revert_changes, simplify_winner
from autotune.parameter_name import ParameterName
from autotune.space.space import SearchSpace
from autotune.study.ranking import find_simplification, is_clearly_worse
from autotune.study.study_state import Phase, State, Trial
from autotune.study.winner_changes import Simplification

# Maximum number of consecutive measurements of blocks that show nothing, for example because the load
# generator failed. More of them would stop the study (`trial.MAX_FAULTS`), which needs no block.
MAX_UNMEASURED_BLOCKS = 2


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
    simplified_trials = state.list_finished_trials(Phase.SIMPLIFIED)
    if previous_record.reverted and simplified_trials and simplified_trials[-1].is_unmeasured:
        return _repeat_block(state, previous_record)
    accepted_trial, omitted_changes, refused_blocks = (
        previous_record.accepted,
        previous_record.without,
        previous_record.refused,
    )
    if (reverted_block := previous_record.reverted) and simplified_trials:
        keeps_peak = _keeps_peak(state, trial_number, simplified_trials[-1])
        if keeps_peak and is_expendable(surrogate, space, winner, reverted_block, omitted_changes):
            accepted_trial, omitted_changes = simplified_trials[-1].number, reverted_block
        else:
            refused_blocks = (*refused_blocks, reverted_block)
    kept_changes = _find_named_parameters(state, space, with_related=False)
    simplified_winner = simplify_winner(
        surrogate, space, winner, omitted_changes, refused_blocks, kept_changes
    )
    reverts_more = set(simplified_winner.reverted) > set(omitted_changes)
    settings = (
        simplified_winner.settings
        if reverts_more
        else revert_changes(space, winner, omitted_changes)
    )
    return Simplification(
        of=trial_number,
        settings=dict(settings),
        reverted=tuple(simplified_winner.reverted) if reverts_more else (),
        accepted=accepted_trial,
        without=tuple(omitted_changes),
        refused=refused_blocks,
        measured=len(state.list_started_trials(Phase.SIMPLIFIED)),
    )


def _repeat_block(state: State, record: Simplification) -> Simplification:
    """Return a record that repeats the last measurement, which showed nothing about its block.

    After ``MAX_UNMEASURED_BLOCKS`` such measurements in a row, no further block is measured.
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


def _keeps_peak(state: State, winner_number: int, simplified_trial: Trial) -> bool:
    """True if a simplified winner did not clearly sustain less than the winner.

    The model treats an unexpected loss as a disturbance, but a clear loss must not be ignored. A pruned
    measurement shows a clear loss, although its peak is imprecise.
    """
    peak = simplified_trial.peak
    if peak is None or not peak.is_feasible or peak.is_pruned:
        return False
    return not is_clearly_worse(state, winner_number, simplified_trial)


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
