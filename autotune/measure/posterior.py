"""The posterior over log peak, onset shape and noise, given the readings.

Requests of one reading are not independent: a busy period makes many requests late together. Counts are
therefore beta-binomial, with the expected fraction of violations and the correlation between any two
requests of the reading. The correlation is 0 for independent requests, and 1 if either all requests or no
requests are late. With a gradual onset, counts are binomial with a logit-normal fraction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import exp, floor, log
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from autotune.estimate import SDS_WITHIN_90, Estimate
from autotune.measure import logit_normal, onset
from autotune.measure.noise import (
    LOG_RATE_STEP,
    STEAL_EFFECTS,
    TABLE_REACH_STEPS,
    Array,
    Noise,
    average_over_loss,
)

if TYPE_CHECKING:
    from autotune.measure.reading import Reading
    from autotune.target.slo import Slo

# Pseudo-count for the fraction of correct responses in overload, and for servers without a peak.
_OVERLOAD_PRECISION = 3.0
_OUTLIER_SHARE = 0.01  # fraction of readings that fit none of the shapes
# Prior probability of an overload of unknown size, divided by the expected violation fraction.
_ODD_OVERLOAD_WEIGHT = 0.8
_FRACTION_MARGIN = 1e-9  # minimum distance of fractions and correlations from 0 and 1


def compute_shape_likelihood(
    violations: float, intended: float, expected_onset: onset.Onset
) -> Array:
    """Return the likelihood of each shape at each offset from the peak, given the counts."""
    uniform_weight = 1.0 / (intended + 1.0)
    # prior density of the fraction f: 2.5 f**1.5
    failing_weight = 2.5 * uniform_weight * ((violations + 0.5) * uniform_weight) ** 1.5
    overload_weights, beta_table = _build_independent_terms(expected_onset)
    if (gradual_onset := expected_onset.gradual_onset) is None:
        fitted_likelihood = _compute_beta_binomial(violations, intended, beta_table)
    else:
        fitted_likelihood = np.empty_like(overload_weights)
        fitted_likelihood[~gradual_onset.shapes] = _compute_beta_binomial(
            violations, intended, beta_table
        )
        fitted_likelihood[gradual_onset.shapes] = logit_normal.compute_count_likelihood(
            violations, intended, gradual_onset.mean_logit, gradual_onset.logit_sd
        )
    fitted_likelihood = (
        1.0 - overload_weights
    ) * fitted_likelihood + overload_weights * failing_weight
    return np.asarray((1.0 - _OUTLIER_SHARE) * fitted_likelihood + _OUTLIER_SHARE * uniform_weight)


def compute_flat_likelihood(violations: float, intended: float, allowed_share: float) -> Array:
    """Return the likelihood of each of ``onset.FLAT_FRACTIONS``, given the counts."""
    flat_fractions = np.minimum(onset.FLAT_FRACTIONS * allowed_share, 1.0 - 1e-4)
    return _compute_beta_binomial(
        violations,
        intended,
        _build_beta_table(flat_fractions, flat_fractions / (flat_fractions + _OVERLOAD_PRECISION)),
    )


def compute_bound_likelihood(
    violations: float, intended: float, violation_fraction: Array
) -> Array:
    """Return the likelihood of the violation fraction ``violation_fraction``, given counts that are
    only a lower bound.
    """
    counted_fraction = min(max(violations / intended, 1e-9), 1.0 - 0.5 / (intended + 1.0))
    clipped_fraction = np.clip(
        np.where(np.isnan(violation_fraction), 1.0, violation_fraction), 1e-9, 1.0 - 1e-9
    )
    excess_logit = np.log(clipped_fraction / (1.0 - clipped_fraction)) - log(
        counted_fraction / (1.0 - counted_fraction)
    )
    return _OUTLIER_SHARE + (1.0 - _OUTLIER_SHARE) / (
        1.0 + np.exp(-np.clip(2.0 * excess_logit, -60.0, 60.0))
    )


def _compute_exceedance_probability(share: float, expected_onset: onset.Onset) -> Array:
    """Return, for each shape and offset, the probability that more than ``share`` of a reading's
    requests violate the objective.
    """
    from scipy.special import betainc

    fraction = np.clip(expected_onset.violation_fraction, _FRACTION_MARGIN, 1.0 - _FRACTION_MARGIN)
    weight = (
        1.0 / np.clip(expected_onset.correlation, _FRACTION_MARGIN, 1.0 - _FRACTION_MARGIN) - 1.0
    )
    probability_within = betainc(weight * fraction, weight * (1.0 - fraction), share)
    probability_beyond = np.where(np.isnan(probability_within), 0.0, 1.0 - probability_within)
    if (gradual_onset := expected_onset.gradual_onset) is not None:
        probability_beyond[gradual_onset.shapes] = logit_normal.compute_exceedance_probability(
            share, gradual_onset.mean_logit, gradual_onset.logit_sd
        )
    return np.asarray(probability_beyond)


class _BetaTable(NamedTuple):
    """Beta distributions of violation fractions: their parameters, and logarithms of beta functions."""

    violation_parameter: Array
    success_parameter: Array
    log_beta: Array


def _build_beta_table(fraction: Array, correlation: Array) -> _BetaTable:
    from scipy.special import betaln

    fraction = np.clip(fraction, _FRACTION_MARGIN, 1.0 - _FRACTION_MARGIN)
    weight = 1.0 / np.clip(correlation, _FRACTION_MARGIN, 1.0 - _FRACTION_MARGIN) - 1.0
    bad_weight, good_weight = weight * fraction, weight * (1.0 - fraction)
    return _BetaTable(bad_weight, good_weight, betaln(bad_weight, good_weight))


@lru_cache(maxsize=32)  # a search uses few different reading lengths
def _build_independent_terms(expected_onset: onset.Onset) -> tuple[Array, _BetaTable]:
    """Return the terms of the likelihood that do not depend on counts.

    The first term is, for each shape and offset, the weight of an overload of unknown size. The second
    term contains the distributions of the violation fraction for shapes without a gradual onset.
    """
    is_unknown = np.isnan(expected_onset.violation_fraction)
    overload_fractions = np.where(
        is_unknown, 1.0, _ODD_OVERLOAD_WEIGHT * expected_onset.violation_fraction
    )
    fractions = np.where(is_unknown, 0.5, expected_onset.violation_fraction)
    correlations = np.where(is_unknown, 0.5, expected_onset.correlation)
    if expected_onset.gradual_onset is not None:
        fractions, correlations = (
            fractions[~expected_onset.gradual_onset.shapes],
            correlations[~expected_onset.gradual_onset.shapes],
        )
    return overload_fractions, _build_beta_table(fractions, correlations)


def _compute_beta_binomial(violations: float, intended: float, beta: _BetaTable) -> Array:
    """Return the beta-binomial probability of the counts."""
    from scipy.special import betaln, gammaln

    log_combinations = (
        gammaln(intended + 1.0) - gammaln(violations + 1.0) - gammaln(intended - violations + 1)
    )
    log_beta_terms = (
        betaln(
            violations + beta.violation_parameter, intended - violations + beta.success_parameter
        )
        - beta.log_beta
    )
    return np.asarray(np.exp(np.maximum(log_combinations + log_beta_terms, -600.0)))


# Degrees of freedom of the prior, few so that a peak far from the expected peak is plausible
_PRIOR_FREEDOM = 3.0
_FLAT_PRIOR_SHARE = 0.05  # share of the prior that is flat over all rates
_UNMEETABLE_PRIOR = 0.03  # prior probability that no rate at all meets the objective
# Peaks are dropped if their log weight is further below the best log weight. Eight further readings could
# hardly make these peaks probable again.
_NEGLIGIBLE_NATS = 40.0
_EARLY_END_SHARE = 0.5  # share of violations at which a reading stops early
_MIN_CAPACITY_SHARE = 0.05  # minimum share of the capacity that remains despite CPU steal
# lengths of readings are rounded to this log step, so that readings share tables
_LOG_SECONDS_STEP = 0.1


@dataclass(frozen=True)
class ViolationCounts:
    """The violation counts of a reading, either for the SLO's limit on late requests or for its limit
    on errors.

    The reading contains ``violations`` among ``intended`` requests, and the SLO allows the fraction
    ``allowed_share``. ``are_errors`` is true if the counts are for the limit on errors.
    """

    violations: float
    intended: float
    allowed_share: float
    are_errors: bool = False


def select_worst_counts(reading: Reading, slo: Slo) -> ViolationCounts:
    """Return the counts of late requests or of errors, whichever is larger relative to its limit."""
    late_share, error_share = max(slo.allowed_violations, 1e-6), max(slo.errors, 1e-6)
    request_count = max(reading.intended, 1)
    violations = min(max(reading.violations, reading.error_count), request_count)
    if reading.intended <= 0:
        return ViolationCounts(1.0, 1.0, late_share)
    if min(reading.error_count, request_count) / error_share > violations / late_share:
        return ViolationCounts(
            float(min(reading.error_count, request_count)),
            float(request_count),
            error_share,
            are_errors=True,
        )
    return ViolationCounts(float(violations), float(request_count), late_share)


def _compute_truncated_likelihoods(
    violation_counts: ViolationCounts, expected_onset: onset.Onset
) -> tuple[Array, Array]:
    """Return the likelihoods of a truncated reading: first for servers without a peak, then for servers
    with a peak. A truncated reading failed, even if it contains few violations.
    """
    min_violations = min(3.0 * violation_counts.allowed_share, 0.5) * violation_counts.intended
    violations = max(violation_counts.violations, min_violations)
    flat_fractions = np.minimum(onset.FLAT_FRACTIONS * violation_counts.allowed_share, 1.0)
    likelihood = compute_bound_likelihood(
        violations, violation_counts.intended, expected_onset.violation_fraction
    )
    early_end_share = min(violations / violation_counts.intended, _EARLY_END_SHARE)
    return (
        compute_bound_likelihood(violations, violation_counts.intended, flat_fractions),
        np.maximum(likelihood, _compute_exceedance_probability(early_end_share, expected_onset)),
    )


@dataclass(frozen=True)
class PeakPosterior:
    """Log weights ``[effect, sigma, shape, log peak]`` on a grid that starts at ``log_rate_origin``.

    ``unmeetable_weights`` contains the log weights of ``onset.FLAT_FRACTIONS``, which describe servers
    without a peak. ``steal_effects`` contains the log weights of `noise.STEAL_EFFECTS`, the possible
    effects of CPU steal on the capacity. Before a reading with CPU steal, the length of the first axis of
    ``weights`` is 1, because all effects share the same weights. A request is late if it waits longer
    than ``longest_wait`` seconds in a queue.
    """

    log_rate_origin: float
    weights: Array
    unmeetable_weights: Array
    steal_effects: Array
    longest_wait: float

    @classmethod
    def start(
        cls,
        prior: Estimate | None,
        noise: Noise,
        longest_wait: float,
        *,
        lowest_rate: float,
        highest_rate: float,
        expected_rate: float,
    ) -> PeakPosterior:
        """Return the posterior before any reading, for peaks from ``lowest_rate`` to ``highest_rate``.

        ``expected_rate`` is a point of the grid. ``prior`` is the expected peak. The prior has heavy
        tails, so a few more readings suffice for a peak that is several times higher or lower.
        """
        steps_below = floor(log(expected_rate / lowest_rate) / LOG_RATE_STEP)
        log_rate_origin = log(expected_rate) - steps_below * LOG_RATE_STEP
        grid_size = steps_below + floor(log(highest_rate / expected_rate) / LOG_RATE_STEP) + 1
        log_peaks = log_rate_origin + LOG_RATE_STEP * np.arange(grid_size, dtype=np.float64)
        density = np.full(log_peaks.size, 1.0 / log_peaks.size)
        if prior is not None:
            if prior.sd <= 0:
                raise ValueError("the prior needs a positive sd")
            score = (log_peaks - prior.log_mean) / prior.sd
            student_density = (1.0 + score**2 / _PRIOR_FREEDOM) ** (-(_PRIOR_FREEDOM + 1.0) / 2.0)
            density = (
                _FLAT_PRIOR_SHARE * density
                + (1.0 - _FLAT_PRIOR_SHARE) * student_density / student_density.sum()
            )
        shapes = onset.build_prior_shape_weights(log_peaks, longest_wait)
        peak_weights = np.log((1.0 - _UNMEETABLE_PRIOR) * density * noise.build_prior(shapes))[None]
        flat_weights = np.full(
            onset.FLAT_FRACTIONS.size, log(_UNMEETABLE_PRIOR / onset.FLAT_FRACTIONS.size)
        )
        steal_effects = np.log(noise.build_steal_prior())
        return cls(log_rate_origin, peak_weights, flat_weights, steal_effects, longest_wait)

    def with_reading(self, reading: Reading, slo: Slo) -> PeakPosterior:
        """Return the posterior with one more reading. Invalid readings are ignored."""
        if not reading.is_valid:
            return self
        counts = select_worst_counts(reading, slo)
        expected_onset = onset.compute_onset(
            counts.allowed_share,
            self.longest_wait,
            _round_seconds(reading.seconds),
            is_latency=not counts.are_errors,
        )
        if reading.truncated:
            flat_weights, likelihood = _compute_truncated_likelihoods(counts, expected_onset)
        else:
            flat_weights = compute_flat_likelihood(
                counts.violations, counts.intended, counts.allowed_share
            )
            likelihood = compute_shape_likelihood(
                counts.violations, counts.intended, expected_onset
            )
        flat_weights = self.unmeetable_weights + np.log(flat_weights)
        peak_weights = self._apply_steal_losses(
            average_over_loss(likelihood), log(reading.rate) - self.log_rate_origin, reading.stolen
        )
        best_weights = peak_weights.max(axis=(0, 1, 2))
        max_log_weight = max(float(best_weights.max()), float(flat_weights.max()))
        likely_rows = np.flatnonzero(best_weights > max_log_weight - _NEGLIGIBLE_NATS)
        first_row, end_row = (
            (int(likely_rows[0]), int(likely_rows[-1]) + 1)
            if likely_rows.size
            else (0, best_weights.size)
        )
        log_rate_origin = self.log_rate_origin + LOG_RATE_STEP * first_row
        return replace(
            self,
            log_rate_origin=log_rate_origin,
            weights=peak_weights[..., first_row:end_row] - max_log_weight,
            unmeetable_weights=flat_weights - max_log_weight,
        )

    def _apply_steal_losses(
        self, likelihood_table: Array, log_rate: float, stolen_share: float
    ) -> Array:
        """Return ``likelihood_table`` updated by the steal during a reading at ``log_rate`` (a log
        rate relative to ``log_rate_origin``).

        ``stolen_share`` is the fraction of CPU steal during the reading. Each possible effect of the
        steal corresponds to a different loss of capacity.
        """
        losses = [
            -log(max(1.0 - effect * stolen_share, _MIN_CAPACITY_SHARE)) for effect in STEAL_EFFECTS
        ]
        offsets = [round(log_rate / LOG_RATE_STEP) + round(loss / LOG_RATE_STEP) for loss in losses]
        peak_weights = self.weights
        likelihood_table = _compute_log_columns(likelihood_table, peak_weights.shape[3], offsets)
        if len(peak_weights) == 1 and len(set(offsets)) == 1:
            return _add_columns(peak_weights[0], likelihood_table, offsets[0])[None]
        if len(peak_weights) == 1:
            peak_weights = peak_weights + self.steal_effects[:, None, None, None]
        added_columns = [
            _add_columns(effect_weights, likelihood_table, offset)
            for effect_weights, offset in zip(peak_weights, offsets, strict=True)
        ]
        return np.asarray(added_columns)

    def summarize(self) -> PosteriorSummary:
        """Return the marginal distributions of the posterior."""
        weights = np.exp(self.weights)
        flat_weight = float(np.exp(self.unmeetable_weights).sum())
        total_weight = float(weights.sum())
        return PosteriorSummary(
            self.log_rate_origin,
            np.cumsum(weights.sum(axis=(0, 1, 2))) / total_weight,
            weights.sum(axis=(0, 3)) / total_weight,
            flat_weight / (flat_weight + total_weight),
            weights.sum(axis=(1, 2, 3)) / total_weight if len(weights) > 1 else None,
        )


@dataclass(frozen=True)
class PosteriorSummary:
    """The marginal distributions of a posterior.

    - ``cumulative_probability``: distribution function of the log peak on its grid.
    - ``noise_weights``: weights ``[sigma, shape]``.
    - ``unmeetable_probability``: probability of a server without a peak. The distributions assume that
      the server has a peak.
    - ``steal_effects``: weights of `noise.STEAL_EFFECTS`, if there was CPU steal.
    """

    log_rate_origin: float
    cumulative_probability: Array
    noise_weights: Array
    unmeetable_probability: float
    steal_effects: Array | None = None

    def quantile(self, q: float) -> float:
        """Return the log rate below which the peak lies with probability ``q``."""
        rate_index = int(np.searchsorted(self.cumulative_probability, q))
        if rate_index == 0:
            return self.log_rate_origin
        low, probability_at_rate = (
            float(self.cumulative_probability[rate_index - 1]),
            float(self.cumulative_probability[rate_index]),
        )
        return self.log_rate_origin + LOG_RATE_STEP * (
            rate_index - 0.5 + (q - low) / max(probability_at_rate - low, 1e-12)
        )

    def find_variance_split(self) -> float:
        """Return the log rate that splits the distribution of the log peak into two parts whose means
        explain most of its variance. A reading at this rate would reduce the variance most, if it
        showed without error on which side the peak lies.

        The criterion is from Otsu, "A threshold selection method from gray-level histograms", IEEE
        Transactions on Systems, Man, and Cybernetics 9 (1979).
        """
        density = np.diff(self.cumulative_probability, prepend=0.0)
        partial_means = np.cumsum(density * np.arange(density.size))
        probabilities = np.clip(self.cumulative_probability, 1e-12, 1.0 - 1e-12)
        explained_variances = (partial_means[-1] * probabilities - partial_means) ** 2 / (
            probabilities * (1.0 - probabilities)
        )
        best_index = int(np.argmax(explained_variances))
        return self.log_rate_origin + LOG_RATE_STEP * (best_index + 0.5)

    def probability_above(self, rate: Estimate) -> float:
        """Return the probability that the peak exceeds ``rate``."""
        density = np.diff(self.cumulative_probability, prepend=0.0)
        log_gaps = (
            self.log_rate_origin
            + LOG_RATE_STEP * np.arange(self.cumulative_probability.size)
            - rate.log_mean
        )
        exceedance_weights = 1.0 / (
            1.0 + np.exp(-np.clip(1.702 * log_gaps / max(rate.sd, LOG_RATE_STEP / 2), -60.0, 60.0))
        )
        return float(np.dot(density, exceedance_weights))

    @property
    def sd(self) -> float:
        """Return the standard deviation of the log peak, computed from its 90 % interval."""
        return (self.quantile(0.95) - self.quantile(0.05)) / (2 * SDS_WITHIN_90)


def _round_seconds(seconds: float) -> float:
    """Return the length of a reading, rounded so that readings share tables."""
    return exp(round(log(max(seconds, 0.05)) / _LOG_SECONDS_STEP) * _LOG_SECONDS_STEP)


def _compute_log_columns(likelihood_table: Array, peak_count: int, offsets: Sequence[int]) -> Array:
    """Return the logarithm of the few columns of ``likelihood_table`` that ``_add_columns`` uses for
    ``peak_count`` peaks. All other columns of the result are undefined.
    """
    logarithms = np.empty_like(likelihood_table)
    first_column, last_column = (
        min(offsets) + TABLE_REACH_STEPS - peak_count + 1,
        max(offsets) + TABLE_REACH_STEPS + 1,
    )
    for columns in (slice(1), slice(max(first_column, 0), max(last_column, 0)), slice(-1, None)):
        logarithms[..., columns] = np.log(np.maximum(likelihood_table[..., columns], 1e-300))
    return logarithms


def _add_columns(weights: Array, log_likelihoods: Array, offset: int) -> Array:
    """Return ``weights`` plus, for each grid point, the column of ``log_likelihoods`` for the point's
    distance from a reading.

    The reading is ``offset`` steps above the first grid point. Beyond the table, its first or last column
    is used.
    """
    # The first grid point uses this column of the table. Each further grid point uses the preceding
    # column.
    peak_count, first_column = weights.shape[2], offset + TABLE_REACH_STEPS
    reach_start = min(max(first_column - 2 * TABLE_REACH_STEPS, 0), peak_count)
    reach_end = max(min(first_column + 1, peak_count), reach_start)
    summed_columns = np.empty_like(weights)
    np.add(
        weights[:, :, :reach_start],
        log_likelihoods[:, :, -1:],
        out=summed_columns[:, :, :reach_start],
    )
    reversed_columns = log_likelihoods[
        :, :, max(first_column - reach_end + 1, 0) : max(first_column - reach_start + 1, 0)
    ][:, :, ::-1]
    np.add(
        weights[:, :, reach_start:reach_end],
        reversed_columns,
        out=summed_columns[:, :, reach_start:reach_end],
    )
    np.add(
        weights[:, :, reach_end:], log_likelihoods[:, :, :1], out=summed_columns[:, :, reach_end:]
    )
    return summed_columns
