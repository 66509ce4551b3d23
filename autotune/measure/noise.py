"""How much a configuration's capacity varies from reading to reading, learned over a study.

A reading sees the configuration's capacity times ``exp(e)``: ``e`` is normal with a standard
deviation that is not known, and now and then something takes a part of the machine away for a while
(a cron job, a neighbour, a collection pause). That is one-sided: nothing ever lends a machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

STEP: Final = 0.005
"""Grid step of every log rate in the posterior."""
REACH: Final = 500
"""Likelihoods are tabulated up to this many steps (a factor of 12) either side of the peak."""
SIGMAS: Final = (0.008, 0.014, 0.023, 0.036, 0.055, 0.085, 0.13, 0.2, 0.3)
"""Standard deviations of the log capacity that are weighed against each other."""

EFFECTS: Final = (0.0, 0.5, 1.0, 1.5, 2.0)
"""Fractions of the capacity lost for a fraction of CPU time stolen, weighed against each other: 1
where the CPU limits and is used evenly, 0 where it has time to spare, more where latency suffers."""

_EFFECT_SD = 0.5  # of a first guess of 1
_LASTING = 0.95  # weight of what earlier trials taught of it: the same CPUs all along
_USUAL, _EITHER_WAY = 0.045, 6.0  # first guess of the sd, and by what factor it may be wrong
_DISTURBED = 0.06  # fraction of readings that are disturbed
_LOSS = 0.3  # mean log capacity a disturbance takes; exponential, so any loss is thinkable
_KEPT = 0.8  # weight of what earlier trials taught, against the first guess: machines change
_SIZE = 1600  # FFT length: table, the kernel's reach and no wrap-around into the part that is read
_AHEAD, _BACK = 380, 180  # kernel reach in steps towards less, and towards more, capacity


def first_guess() -> Array:
    """Weights before any reading, nearly flat, so that the readings' own scatter decides.

    A flat weight on the log of the sd is the one that gives the mean of a few normal readings
    Student's interval, right whatever the noise is (Jeffreys 1961).
    """
    score = (np.log(SIGMAS) - np.log(_USUAL)) / np.log(_EITHER_WAY)
    weights = np.exp(-0.5 * score**2)
    return np.asarray(weights / weights.sum())


@dataclass(frozen=True)
class Noise:
    """What a study has learned of the spread of log capacity between readings of one configuration.

    Carry ``Capacity.noise`` from one search of a study to the next; the first starts with
    ``Noise()``. ``weights`` has, row after row, one row for each of ``SIGMAS`` with a weight for
    each shape of onset (they are learned together: a steep onset scatters the violations as a noisy
    machine does); it is empty before the first search. ``readings``: how many it was learned from.
    ``effects``: weights of ``EFFECTS``, empty before any reading that CPU time was stolen from.
    """

    weights: tuple[float, ...] = ()
    readings: int = 0
    effects: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Raise ``ValueError`` unless ``weights`` is empty or made of a row for each level."""
        if len(self.weights) % len(SIGMAS) or (self.weights and not sum(self.weights) > 0):
            raise ValueError(f"noise needs a row of weights for each of {len(SIGMAS)} levels")

    @property
    def sigma(self) -> float:
        """Expected standard deviation of log capacity between readings of one configuration."""
        rows = self._rows().sum(axis=1) if self.weights else first_guess()
        return float(np.dot(rows, SIGMAS) / rows.sum())

    def opening(self, shapes: Array) -> Array:
        """``[sigma, shape, peak]`` weights to start with, given ``shapes[shape, peak]`` by default:
        what was learned, loosened so that it can be unlearned. What was learned with another family
        of shapes, by another version, is left out.
        """
        guess = first_guess()[:, None, None] * shapes[None, :, :]
        if len(self.weights) != len(SIGMAS) * shapes.shape[0]:
            return np.asarray(guess)
        return np.asarray(_KEPT * self._rows()[:, :, None] + (1.0 - _KEPT) * guess)

    def of_steal(self) -> Array:
        """Weights of ``EFFECTS`` to start with: what was learned, loosened as ``opening`` does."""
        guess = np.exp(-0.5 * ((np.asarray(EFFECTS) - 1.0) / _EFFECT_SD) ** 2)
        guess /= guess.sum()
        if len(self.effects) != len(EFFECTS):
            return np.asarray(guess)
        return np.asarray(_LASTING * np.asarray(self.effects) + (1.0 - _LASTING) * guess)

    def learned(self, weights: Array, readings: int, effects: Array | None = None) -> Noise:
        """The belief after a search of ``readings`` readings that ended with ``weights``, and with
        ``effects`` where CPU time was stolen in it."""
        share = (weights / weights.sum()).ravel().tolist()
        of_steal = self.effects if effects is None else tuple(effects.tolist())
        return Noise(tuple(share), self.readings + readings, of_steal)

    def _rows(self) -> Array:
        return np.asarray(self.weights, dtype=np.float64).reshape(len(SIGMAS), -1)


@cache
def _kernels() -> NDArray[np.complex128]:
    """Transforms of the density of a reading's capacity loss, one row for each of ``SIGMAS``."""
    loss = STEP * np.arange(-_BACK, _AHEAD + 1)
    rows = []
    for sigma in SIGMAS:
        normal = np.exp(-0.5 * (loss / sigma) ** 2)
        normal /= normal.sum()
        decay = np.where(loss > 0, np.exp(-loss / _LOSS), 0.0)
        disturbed = np.convolve(normal, decay)[_BACK : _BACK + loss.size]
        disturbed /= disturbed.sum()
        mixed = (1.0 - _DISTURBED) * normal + _DISTURBED * disturbed
        wrapped = np.zeros(_SIZE)
        wrapped[np.arange(-_BACK, _AHEAD + 1) % _SIZE] = mixed
        rows.append(np.conj(np.fft.rfft(wrapped)))
    return np.asarray(rows)


def blur(likelihood: Array) -> Array:
    """Average ``likelihood[shape, x]`` over the capacity loss: ``[sigma, shape, x]``.

    ``x`` is the log of rate over undisturbed peak; a loss moves a reading to the right. Beyond the
    table a likelihood keeps its last value.
    """
    width = likelihood.shape[1]
    padded = np.empty((likelihood.shape[0], _SIZE))
    padded[:, :width] = likelihood
    padded[:, width : width + _AHEAD] = likelihood[:, -1:]
    padded[:, width + _AHEAD :] = likelihood[:, :1]
    spectrum = np.fft.rfft(padded)[None, :, :] * _kernels()[:, None, :]
    return np.fft.irfft(spectrum, n=_SIZE)[:, :, :width]
