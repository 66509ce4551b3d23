"""Which of the winner's changes are reverted before it is proven, from what is on record."""

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
    """The record of what to measure next for trial ``trial_number``: its ``settings`` with all of
    ``reverted`` as in the baseline. If that list is empty, there is nothing to measure.

    ``without`` is what has been reverted for good, and ``accepted`` the trial that measured this;
    ``refused`` sets of changes lose too much. ``measured`` counts the measurements it rests on.
    """
    leading, last = state.find_trial(trial_number), state.simplified or {}
    winner = space.replace_impossible(leading.effective_settings, leading.settings)
    done = state.list_finished(Phase.SIMPLIFIED)
    accepted, without = last.get("accepted"), tuple(last.get("without", ()))
    refused = list(last.get("refused", ()))
    if (block := last.get("reverted")) and done:
        # The model takes an unexpected loss for a disturbance, but a clear loss must count.
        holds = select_feasible_trials(done[-1:]) and not is_clearly_worse(
            state, trial_number, done[-1]
        )
        if holds and is_expendable(surrogate, space, winner, block, without):
            accepted, without = done[-1].number, tuple(block)
        else:
            refused.append(list(block))
    following = simplify_winner(surrogate, space, winner, without, refused)
    more = set(following.reverted) > set(without)
    return {
        "of": trial_number,
        "settings": dict(following.settings)
        if more
        else dict(revert_changes(space, winner, without)),
        "reverted": list(following.reverted) if more else [],
        "accepted": accepted,
        "without": list(without),
        "refused": refused,
        "measured": len(state.list_started(Phase.SIMPLIFIED)),
    }
