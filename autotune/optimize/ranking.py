"""Ranking of configurations: pooled measurements, and the estimates of the model.

The best peak of a search is about 10 % too high. Therefore, the leaders are measured again, and the
winner is chosen from all measurements. The best preset wins unless another configuration is probably
better. Luck decides a near tie, but presets were not selected by luck.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from autotune.estimate import MEASUREMENT_LOG_SD, MIN_LOG_SD, Estimate
from autotune.services.base import Settings, Value
from autotune.space.dimension import Dimension
from autotune.space.space import SearchSpace

# another configuration replaces the best preset if it is better with at least this probability
REPLACE_PRESET_PROBABILITY = 0.8
DECIDED_PROBABILITY = 0.95  # two configurations need no further comparison at this probability


def pool_peaks(
    first_peaks: Mapping[int, Estimate], repeats: Mapping[int, Sequence[Estimate]]
) -> dict[int, Estimate]:
    """Return the pooled peaks of the trials with ``repeats``, the highest peak first.

    Without repeats, the result contains all trials.
    """
    estimates = {
        trial: Estimate.pool([estimate, *repeats.get(trial, ())])
        for trial, estimate in first_peaks.items()
        if not repeats or trial in repeats
    }
    return dict(sorted(estimates.items(), key=lambda item: -item[1].log_mean))


def find_winner(
    first_peaks: Mapping[int, Estimate],
    repeats: Mapping[int, Sequence[Estimate]],
    preset_trials: Container[int] = (),
) -> int | None:
    """Return the trial with the highest pooled peak, or the best of ``preset_trials``.

    The trial with the highest peak wins if its probability of beating the best preset is at least
    `REPLACE_PRESET_PROBABILITY`.
    """
    estimates = pool_peaks(first_peaks, repeats)
    leader = next(iter(estimates), None)
    preset_trial = next((trial for trial in estimates if trial in preset_trials), None)
    if leader is None or preset_trial is None:
        return leader
    return (
        leader
        if compute_win_probability(estimates[leader], estimates[preset_trial])
        >= REPLACE_PRESET_PROBABILITY
        else preset_trial
    )


def find_rivals(
    estimates: Mapping[int, Estimate], preset_trials: Container[int]
) -> tuple[int, int] | None:
    """Return the trial that leads ``estimates`` (sorted, the best first), and the trial that the leader
    must beat.

    The trial to beat is the best of ``preset_trials``, or else the second best trial. Return ``None``
    if a preset leads, because a preset needs no proof to win.
    """
    leader, *other_trials = estimates or (None,)
    if leader is None or not other_trials or leader in preset_trials:
        return None
    return leader, next(
        (trial for trial in other_trials if trial in preset_trials), other_trials[0]
    )


def is_undecided(first_peak: Estimate, second_peak: Estimate) -> bool:
    """True if measurements do not show clearly whether ``first_peak`` or ``second_peak`` is better."""
    return (
        1 - DECIDED_PROBABILITY
        < compute_win_probability(first_peak, second_peak)
        < DECIDED_PROBABILITY
    )


def compute_win_probability(challenger: Estimate, preset: Estimate) -> float:
    """Return the probability that the challenger sustains a higher rate than the preset."""
    lead_ratio = challenger.ratio_to(preset)
    return NormalDist().cdf(lead_ratio.log_mean / max(lead_ratio.sd, MIN_LOG_SD))


@dataclass(frozen=True)
class PosteriorPeaks:
    """The model's peak estimates: ``peaks`` maps a trial's number in the study to its peak in
    requests/s.

    Peaks are corrected for drift. ``noise`` is the sd of one additional log peak.
    """

    peaks: Mapping[int, Estimate]
    noise: float

    @property
    def reading_noise(self) -> float:
        """Return ``noise`` for comparisons, but at least the usual ``MEASUREMENT_LOG_SD``.

        With many parameters and few trials, a model may find no noise at all. A single lucky reading
        would then decide the choice.
        """
        return max(self.noise, MEASUREMENT_LOG_SD)


MAX_TRANSFERRED = 3
# A configuration is transferred only if at least this fraction of its changed parameters exists in the
# new space. With fewer changes, the result would be a different configuration.
MIN_SHARED_CHANGES = 0.5


def transfer_settings(
    ranked_configurations: Sequence[Settings],
    baseline: Settings,
    space: SearchSpace,
    max_settings: int = MAX_TRANSFERRED,
) -> tuple[dict[str, Value], ...]:
    """Return values for this space from the configurations of another study, the best configuration
    first.

    ``baseline`` is the other study's baseline. Only the changes from this baseline are copied, clipped
    to the bounds of this space. Configurations that become equal are returned once.
    """
    configurations: list[dict[str, Value]] = []
    dimensions = {d.name: d for d in space.tunable_dimensions}
    for settings in ranked_configurations:
        changed_settings = {n: v for n, v in settings.items() if v != baseline.get(n)}
        applicable_values = {
            n: dimensions[n].clip(v)
            for n, v in changed_settings.items()
            if n in dimensions and _has_usable_type(dimensions[n], v)
        }
        new_values = {n: v for n, v in applicable_values.items() if v != dimensions[n].baseline}
        if (
            len(applicable_values) >= MIN_SHARED_CHANGES * len(changed_settings)
            and new_values
            and new_values not in configurations
        ):
            configurations.append(new_values)
    return tuple(configurations[:max_settings])


def _has_usable_type(dimension: Dimension, value: Value) -> bool:
    """True if ``value`` is a number, or if the dimension has choices."""
    return bool(dimension.choices) or not isinstance(value, str | bool)
