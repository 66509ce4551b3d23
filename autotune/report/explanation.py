"""The explanation of a winner, which `autotune explain` prints as JSON or as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from autotune.optimize.model_view import ModelView, RangeEdge
from autotune.optimize.reversal_cost import ReversalCost
from autotune.report import documents
from autotune.report.importance import (
    ImportanceRow,
    build_importance_rows,
    encode_pair,
    format_edge,
)
from autotune.report.reversal_costs import format_reversal_cost, select_reversal_costs
from autotune.report.view import StudyView
from autotune.study.explain_study import analyze_study, find_baseline_and_winner
from autotune.study.ranking import MIN_CONFIGURATIONS, list_measured_trials
from autotune.study.winner_changes import MinimalChanges, format_reduction
from autotune.target.messages import format_count

NAME_WIDTH = 48  # width in characters of the column for parameter names


@dataclass(frozen=True)
class Explanation:
    """The cost of reverting each change of the winner, and each parameter's effect over its searched
    range.

    ``model`` contains the recorded results of the search model: ``pairs`` of interacting parameters,
    and ``edges`` of ranges where a parameter is best.
    """

    trial: int
    configurations: int
    costs: Mapping[str, ReversalCost]
    effects: tuple[ImportanceRow, ...]
    model: ModelView


def build_explanation(view: StudyView) -> Explanation:
    """Return the explanation, with the same figures as in the report. No host is contacted.

    Raises AutotuneError for a study without a winner.
    """
    state = view.state
    baseline_trial, winner_trial = find_baseline_and_winner(state, view.study.directory)
    analysis = analyze_study(view.study.directory, state, winner_trial.number)
    trials = list_measured_trials(state)
    modelled_costs = analysis.costs if len(trials) >= MIN_CONFIGURATIONS else {}
    return Explanation(
        winner_trial.number,
        len(trials),
        select_reversal_costs(state, modelled_costs),
        build_importance_rows(analysis.view.importance, trials, baseline_trial),
        analysis.view,
    )


def build_explanation_json(
    view: StudyView, explanation: Explanation
) -> documents.ExplanationObject:
    """Return the explanation as one JSON object."""
    return {
        "schema": 1,
        "study": view.name,
        "trial": explanation.trial,
        "configurations": explanation.configurations,
        "changes": [
            {
                "parameter": change_name,
                "loss": cost.loss,
                "sd": cost.sd,
                "distinguishable": cost.is_distinguishable,
                "measured": cost.is_measured,
            }
            for change_name, cost in explanation.costs.items()
        ],
        "importance": [
            {
                "parameters": list(row.names),
                "effect": row.effect,
                "half_width": row.half_width,
                "changed_in": row.changed_in,
            }
            for row in explanation.effects
        ],
        "interactions": [encode_pair(pair) for pair in explanation.model.pairs],
        "edges": [_encode_edge(range_edge) for range_edge in explanation.model.edges],
        "minimal": _encode_minimal(view.state.minimal_changes),
    }


def _encode_edge(range_edge: RangeEdge) -> documents.RangeEdgeObject:
    return {
        "parameter": range_edge.parameter,
        "value": range_edge.value,
        "end": range_edge.end,
        "try_range": range_edge.try_range,
    }


def _encode_minimal(minimal: MinimalChanges | None) -> documents.MinimalChangesObject | None:
    if minimal is None:
        return None
    return {
        "event": "explained",
        "at": minimal.at or "",
        "kept": list(minimal.kept),
        "dropped": list(minimal.dropped),
        "share": minimal.share,
        "low": minimal.low,
        "high": minimal.high,
        "measurements": minimal.measurements,
        "losses": minimal.losses,
        "sds": minimal.sds,
        "changes": minimal.changes,
        "trial": minimal.trial,
    }


def format_explanation(view: StudyView, explanation: Explanation) -> str:
    """Return the explanation as text."""
    explanation_lines = [f"Study {view.name}, trial {explanation.trial}."]
    if explanation.configurations < MIN_CONFIGURATIONS:
        configurations_text = format_count(explanation.configurations, "configuration")
        explanation_lines += [
            "",
            f"{configurations_text} measured: too few to estimate the effect of single settings.",
        ]
    else:
        explanation_lines += [*_format_costs(view, explanation), *_format_effects(explanation)]
    if minimal_lines := list(_format_minimal_changes(view)):
        explanation_lines += ["", *minimal_lines]
    return "\n".join(explanation_lines)


def _format_costs(view: StudyView, explanation: Explanation) -> Iterator[str]:
    if not explanation.costs:
        return
    yield ""
    yield f"Change of the {view.units.quantity_name} if one setting is reverted (90 % interval):"
    for change_name, cost in explanation.costs.items():
        yield f"  {change_name:{NAME_WIDTH}} {format_reversal_cost(cost, view.units, view.best_peak)}"


def _format_effects(explanation: Explanation) -> Iterator[str]:
    """Yield each parameter's effect over its searched range, then interactions and range limits."""
    yield ""
    yield f"Effect over the searched range (model of {explanation.configurations} configurations):"
    for row in explanation.effects:
        joined_names = " + ".join(row.names)
        yield f"  {joined_names:{NAME_WIDTH}} {format_effect(row)}   changed in {row.changed_in}"
    if explanation.model.pairs:
        yield ""
        yield "Interactions:"
    for pair in explanation.model.pairs:
        yield f"  {pair.first} × {pair.second}: ±{100 * pair.effect:.1f} %"
    for range_edge in explanation.model.edges:
        yield ""
        yield format_edge(range_edge)


def format_effect(row: ImportanceRow) -> str:
    """Return an effect with its interval: ``±8.3 % [5.1, 11.5]``; without an sd, only the effect."""
    effect_text = f"±{100 * row.effect:.1f} %"
    if row.half_width is None:
        return effect_text
    low_effect = max(0.0, row.effect - row.half_width)
    return f"{effect_text} [{100 * low_effect:.1f}, {100 * (row.effect + row.half_width):.1f}]"


def _format_minimal_changes(view: StudyView) -> Iterator[str]:
    minimal_changes = view.state.minimal_changes
    if minimal_changes is None and (view.gain is None or view.verdict != "improved"):
        return  # fewer changes are tried only for a proven gain
    if minimal_changes is None:
        yield "`--measure` finds the smallest set of changes that keeps 95 % of the gain."
        return
    yield f"{format_reduction(minimal_changes)}:"
    yield from (f"  {name}" for name in minimal_changes.kept)
    if minimal_changes.trial is not None and view.next_steps.apply:
        yield f"`{view.next_steps.apply[0]}` exports only these changes."
