"""A grey-box model: the capacity of each part of a stack, and the soft minimum of them.

A stack carries what its narrowest part carries. A trial that tells the capacity of every part says
far more than its peak: what a parameter does to a part shows at once, and not only when that part is
the narrowest (Bayesian optimisation of composite functions: Astudillo & Frazier, 2019). Each part is
an additive process over the parameters of its own tiers. What the parts do not explain is a small
process over all parameters, so that a part that is read wrong costs little.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from autotune.estimate import PartCapacity
from autotune.optimize.gp.grid import Grid, Points
from autotune.optimize.gp.model import Beliefs, Process, fit
from autotune.optimize.gp.scale import compress_loss
from autotune.parameter_name import ParameterName

Array = npt.NDArray[np.float64]

LEAST = 4  # trials that tell a capacity, before it is modelled
LEAST_PARTS = 2
SHARPNESS = (2.0, 4.0, 8.0)  # of the soft minimum: queues of several parts add up
DRAWS = 48
RESIDUAL = Beliefs(effect=0.06, noise=0.05)
OF_PART = Beliefs(effect=0.15, noise=0.1)
WRONG = 3.0  # sds from what the others predict of it: such a capacity was read wrong
ENOUGH = 6  # to compare one with the others


Capacities = Sequence[Mapping[str, PartCapacity]]  # by part, for each trial


@dataclass(frozen=True)
class Part:
    """The log capacity of one part, over the ``axes`` of its tiers."""

    axes: Points
    process: Process

    def predict(self, points: Points) -> tuple[Array, Array]:
        return self.process.predict(points[:, self.axes])

    def left_out(self, points: Points, rows: Points) -> Array:
        """Its mean at ``points``; at those where it was seen (``rows``), what the others predict."""
        mean, _ = self.predict(points)
        mean[rows] = self.process.values + self.process.level - self.process.left_out()[0]
        return mean


@dataclass(frozen=True)
class Composite:
    """``top`` is the best log peak measured; the peak is the soft minimum of the parts and ``offset``."""

    parts: tuple[Part, ...]
    sharpness: float
    offset: float
    top: float
    residual: Process

    def predict(self, points: Points) -> tuple[Array, Array]:
        """Mean and sd of the compressed log peaks, by draws that all points share."""
        predicted = [part.predict(points) for part in self.parts]
        draws = [
            mean + sd * z[:, None] for (mean, sd), z in zip(predicted, self._normal, strict=True)
        ]
        totals = self._compressed(np.stack(draws))
        mean, sd = self.residual.predict(points)
        return totals.mean(axis=0) + mean, np.sqrt(totals.var(axis=0) + sd**2)

    def draws(self, points: Points, count: int, rng: np.random.Generator) -> Array:
        """Samples of the compressed log peaks at ``points``, one per row."""
        parts = [p.process.draws(points[:, p.axes], count, rng) for p in self.parts]
        return self._compressed(np.stack(parts)) + self.residual.draws(points, count, rng)

    def believing(self, points: Points) -> Composite:
        return replace(self, residual=self.residual.believing(points))

    @property
    def _normal(self) -> Array:
        """Evenly spread standard normal numbers, in another order for each part."""
        rng, levels = np.random.default_rng(1), ndtri((np.arange(DRAWS) + 0.5) / DRAWS)
        return np.stack([rng.permutation(levels) for _ in self.parts])

    def _compressed(self, parts: Array) -> Array:
        return compressed(soft_minimum(parts, self.sharpness) + self.offset, self.top)


def soft_minimum(parts: Array, sharpness: float) -> Array:
    """Of logarithms along the first axis: a little below the least of them."""
    least = parts.min(axis=0)
    return np.asarray(least - np.log(np.exp(sharpness * (least - parts)).sum(axis=0)) / sharpness)


def compressed(log_peaks: Array, top: float) -> Array:
    """Log peaks relative to ``top``, those far below it compressed."""
    loss = top - log_peaks
    return np.where(loss > 0, -compress_loss(np.maximum(loss, 0.0)), -loss)


def compose(
    grid: Grid,
    tables: tuple[Array, ...],
    points: Points,
    capacities: Capacities,
    log_peaks: Array,
    sds: Array,
) -> Composite | None:
    """``None`` where too few parts were seen. ``sds`` are those of
    the compressed log peaks."""
    fitted = _parts(grid, tables, points, capacities)
    left_out = np.array([part.left_out(points, rows) for part, rows in fitted])
    top, chosen = float(log_peaks.max()), list(range(len(fitted)))
    if len(chosen) < LEAST_PARTS:
        return None
    error, sharpness = _best(left_out, log_peaks, top)
    while len(chosen) > LEAST_PARTS:
        # A part that is read wrong, and looks narrower than it is, explains less than nothing.
        without = [[c for c in chosen if c != part] for part in chosen]
        tried = [(*_best(left_out[rest], log_peaks, top), rest) for rest in without]
        if min(tried)[0] > 0.95 * error:
            break
        error, sharpness, chosen = min(tried)
    parts = tuple(fitted[index][0] for index in chosen)
    soft = soft_minimum(np.array([part.predict(points)[0] for part in parts]), sharpness)
    offset = _offset(soft, log_peaks)
    rest = compressed(log_peaks, top) - compressed(soft + offset, top)
    residual = fit(tables, points, rest, sds**2, RESIDUAL, level=0.0)
    return Composite(parts, sharpness, offset, top, residual)


def _best(left_out: Array, log_peaks: Array, top: float) -> tuple[float, float]:
    """The mean error of the best sharpness, and that."""
    errors = []
    for sharpness in SHARPNESS:
        soft = soft_minimum(left_out, sharpness)
        guess = compressed(soft + _offset(soft, log_peaks), top)
        errors.append((float(np.abs(compressed(log_peaks, top) - guess).mean()), sharpness))
    return min(errors)


def _offset(soft: Array, log_peaks: Array) -> float:
    """How far the peaks are above the soft minimum, the better half of them."""
    best = log_peaks >= np.median(log_peaks)
    return float(np.median((log_peaks - soft)[best]))


def _parts(
    grid: Grid, tables: tuple[Array, ...], points: Points, capacities: Capacities
) -> list[tuple[Part, Points]]:
    """Each part with enough said of it, and the trials that say it."""
    tiers = [ParameterName.parse(axis.dimension.name).tier for axis in grid.axes]
    parts = []
    for name in sorted({name for each in capacities for name in each}):
        rows = np.array([row for row, each in enumerate(capacities) if name in each], np.intp)
        if len(rows) < LEAST:
            continue
        own = [capacities[row][name] for row in rows]
        of = {tier for capacity in own for tier in capacity.tiers}
        axes = np.array([d for d, tier in enumerate(tiers) if tier in of], np.intp)
        if len(axes):
            process = _process(tuple(tables[d] for d in axes), points[np.ix_(rows, axes)], own)
            parts.append((Part(axes, process), rows))
    return parts


def _process(
    tables: tuple[Array, ...], points: Points, capacities: Sequence[PartCapacity]
) -> Process:
    """Fitted to all of them; then again, disregarding those that the others contradict."""
    logs = np.array([capacity.log for capacity in capacities])
    variances = np.array([capacity.sd for capacity in capacities]) ** 2
    process = fit(tables, points, logs, variances, OF_PART)
    if len(logs) < ENOUGH:
        return process
    error, sd = process.left_out()
    wrong = np.abs(error) > WRONG * sd
    if not wrong.any():
        return process
    return fit(tables, points, logs, variances + np.where(wrong, 4 * error**2, 0.0), OF_PART)
