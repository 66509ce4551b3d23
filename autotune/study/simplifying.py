"""Which of the winner's changes are reverted before it is proven, from what is on record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.optimize.gp.surrogate import Surrogate
from autotune.optimize.simplify import expendable, reverted, simplified
from autotune.space.space import Space
from autotune.study.ranking import carries_less, works
from autotune.study.records import Phase, State


def next_block(state: State, surrogate: Surrogate, space: Space, number: int) -> Mapping[str, Any]:
    """The record of what to measure next for trial ``number``: its ``settings`` with all of
    ``reverted`` as in the baseline. If that list is empty, there is nothing to measure.

    ``without`` is what has been reverted for good, and ``accepted`` the trial that measured this;
    ``refused`` sets of changes lose too much. ``measured`` counts the measurements it rests on.
    """
    leading, last = state.by_number(number), state.simplified or {}
    winner = space.possible(leading.in_effect, leading.settings)
    done = state.finished(Phase.SIMPLIFIED)
    accepted, without = last.get("accepted"), tuple(last.get("without", ()))
    refused = list(last.get("refused", ()))
    if (block := last.get("reverted")) and done:
        # The model takes an unexpected loss for a disturbance, but a clear loss must count.
        holds = works(done[-1:]) and not carries_less(state, number, done[-1])
        if holds and expendable(surrogate, space, winner, block, without):
            accepted, without = done[-1].number, tuple(block)
        else:
            refused.append(list(block))
    following = simplified(surrogate, space, winner, without, refused)
    more = set(following.reverted) > set(without)
    return {
        "of": number,
        "settings": dict(following.settings) if more else dict(reverted(space, winner, without)),
        "reverted": list(following.reverted) if more else [],
        "accepted": accepted,
        "without": list(without),
        "refused": refused,
        "measured": len(state.begun(Phase.SIMPLIFIED)),
    }
