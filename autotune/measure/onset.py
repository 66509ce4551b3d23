"""The rise of the violation fraction with load: the family of curves (shapes) that servers may follow.

Near saturation, the wait in a queue is close to a reflected Brownian motion with drift ``u - 1`` at
utilisation ``u``. The distributions of arrivals and service times do not matter (Kingman 1962; Harrison
1985, §1.8). The probability that the wait exceeds a limit has a closed form. The limit is the latency
limit, less a request's service time. The formula also holds for the first seconds after the queue was
empty, and for overload, in which a backlog grows. Only the steepness of the fraction's rise at the peak
is unknown. The steepness determines the length of the bursts of violations.

On some servers, violations do not come in bursts, and readings show the long-run fraction immediately.
Some servers have a minimum fraction of violations at any load, because service times have a long tail.
Some servers do not queue in overload but fail immediately. The readings show which kind a server is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import exp, inf, log
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from autotune.measure import logit_normal
from autotune.measure.noise import LOG_RATE_STEP, TABLE_REACH_STEPS, Array

LOG_RATE_OFFSETS: Final[Array] = (
    np.arange(-TABLE_REACH_STEPS, TABLE_REACH_STEPS + 1, dtype=np.float64) * LOG_RATE_STEP
)
"""Logarithms of rates relative to the peak. The shapes are tabulated for these rates."""


@dataclass(frozen=True)
class OnsetShape:
    """One possible shape of the rise of violations with load.

    - ``slope``: d log fraction / d log rate at the peak.
    - ``floor_share``: share of the allowed violation fraction that occurs at any load.
    - ``lead_seconds``: seconds of load before a reading (its warm-up). If ``None``, the server builds
      up no backlog in overload, but fails most requests.
    - ``is_bursty``: violations come in the busy periods of a queue, which take time to appear. Without
      bursts, a reading shows the long-run fraction immediately.
    - ``precision``: without bursts, 1 / variance of the log fraction beyond the counting noise.

    With bursts, ``floor_share`` is the share of requests that are late only because of long service
    times. A request that waited almost as long as the limit may be late because of its service time, so
    violations rise gradually. Shapes with bursts and without a floor are for service times that are short
    compared with the limit.
    """

    slope: float
    floor_share: float = 0.0
    lead_seconds: float | None = 1.5
    precision: float = 9.0
    is_bursty: bool = False


ONSET_SHAPES: Final = (
    OnsetShape(2.5, precision=80.0),
    OnsetShape(5.0, precision=60.0),
    OnsetShape(9.0, precision=36.0),
    OnsetShape(16.0, precision=24.0),
    OnsetShape(28.0, precision=15.0),
    OnsetShape(45.0),
    OnsetShape(70.0),
    OnsetShape(110.0),
    OnsetShape(180.0),
    OnsetShape(500.0, lead_seconds=0.0),
    OnsetShape(500.0),
    OnsetShape(16.0, floor_share=0.1, precision=24.0),
    OnsetShape(70.0, floor_share=0.1),
    OnsetShape(10.0, floor_share=0.4, precision=60.0),
    OnsetShape(40.0, floor_share=0.4, precision=60.0),
    OnsetShape(4.0, floor_share=0.75, precision=120.0),
    OnsetShape(7.0, floor_share=0.75, precision=120.0),
    OnsetShape(12.0, floor_share=0.75, precision=120.0),
    OnsetShape(75.0, floor_share=0.75, precision=120.0),
    OnsetShape(60.0, lead_seconds=None),
    OnsetShape(250.0, lead_seconds=None),
    *(
        OnsetShape(slope, floor, lead_seconds=1.0, is_bursty=True)
        for floor in (0.0, 0.005)
        for slope in (2.5, 5.0, 8.0, 12.5, 20.0, 30.0, 45.0, 70.0, 110.0, 180.0, 300.0)
    ),
)
FLAT_FRACTIONS: Final[Array] = np.array([1.3, 2.0, 4.0, 10.0, 30.0, 100.0])
"""Violation fractions of servers that meet the objective at no load, as multiples of the allowed
fraction.
"""

# Prior weights of shapes, relative to a queue with long service times and the same slope. The weights
# are for a queue with short service times, and for a server without a queue, without and with a floor.
_SHORT_SERVICE_WEIGHT, _UNQUEUED_WEIGHT, _UNQUEUED_FLOOR_WEIGHT = 0.1, 0.3, 0.1


def _get_prior_weight(onset_shape: OnsetShape) -> float:
    if onset_shape.is_bursty:
        return 1.0 if onset_shape.floor_share else _SHORT_SERVICE_WEIGHT
    return _UNQUEUED_FLOOR_WEIGHT if onset_shape.floor_share else _UNQUEUED_WEIGHT


_PRIOR_WEIGHTS: Final[Array] = np.array([_get_prior_weight(shape) for shape in ONSET_SHAPES])
# Expected slope, relative to the slope for Poisson arrivals and exponential service times.
_SLOPE_RATIO = 0.9
# The expected slope is divided by 1 + _FLOOR_SLOPE_EFFECT * floor. A latency floor means that service
# times have a larger variance, which makes the rise of violations less steep.
_FLOOR_SLOPE_EFFECT = 2.0
_LOG_SLOPE_SD = 0.45  # sd of the log slope around the expected log slope
_MIN_SHAPE_WEIGHT = 0.1  # minimum weight of a shape, however unlikely its slope
_MIN_SLOPE, _MAX_SLOPE = 2.5, 450.0  # beyond these slopes, shapes hardly differ
_OVERLOAD_PRECISION = 3.0  # pseudo-count for the fraction of correct responses in overload
# Effective number of independent periods of a queue in a reading: _SATURATED_RENEWALS at saturation.
# Each relaxation time adds _UNDERLOAD_RENEWALS below saturation, or _OVERLOAD_RENEWALS above saturation.
# The numbers were fitted to queues with 1 to 8 servers, simulated request by request. Rates were 0.7 to
# 1.6 times the peak, and latency limits were 50 to 200 ms.
_SATURATED_RENEWALS, _UNDERLOAD_RENEWALS, _OVERLOAD_RENEWALS = 0.8, 0.5, 0.2
# Gradual onset: _GRADUAL_LOGIT_SD is the sd of the logit of a reading's violation fraction. The value
# is for a reading that lasts 60 latency limits and in which waits decay at a rate of 30 per limit. The sd
# falls with the length of the reading (exponent _GRADUAL_LENGTH_EFFECT), grows with the decay (exponent
# _GRADUAL_DECAY_EFFECT), and falls exponentially with the spare utilisation. All constants were fitted by
# maximum likelihood to queues with 1 to 8 servers, simulated request by request. Service times were a
# tenth of the limit, and rates were 0.9 to 1.1 times the peak.
_GRADUAL_LOGIT_SD, _GRADUAL_LENGTH_EFFECT, _GRADUAL_DECAY_EFFECT, _GRADUAL_SPARE_EFFECT = (
    2.0,
    0.34,
    0.14,
    0.03,
)
_SERVICE_TIME_POINTS = 5  # number of quadrature points for the distribution of service times
_BURST_LOG_VARIANCE = 5.0  # variance of the log fraction in readings with few busy periods
_EMPTY_SPREAD: Final[Array] = np.full(LOG_RATE_OFFSETS.size, np.nan)
# Beyond this exponent, or this many sds, a probability counts as 0 or 1.
_MAX_EXPONENT, _MAX_SDS = 36.0, 8.5
_TIME_POINTS = 16  # number of points in time over which a reading's fraction is averaged


def build_prior_shape_weights(log_peaks: Array, longest_wait: float) -> Array:
    """Return the weights of shapes before any reading, ``[shape, log peak]``. Each column sums to 1.

    The tail of the wait decays with spare utilisation at ``2 * capacity * limit / (ca2 + cs2)``.
    ``ca2`` and ``cs2`` are the squared coefficients of variation of arrivals and services (Kingman
    1962). The slope at the peak is this decay times the utilisation at the peak. Capacity times
    utilisation is the rate, so the onset is steeper if more requests arrive within ``longest_wait``.
    """
    slopes = np.array([shape.slope / (1.0 - shape.floor_share) for shape in ONSET_SHAPES])
    slope_factors = np.array(
        [_SLOPE_RATIO / (1.0 + _FLOOR_SLOPE_EFFECT * shape.floor_share) for shape in ONSET_SHAPES]
    )
    expected_slopes = np.clip(
        longest_wait * slope_factors[:, None] * np.exp(log_peaks)[None, :], _MIN_SLOPE, _MAX_SLOPE
    )
    z_scores = (np.log(slopes)[:, None] - np.log(expected_slopes)) / _LOG_SLOPE_SD
    shape_weights = _PRIOR_WEIGHTS[:, None] * (np.exp(-0.5 * z_scores**2) + _MIN_SHAPE_WEIGHT)
    return np.asarray(shape_weights / shape_weights.sum(axis=0))


@dataclass(frozen=True, eq=False)  # compared by identity, as a cache key
class Onset:
    """The expected outcome of readings of one length, as tables ``[shape, offset]``.

    ``violation_fraction`` is the expected fraction of violations, or NaN in an abrupt overload of unknown
    extent. ``correlation`` is the correlation between any two requests of a reading, or NaN for the
    shapes in ``gradual_onset``.
    """

    violation_fraction: Array
    correlation: Array
    gradual_onset: GradualOnset | None = None


@dataclass(frozen=True)
class GradualOnset:
    """A gradual onset of violations: the logit of a reading's violation fraction is normal, with mean
    ``mean_logit`` and sd ``logit_sd``.

    ``mean_logit`` and ``logit_sd`` are tables ``[shape, offset]`` for the shapes that the mask ``shapes``
    selects.
    """

    shapes: NDArray[np.bool_]
    mean_logit: Array
    logit_sd: Array


@lru_cache(maxsize=64)
def compute_onset(
    allowed_share: float, longest_wait: float, seconds: float, *, is_latency: bool = True
) -> Onset:
    """Return the expected outcome of readings that last ``seconds``. Requests are late if they wait
    longer than ``longest_wait`` seconds.

    ``is_latency`` is false if violations are errors, which are assumed not to come in bursts.
    """
    shapes = (
        ONSET_SHAPES if is_latency else [replace(shape, is_bursty=False) for shape in ONSET_SHAPES]
    )
    rows = [_compute_row(shape, allowed_share, longest_wait, seconds) for shape in shapes]
    fraction, correlation, logit_sd = (np.asarray(table) for table in zip(*rows, strict=True))
    is_gradual = ~np.isnan(logit_sd[:, 0])
    if not is_gradual.any():
        return Onset(fraction, correlation)
    clipped_fraction = np.clip(fraction[is_gradual], 1e-9, 1.0 - 1e-9)
    mean_logit = logit_normal.solve_mean_logit(clipped_fraction, logit_sd[is_gradual])
    return Onset(fraction, correlation, GradualOnset(is_gradual, mean_logit, logit_sd[is_gradual]))


def compute_reading_sds(violations: float) -> Array:
    """Return, for each shape, the sd of the log peak from one reading near the peak.

    The server's capacity is assumed to be constant, and ``violations`` is the expected number of
    violations.
    """
    slopes = np.array([shape.slope for shape in ONSET_SHAPES])
    shape_variances = np.array(
        [
            _BURST_LOG_VARIANCE if shape.is_bursty else 1.0 / shape.precision
            for shape in ONSET_SHAPES
        ]
    )
    return np.asarray(np.sqrt(1.0 / max(violations, 0.1) + shape_variances) / slopes)


class _OnsetRow(NamedTuple):
    """The rows of the tables in `Onset` for one shape, and the sd for `GradualOnset`."""

    violation_fraction: Array
    correlation: Array = _EMPTY_SPREAD
    logit_sd: Array = _EMPTY_SPREAD


def _compute_row(
    onset_shape: OnsetShape, allowed_share: float, longest_wait: float, seconds: float
) -> _OnsetRow:
    if onset_shape.is_bursty:
        return _compute_queue_row(onset_shape, allowed_share, longest_wait, seconds)
    floor = onset_shape.floor_share * allowed_share
    log_height = log(1.0 / (allowed_share - floor))
    decay = onset_shape.slope / (1.0 - onset_shape.floor_share) + log_height
    utilisation = (1.0 - log_height / decay) * np.exp(LOG_RATE_OFFSETS)
    if onset_shape.lead_seconds is None:
        steady_fraction = floor + (1.0 - floor) * np.exp(decay * np.minimum(utilisation - 1.0, 0.0))
        fraction = np.where(utilisation < 1.0, steady_fraction, np.nan)
    else:
        late_fraction = _compute_late_probability(
            utilisation, decay, longest_wait, onset_shape.lead_seconds, seconds
        )
        late_fraction = np.maximum(
            late_fraction, _compute_settled_probability(utilisation, decay, longest_wait, seconds)
        )
        fraction = floor + (1.0 - floor) * late_fraction
    low_correlation, high_correlation = (
        fraction / (fraction + onset_shape.precision),
        (1.0 - fraction) / (1.0 - fraction + _OVERLOAD_PRECISION),
    )
    return _OnsetRow(fraction, np.where(fraction < 0.5, low_correlation, high_correlation))


def _compute_queue_row(
    onset_shape: OnsetShape, allowed_share: float, longest_wait: float, seconds: float
) -> _OnsetRow:
    """Return the row of a queue. A request is late if its wait plus an exponential service time exceeds
    ``longest_wait``.
    """
    assert onset_shape.lead_seconds is not None
    service_decay = (
        log(1.0 / (onset_shape.floor_share * allowed_share)) if onset_shape.floor_share else inf
    )
    spare, steepness = _solve_spare_at_peak(allowed_share, service_decay)
    decay = onset_shape.slope / steepness + spare
    utilisation = (1.0 - spare / decay) * np.exp(LOG_RATE_OFFSETS)
    if service_decay == inf:
        late_fraction = _compute_late_probability(
            utilisation, decay, longest_wait, onset_shape.lead_seconds, seconds
        )
        return _OnsetRow(
            late_fraction,
            _compute_busy_period_correlation(utilisation, decay, longest_wait, seconds),
        )
    nodes, weights = np.polynomial.legendre.leggauss(_SERVICE_TIME_POINTS)
    served_shares = (nodes + 1.0) / 2.0  # service time as a share of the limit
    weights = weights / 2.0 * service_decay * np.exp(-service_decay * served_shares)
    wait_probabilities = [
        _compute_late_probability(
            utilisation, decay, longest_wait, onset_shape.lead_seconds, seconds, 1.0 - served_share
        )
        for served_share in served_shares
    ]
    late_fraction = np.minimum(np.exp(-service_decay) + weights @ np.array(wait_probabilities), 1.0)
    spare_decay = np.clip(decay * (1.0 - utilisation), 0.0, 14.0)
    logit_sd = (
        _GRADUAL_LOGIT_SD
        * (60.0 * longest_wait / seconds) ** _GRADUAL_LENGTH_EFFECT
        * (decay / 30.0) ** _GRADUAL_DECAY_EFFECT
    )
    logit_sd = np.minimum(
        logit_sd * np.exp(-_GRADUAL_SPARE_EFFECT * (spare_decay - spare)), logit_normal.MAX_LOGIT_SD
    )
    return _OnsetRow(late_fraction, logit_sd=logit_sd)


def _solve_spare_at_peak(allowed_share: float, service_decay: float) -> tuple[float, float]:
    """Return ``spare``, the spare utilisation at the peak times the decay of waits. Also return how
    steeply the log violation fraction falls with ``spare``.

    In units of the longest wait, waits decay at the rate ``spare`` and service times at the rate
    ``service_decay``. The sum of wait and service time exceeds the limit with probability
    ``(service_decay exp(-spare) - spare exp(-service_decay)) / (service_decay - spare)``.
    """
    if service_decay == inf:
        return log(1.0 / allowed_share), 1.0
    service_tail = exp(-service_decay)

    def late_excess(spare: float) -> float:
        return (service_decay * exp(-spare) - spare * service_tail) / (service_decay - spare)

    low, high = 0.0, service_decay * (1.0 - 1e-6)
    for _ in range(60):
        spare_share = (low + high) / 2.0
        low, high = (
            (spare_share, high) if late_excess(spare_share) > allowed_share else (low, spare_share)
        )
    slope = (-service_decay * exp(-spare_share) - service_tail) / (
        service_decay - spare_share
    ) + allowed_share / (service_decay - spare_share)
    return spare_share, -slope / allowed_share


def _compute_late_probability(
    utilisation: Array,
    decay: float,
    longest_wait: float,
    lead_seconds: float,
    seconds: float,
    limit_share: float = 1.0,
) -> Array:
    """Return the mean probability, over a reading of ``seconds``, of a wait above ``limit_share`` of
    ``longest_wait``.

    ``lead_seconds`` is the time under load before the reading. In the long run, a wait exceeds
    ``longest_wait`` with probability ``exp(-decay * spare utilisation)``.
    """
    # `check` and `plan` do not measure, so they should not import scipy.
    from scipy.special import log_ndtr, ndtr

    time_points = lead_seconds + seconds * (np.arange(_TIME_POINTS) + 0.5) / _TIME_POINTS
    wait_sd = np.sqrt(2.0 * longest_wait / decay * time_points)
    start_deviation = ((utilisation - 1.0) * time_points[0] - limit_share * longest_wait) / wait_sd[
        0
    ]
    # At all other offsets, the probability is 0 or 1 to fifteen digits, and is not computed.
    is_computable = (limit_share * decay * (utilisation - 1.0) > -_MAX_EXPONENT) & (
        start_deviation < _MAX_SDS
    )
    drift = (utilisation[is_computable] - 1.0)[:, None]
    free_probability = ndtr((drift * time_points - limit_share * longest_wait) / wait_sd)
    image_term = limit_share * drift * decay + log_ndtr(
        -(limit_share * longest_wait + drift * time_points) / wait_sd
    )
    late_fraction = np.where(utilisation < 1.0, 0.0, 1.0)
    late_fraction[is_computable] = np.minimum(
        free_probability + np.exp(np.minimum(image_term, 0.0)), 1.0
    ).mean(axis=1)
    return late_fraction


def _compute_settled_probability(
    utilisation: Array, decay: float, longest_wait: float, seconds: float
) -> Array:
    """Return the long-run probability of a wait above ``longest_wait``.

    Close to utilisation 1, a queue cannot reach its long-run length in ``seconds``, so a minimum of
    spare utilisation is assumed.
    """
    spare_share = np.maximum(1.0 - utilisation, 0.5 * np.sqrt(2.0 * longest_wait / decay / seconds))
    return np.asarray(np.exp(-decay * spare_share))


def _compute_busy_period_correlation(
    utilisation: Array, decay: float, longest_wait: float, seconds: float
) -> Array:
    """Return the correlation between the requests in a reading of a queue with short service times.

    The more relaxation times a reading lasts, the lower is the correlation. The relaxation time of a
    reflected Brownian motion is its variance divided by the square of its drift (Harrison 1985).
    """
    relaxation_times = (utilisation - 1.0) ** 2 * decay / 2.0 / longest_wait * seconds
    renewals = np.where(
        utilisation < 1.0,
        _UNDERLOAD_RENEWALS * relaxation_times,
        _OVERLOAD_RENEWALS * relaxation_times,
    )
    return np.asarray(1.0 / (1.0 + _SATURATED_RENEWALS + renewals))
