"""The cost of reverting each change of a winner, and the action that the change needs."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.optimize.reversal_cost import ReversalCost
from autotune.report import documents
from autotune.report.gain_shares import format_ratio
from autotune.report.parameters import ACTION_LABELS, SettingChange
from autotune.report.units import Units
from autotune.services.base import Action
from autotune.study.study_state import State
from autotune.study.winner_changes import MinimalChanges

INDISTINGUISHABLE_TEXT = "not distinguishable"


def select_reversal_costs(
    state: State, modelled: Mapping[str, ReversalCost] | None = None
) -> dict[str, ReversalCost]:
    """Return the cost of reverting each change, the largest cost first. Measured costs replace modelled
    costs.

    ``modelled`` replaces the recorded costs of a study without a verdict.
    """
    minimal_changes = state.minimal_changes or MinimalChanges()
    measured_costs = {
        name: ReversalCost(loss, minimal_changes.sds[name], is_measured=True)
        for name, loss in minimal_changes.losses.items()
        if name in minimal_changes.sds
    }
    reversal_costs = {**(state.reversal_costs if modelled is None else modelled), **measured_costs}
    return dict(sorted(reversal_costs.items(), key=lambda item: -item[1].loss))


def select_change_action(change: SettingChange) -> documents.ActionLabel:
    """Return ``none``, ``reload`` or ``restart``: the action that the change needs."""
    return (
        ACTION_LABELS[change.parameter.action] if change.parameter else ACTION_LABELS[Action.NONE]
    )


def format_reversal_cost(cost: ReversalCost | None, units: Units, best_peak: float) -> str:
    """Return the change of the capacity if a setting is reverted: ``-26 % [-45, -3]``; a dash if
    unknown.

    If the interval includes zero, the result is ``not distinguishable``.
    """
    if cost is None or not best_peak:
        return "–"
    if not cost.is_distinguishable:
        return INDISTINGUISHABLE_TEXT
    ratio_text = format_ratio(cost.ratio, units, best_peak)
    return f"{ratio_text}, measured" if cost.is_measured else ratio_text
