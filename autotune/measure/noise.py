"""The variation of a configuration's capacity between readings, learned over a study.

A reading shows the configuration's capacity times ``exp(e)``, where ``e`` is normal with an unknown
standard deviation. Occasionally, a disturbance temporarily reduces the machine's capacity: a cron job, a
neighbouring virtual machine, or a garbage collection. Disturbances add one-sided noise, because they
never increase the capacity.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LOG_RATE_STEP: Final = 0.005
"""Step of the posterior's grid, as a difference of log rates."""
TABLE_REACH_STEPS: Final = 500
"""Number of grid steps (a factor of 12) on either side of the peak, for which likelihoods are tabulated.
"""
NOISE_SDS: Final = (0.008, 0.014, 0.023, 0.036, 0.055, 0.085, 0.13, 0.2, 0.3)
"""Possible standard deviations of the log capacity; the posterior learns their weights."""

STEAL_EFFECTS: Final = (0.0, 0.5, 1.0, 1.5, 2.0)
"""Possible losses of capacity per fraction of CPU steal; the posterior learns their weights.

The loss per fraction is 1 if the CPU is the limit and is used evenly. The loss is 0 if there is enough
idle CPU time, and above 1 if latency rises.
"""

_STEAL_EFFECT_SD = 0.5  # sd of the initial estimate (1) of the effect of CPU steal on the capacity
# Weight of earlier trials in the estimate of the effect of steal, high because the CPUs do not change
_EFFECT_MEMORY_WEIGHT = 0.95
# Initial estimate of the sd of the noise, and the possible error of this estimate as a factor
_PRIOR_NOISE_SD, _PRIOR_NOISE_FACTOR = 0.045, 6.0
_DISTURBED_READING_SHARE = 0.06  # fraction of readings that are disturbed
# mean loss of log capacity in a disturbance; losses are exponentially distributed
_MEAN_DISTURBANCE_LOSS = 0.3
# Weight of earlier trials in the estimate of the noise, lower because the noise of machines changes
_NOISE_MEMORY_WEIGHT = 0.8
# FFT length, enough for table plus kernel, so that the convolution does not wrap around
_FFT_LENGTH = 1600
# Number of grid steps by which the loss kernel extends towards lower and towards higher capacities.
_LOSS_REACH_STEPS, _GAIN_REACH_STEPS = 380, 180


def build_prior_noise_weights() -> Array:
    """Return the weights of ``NOISE_SDS`` before any reading. The weights are nearly flat, so that the
    scatter of the readings determines the noise.

    With flat weights over the logarithm of the sd, the mean of a few normal readings gets Student's t
    interval. Student's t interval is correct for any noise level (Jeffreys 1961).
    """
    score = (np.log(NOISE_SDS) - np.log(_PRIOR_NOISE_SD)) / np.log(_PRIOR_NOISE_FACTOR)
    noise_weights = np.exp(-0.5 * score**2)
    return np.asarray(noise_weights / noise_weights.sum())


@dataclass(frozen=True)
class Noise:
    """The spread of log capacity between readings of one configuration, as learned by a study.

    Pass ``Capacity.noise`` from one search of a study to the next search; the first search starts with
    ``Noise()``. ``weights`` contains one weight for each pair of a value in ``NOISE_SDS`` and an onset
    shape, flattened row by row. ``weights`` is empty before the first search. Noise and shape are learned
    together, because violations scatter in the same way on a noisy machine and with a steep onset.
    ``readings`` is the number of readings from which the weights were learned. ``effects`` contains the
    weights of ``STEAL_EFFECTS``, and is empty if no CPU steal was measured.
    """

    weights: tuple[float, ...] = ()
    readings: int = 0
    effects: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Raise ``ValueError`` unless ``weights`` is empty or contains one row per noise sd."""
        if len(self.weights) % len(NOISE_SDS) or (self.weights and not sum(self.weights) > 0):
            raise ValueError(f"noise needs a row of weights for each of {len(NOISE_SDS)} levels")

    def build_prior(self, shapes: Array) -> Array:
        """Return the weights before a search, ``[sigma, shape, peak]``.

        Learned weights are mixed with an initial estimate from ``shapes[shape, peak]``, so that later
        readings can correct the learned weights. Weights for another family of shapes (from another
        version of autotune) are ignored.
        """
        shape_prior = build_prior_noise_weights()[:, None, None] * shapes[None, :, :]
        if len(self.weights) != len(NOISE_SDS) * shapes.shape[0]:
            return np.asarray(shape_prior)
        return np.asarray(
            _NOISE_MEMORY_WEIGHT * self._reshape_weights()[:, :, None]
            + (1.0 - _NOISE_MEMORY_WEIGHT) * shape_prior
        )

    def build_steal_prior(self) -> Array:
        """Return the weights of ``STEAL_EFFECTS`` before a search, mixed as in ``build_prior``."""
        effect_prior = np.exp(-0.5 * ((np.asarray(STEAL_EFFECTS) - 1.0) / _STEAL_EFFECT_SD) ** 2)
        effect_prior /= effect_prior.sum()
        if len(self.effects) != len(STEAL_EFFECTS):
            return np.asarray(effect_prior)
        return np.asarray(
            _EFFECT_MEMORY_WEIGHT * np.asarray(self.effects)
            + (1.0 - _EFFECT_MEMORY_WEIGHT) * effect_prior
        )

    def learn(self, weights: Array, readings: int, effects: Array | None = None) -> Noise:
        """Return the noise after a search that took ``readings`` readings and ended with ``weights``.

        ``effects`` contains the final weights of ``STEAL_EFFECTS``, if there was CPU steal.
        """
        normalized_weights = (weights / weights.sum()).ravel().tolist()
        steal_effects = self.effects if effects is None else tuple(effects.tolist())
        return Noise(tuple(normalized_weights), self.readings + readings, steal_effects)

    def _reshape_weights(self) -> Array:
        return np.asarray(self.weights, dtype=np.float64).reshape(len(NOISE_SDS), -1)


@cache
def _build_loss_kernels() -> NDArray[np.complex128]:
    """Return Fourier transforms of the density of a reading's capacity loss, one row for each of
    ``NOISE_SDS``.
    """
    loss = LOG_RATE_STEP * np.arange(-_GAIN_REACH_STEPS, _LOSS_REACH_STEPS + 1)
    rows = []
    for sigma in NOISE_SDS:
        normal_density = np.exp(-0.5 * (loss / sigma) ** 2)
        normal_density /= normal_density.sum()
        loss_decay = np.where(loss > 0, np.exp(-loss / _MEAN_DISTURBANCE_LOSS), 0.0)
        disturbed_density = np.convolve(normal_density, loss_decay)[
            _GAIN_REACH_STEPS : _GAIN_REACH_STEPS + loss.size
        ]
        disturbed_density /= disturbed_density.sum()
        mixed_density = (
            1.0 - _DISTURBED_READING_SHARE
        ) * normal_density + _DISTURBED_READING_SHARE * disturbed_density
        wrapped_kernel = np.zeros(_FFT_LENGTH)
        wrapped_kernel[np.arange(-_GAIN_REACH_STEPS, _LOSS_REACH_STEPS + 1) % _FFT_LENGTH] = (
            mixed_density
        )
        rows.append(np.conj(np.fft.rfft(wrapped_kernel)))
    return np.asarray(rows)


def average_over_loss(likelihood: Array) -> Array:
    """Average ``likelihood[shape, x]`` over the capacity loss: ``[sigma, shape, x]``.

    ``x`` is the logarithm of the rate relative to the undisturbed peak. A loss of capacity increases a
    reading's ``x``. Beyond the table, the last value of a likelihood applies.
    """
    column_count = likelihood.shape[1]
    padded_likelihood = np.empty((likelihood.shape[0], _FFT_LENGTH))
    padded_likelihood[:, :column_count] = likelihood
    padded_likelihood[:, column_count : column_count + _LOSS_REACH_STEPS] = likelihood[:, -1:]
    padded_likelihood[:, column_count + _LOSS_REACH_STEPS :] = likelihood[:, :1]
    spectrum = np.fft.rfft(padded_likelihood)[None, :, :] * _build_loss_kernels()[:, None, :]
    return np.fft.irfft(spectrum, n=_FFT_LENGTH)[:, :, :column_count]
