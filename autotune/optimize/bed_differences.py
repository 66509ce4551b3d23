"""Differences between test beds: the offset and the noise of each bed, estimated from configurations
measured on several beds.

A log peak is the sum of the configuration's level, the bed's offset, and noise:

    y = f_c + o_b + e,    o_b ~ N(0, τ²),    e ~ N(0, sd² + s_b²)

The levels of configurations have no prior. The spread τ of the offsets is learned first: each value in
``OFFSET_SDS`` gets a weight according to how well it explains the readings. Noise between similar beds
is therefore not mistaken for an offset. Only configurations with at least two measurements are used,
such as the baseline, the reference and finalists. The noise s_b of a bed is learned from its own
residuals. The prior of s_b is ``MEASUREMENT_LOG_SD``, with the weight of ``PRIOR_WEIGHT`` readings.
Offsets and their sds are relative to the mean of all beds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import log, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.estimate import MEASUREMENT_LOG_SD, Estimate
from autotune.optimize.bed_offset import BedOffset

Array = npt.NDArray[np.float64]

OFFSET_SDS = (0.03, 0.1, 0.3, 1.0)  # possible sds of the offsets, all equally likely a priori
PRIOR_WEIGHT = 2.0
ESTIMATION_PASSES = 3  # each pass estimates offsets, then noise


@dataclass(frozen=True)
class BedReading:
    """The peak of a configuration on one bed; the trial's number identifies the configuration."""

    configuration: int
    bed: str
    peak: Estimate


def estimate_offsets(readings: Sequence[BedReading], beds: Sequence[str]) -> dict[str, BedOffset]:
    """Return the offset of each of ``beds``; an empty mapping if no configuration was measured twice."""
    reading_counts = Counter(reading.configuration for reading in readings)
    repeated_readings = [
        reading for reading in readings if reading_counts[reading.configuration] > 1
    ]
    if not repeated_readings or not beds:
        return {}
    design_matrix, log_peaks = _build_design_matrix(repeated_readings, beds)
    bed_indices = np.array([beds.index(reading.bed) for reading in repeated_readings])
    reading_variances = np.array([reading.peak.sd**2 for reading in repeated_readings])
    noise_variances = np.full(len(beds), MEASUREMENT_LOG_SD**2)
    offset_sd = _estimate_offset_sd(
        design_matrix, log_peaks, reading_variances + noise_variances[bed_indices], len(beds)
    )
    for _ in range(ESTIMATION_PASSES):
        mean_offsets, covariance, residuals, degrees_of_freedom = _solve_offsets(
            design_matrix,
            log_peaks,
            reading_variances + noise_variances[bed_indices],
            len(beds),
            offset_sd,
        )
        noise_variances = _estimate_noise_variances(
            residuals, degrees_of_freedom, reading_variances, bed_indices, len(beds)
        )
    reading_count_by_bed = Counter(bed_indices.tolist())
    centring_matrix = np.eye(len(beds)) - 1.0 / len(beds)
    means, sds = (
        centring_matrix @ mean_offsets,
        np.sqrt((centring_matrix @ covariance @ centring_matrix.T).diagonal()),
    )
    return {
        bed: BedOffset(
            float(means[i]), float(sds[i]), float(sqrt(noise_variances[i])), reading_count_by_bed[i]
        )
        for i, bed in enumerate(beds)
    }


def _build_design_matrix(
    readings: Sequence[BedReading], beds: Sequence[str]
) -> tuple[Array, Array]:
    """Return the design matrix (bed and configuration of each reading) and the centred log peaks."""
    configurations = sorted({reading.configuration for reading in readings})
    design_matrix = np.zeros((len(readings), len(beds) + len(configurations)))
    for row, reading in enumerate(readings):
        design_matrix[row, beds.index(reading.bed)] = 1.0
        design_matrix[row, len(beds) + configurations.index(reading.configuration)] = 1.0
    log_peaks = np.array([reading.peak.log_mean for reading in readings])
    return design_matrix, log_peaks - log_peaks.mean()


def _estimate_offset_sd(
    design_matrix: Array, log_peaks: Array, log_peak_variances: Array, bed_count: int
) -> float:
    """Return the sd of the offsets: the root mean square of ``OFFSET_SDS``, each weighted by how well
    it explains the readings.
    """
    weighted_design = design_matrix / log_peak_variances[:, None]
    log_evidences = []
    for offset_sd in OFFSET_SDS:
        precision = design_matrix.T @ weighted_design + np.diag(
            _build_prior_precisions(design_matrix, bed_count, offset_sd)
        )
        explained_sum = (
            log_peaks @ weighted_design @ np.linalg.solve(precision, weighted_design.T @ log_peaks)
        )
        log_determinant = np.linalg.slogdet(precision)[1] + 2 * bed_count * log(offset_sd)
        log_evidences.append(0.5 * (explained_sum - log_determinant))
    weights = np.exp(np.array(log_evidences) - max(log_evidences))
    return float(sqrt(weights @ np.square(OFFSET_SDS) / weights.sum()))


def _build_prior_precisions(design_matrix: Array, bed_count: int, offset_sd: float) -> Array:
    """Return the prior precision of each offset and each configuration's level."""
    precisions = np.full(design_matrix.shape[1], 1e-6)
    precisions[:bed_count] = offset_sd**-2
    return precisions


def _solve_offsets(
    design_matrix: Array,
    log_peaks: Array,
    log_peak_variances: Array,
    bed_count: int,
    offset_sd: float,
) -> tuple[Array, npt.NDArray[Any], Array, Array]:
    """Return four results: the mean and the covariance of the offsets, the residuals, and their degrees
    of freedom.
    """
    weighted_design = design_matrix / log_peak_variances[:, None]
    covariance = np.linalg.inv(
        design_matrix.T @ weighted_design
        + np.diag(_build_prior_precisions(design_matrix, bed_count, offset_sd))
    )
    mean_offsets = covariance @ (weighted_design.T @ log_peaks)
    leverage = (design_matrix @ covariance * weighted_design).sum(axis=1)
    return (
        mean_offsets[:bed_count],
        covariance[:bed_count, :bed_count],
        log_peaks - design_matrix @ mean_offsets,
        np.asarray(1.0 - leverage),
    )


def _estimate_noise_variances(
    residuals: Array,
    degrees_of_freedom: Array,
    reading_variances: Array,
    bed_indices: Array,
    bed_count: int,
) -> Array:
    """Return the noise variance of each bed: the variance that the sds of its readings do not
    explain.
    """
    surplus_variance = residuals**2 - reading_variances * degrees_of_freedom
    sums_by_bed = np.bincount(bed_indices, weights=surplus_variance, minlength=bed_count)
    weights = np.bincount(bed_indices, weights=degrees_of_freedom, minlength=bed_count)
    return np.asarray(
        np.maximum(
            (PRIOR_WEIGHT * MEASUREMENT_LOG_SD**2 + sums_by_bed) / (PRIOR_WEIGHT + weights),
            (MEASUREMENT_LOG_SD / 4) ** 2,
        )
    )
