"""The effect of each setting over its searched range, as estimated by the search model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autotune.estimate import SDS_WITHIN_90
from autotune.optimize.model_view import InteractingPair, ParameterEffect, RangeEdge
from autotune.report import documents
from autotune.study.study_state import Trial

MIN_LOG_EFFECT = 0.002  # smallest effect that is shown, as a log ratio


def encode_pair(pair: InteractingPair) -> documents.InteractingPairObject:
    """Return an interaction as JSON."""
    return {"first": pair.first, "second": pair.second, "effect": pair.effect}


@dataclass(frozen=True)
class ImportanceRow:
    """Settings that always changed together, with their combined effect (log ratio).

    ``half_width`` is half of the 90 % interval, or ``None`` if no sd was recorded. ``changed_in`` is
    the number of configurations with a value other than the baseline's.
    """

    names: tuple[str, ...]
    effect: float
    half_width: float | None
    changed_in: int


def format_edge(edge: RangeEdge) -> str:
    """Return a sentence about a parameter that is best at the end of its range, with the range to try."""
    range_low, range_high = edge.try_range
    return (
        f"{edge.parameter} is best at the {edge.end} end of its range ({edge.value}): "
        f"try {{range: [{range_low}, {range_high}]}}"
    )


def build_importance_rows(
    effects: Iterable[ParameterEffect], trials: Sequence[Trial], baseline: Trial | None
) -> tuple[ImportanceRow, ...]:
    """Return the effects of settings that varied in the measured ``trials``, the largest effect first.

    Settings that always changed together cannot be separated, so they form one row.
    """
    effect_groups: dict[tuple[int, ...], list[ParameterEffect]] = {}
    for effect in effects:
        trial_values = [trial.effective_settings.get(effect.parameter) for trial in trials]
        effect_groups.setdefault(tuple(map(trial_values.index, trial_values)), []).append(effect)
    rows = [
        _build_importance_row(effect_group, trials, baseline)
        for effect_group in effect_groups.values()
    ]
    relevant_rows = [row for row in rows if row.effect >= MIN_LOG_EFFECT]
    return tuple(sorted(relevant_rows, key=lambda row: -row.effect))


def _build_importance_row(
    effect_group: Sequence[ParameterEffect], trials: Sequence[Trial], baseline: Trial | None
) -> ImportanceRow:
    parameter_names = tuple(effect.parameter for effect in effect_group)
    sds = [effect.sd for effect in effect_group]
    half_width = None if None in sds else SDS_WITHIN_90 * sum(sd for sd in sds if sd is not None)
    baseline_value = baseline.effective_settings.get(parameter_names[0]) if baseline else None
    change_count = sum(
        trial.effective_settings.get(parameter_names[0]) != baseline_value for trial in trials
    )
    return ImportanceRow(
        parameter_names, sum(effect.effect for effect in effect_group), half_width, change_count
    )
