"""The drift of a stack during a study, from repeated measurements of one reference configuration.

The log peaks of the reference are the sum of a level, a smooth drift and noise. The drift is modelled
as a Gaussian process over the trial numbers. The strength of the drift is unknown. Every sd in
``DRIFT_SDS``, including zero, gets a weight according to how well it explains the readings. Noise is
therefore not mistaken for drift.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log, sqrt

import numpy as np
import numpy.typing as npt

from autotune.estimate import MEASUREMENT_LOG_SD, SDS_WITHIN_90, Estimate

Array = npt.NDArray[np.float64]

DRIFT_SDS = (0.0, 0.06, 0.12, 0.25, 0.5)  # possible sds of the log drift over a study
NO_DRIFT_WEIGHT = 0.3  # prior weight of the case without drift
MIN_REFERENCES = 3  # minimum number of measurements of the reference to estimate drift
_LEVEL_VARIANCE = 4.0  # prior variance of the reference's unknown log peak


@dataclass(frozen=True)
class StudyDrift:
    """The drift of a study: ``total_change`` from the first to the last trial, and the ``probability``
    of any drift.

    ``shifts`` maps each trial number to the factor by which the trial's peak was too high, relative to
    the last trial. The sds of these shifts exclude the error that all trials share, because a shared
    error does not change the order of trials. ``bed_sds`` contains the sd of the error that all shifts
    of a test bed share, if there are several beds.
    """

    shifts: dict[int, Estimate]
    probability: float
    total_change: Estimate
    bed_sds: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_significant(self) -> bool:
        """True if the probability of a drift is above 95 %."""
        return self.probability > 0.95

    def __str__(self) -> str:
        change, half_width = (
            100 * (self.total_change.value - 1),
            100 * SDS_WITHIN_90 * self.total_change.sd,
        )
        return f"the reference changed by {change:+.0f} % ± {half_width:.0f} % during the study"


EMPTY_DRIFT = StudyDrift({}, 0.0, Estimate(0.0, 0.0))


def estimate_drift(
    reference_peaks: Mapping[int, Estimate],
    trial_numbers: Sequence[int],
    noise: float = MEASUREMENT_LOG_SD,
) -> StudyDrift:
    """Return the drift of a study, with the shift of each of ``trial_numbers`` relative to the last
    trial.

    ``reference_peaks`` maps trial numbers to measured peaks of the reference configuration.
    """
    if len(reference_peaks) < MIN_REFERENCES or not trial_numbers:
        return EMPTY_DRIFT
    reference_positions = np.array([float(number) for number in reference_peaks])
    log_means = np.array([estimate.log_mean for estimate in reference_peaks.values()])
    variances = np.array([estimate.sd**2 + noise**2 for estimate in reference_peaks.values()])
    first_position, last_position = float(reference_positions.min()), float(max(trial_numbers))
    # Before the first reading, drift is assumed constant, because a later trend is not evidence about
    # earlier times.
    trial_positions = [max(float(trial_number), first_position) for trial_number in trial_numbers]
    queries = np.array([*trial_positions, *reference_positions, first_position, last_position])
    span = max(float(queries.max() - queries.min()), 1.0)
    reference_weights = np.zeros(len(queries))
    reference_weights[len(trial_numbers) : -2] = 1.0 / len(reference_positions)
    log_evidences, drift_means, squared_shifts, squared_changes = [], [], [], []
    for drift_sd in DRIFT_SDS:
        prior = NO_DRIFT_WEIGHT if drift_sd == 0.0 else (1 - NO_DRIFT_WEIGHT) / (len(DRIFT_SDS) - 1)
        log_likelihood, mean, covariance = _compute_drift_posterior(
            drift_sd, reference_positions / span, log_means, variances, queries / span
        )
        log_evidences.append(log(prior) + log_likelihood)
        drift_means.append(mean)
        squared_shifts.append(_compute_squared_shifts(mean, covariance, reference_weights))
        change_variance = covariance[-1, -1] - 2 * covariance[-1, -2] + covariance[-2, -2]
        squared_changes.append(change_variance + (mean[-1] - mean[-2]) ** 2)
    weights = np.exp(np.array(log_evidences) - max(log_evidences))
    weights /= weights.sum()
    mean = weights @ np.array(drift_means)
    shift_variances = weights @ np.array(squared_shifts) - (mean - reference_weights @ mean) ** 2
    shift_sds = np.sqrt(np.maximum(shift_variances, 0.0))
    shifts = {
        trial_number: Estimate(float(mean[i] - mean[-1]), float(shift_sds[i]))
        for i, trial_number in enumerate(trial_numbers)
    }
    log_change = float(mean[-1] - mean[-2])
    change_sd = sqrt(max(float(weights @ np.array(squared_changes)) - log_change**2, 0.0))
    return StudyDrift(shifts, 1.0 - float(weights[0]), Estimate(log_change, change_sd))


def _compute_squared_shifts(mean: Array, covariance: Array, reference_weights: Array) -> Array:
    """Return the expected square of the drift at each position, relative to the mean drift over the
    measurements of the reference.
    """
    shared_covariance = covariance @ reference_weights
    variance = np.maximum(
        covariance.diagonal() - 2 * shared_covariance + reference_weights @ shared_covariance,
        0.0,
    )
    return np.asarray(variance + (mean - reference_weights @ mean) ** 2)


def _compute_drift_posterior(
    drift_sd: float, positions: Array, log_means: Array, variances: Array, query_positions: Array
) -> tuple[float, Array, Array]:
    """Return the log evidence for this strength of drift, and the mean and covariance of the drift at
    ``query_positions``.
    """
    total_covariance = (
        _LEVEL_VARIANCE
        + _compute_drift_covariance(drift_sd, positions, positions)
        + np.diag(variances)
    )
    centred_means = log_means - log_means.mean()
    inverse_covariance = np.linalg.inv(total_covariance)
    solved_means = inverse_covariance @ centred_means
    log_likelihood = -0.5 * float(centred_means @ solved_means) - 0.5 * float(
        np.linalg.slogdet(total_covariance)[1]
    )
    cross_covariance = _compute_drift_covariance(drift_sd, query_positions, positions)
    query_covariance = _compute_drift_covariance(drift_sd, query_positions, query_positions)
    return (
        log_likelihood,
        cross_covariance @ solved_means,
        query_covariance - cross_covariance @ inverse_covariance @ cross_covariance.T,
    )


def _compute_drift_covariance(
    drift_sd: float, row_positions: Array, column_positions: Array
) -> Array:
    """Return the prior covariance of the drift: the sum of a linear trend and a smooth function.

    The trend and the smooth function have the same variance. The length scale of the smooth function is
    a third of the study.
    """
    distances = row_positions[:, None] - column_positions[None, :]
    smooth_covariance = np.exp(-0.5 * (distances / 0.35) ** 2)
    linear_covariance = np.outer(row_positions, column_positions) * 3.0
    return np.asarray(0.5 * drift_sd**2 * (linear_covariance + smooth_covariance))
