"""Select changes of the winner to revert before its proof, from the records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.optimize.gp.surrogate import SurrogateModel
from autotune.optimize.simplify import is_expendable, revert_changes, simplify_winner
from autotune.space.space import SearchSpace
from autotune.study.ranking import is_clearly_worse, select_feasible_trials
from autotune.study.study_state import Phase, State


def select_next_block(
    state: State, surrogate: SurrogateModel, space: SearchSpace, trial_number: int
) -> Mapping[str, Any]:
    """Return the record of the next measurement for trial ``trial_number``.

    ``settings`` are its settings with all of ``reverted`` as in the baseline. An empty ``reverted``
    means that nothing is left to measure. ``without`` contains the changes reverted for good, and
    ``accepted`` is the trial that measured this. ``refused`` contains sets of changes whose loss is too
    large. ``measured`` counts the measurements so far.
    """
    leader, earlier = state.find_trial(trial_number), state.simplification or {}
    winner = space.replace_impossible(leader.effective_settings, leader.settings)
    blocks = state.list_finished(Phase.SIMPLIFIED)
    accepted, without = earlier.get("accepted"), tuple(earlier.get("without", ()))
    refused = list(earlier.get("refused", ()))
    if (block := earlier.get("reverted")) and blocks:
        # The model treats an unexpected loss as a disturbance, but a clear loss must count.
        keeps_peak = select_feasible_trials(blocks[-1:]) and not is_clearly_worse(
            state, trial_number, blocks[-1]
        )
        if keeps_peak and is_expendable(surrogate, space, winner, block, without):
            accepted, without = blocks[-1].number, tuple(block)
        else:
            refused.append(list(block))
    simplified = simplify_winner(surrogate, space, winner, without, refused)
    reverts_more = set(simplified.reverted) > set(without)
    return {
        "of": trial_number,
        "settings": dict(simplified.settings)
        if reverts_more
        else dict(revert_changes(space, winner, without)),
        "reverted": list(simplified.reverted) if reverts_more else [],
        "accepted": accepted,
        "without": list(without),
        "refused": refused,
        "measured": len(state.list_started(Phase.SIMPLIFIED)),
    }
