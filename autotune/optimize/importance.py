"""Which parameters matter, which of them interact, and which may need a wider range.

The effects are read from the model's posterior mean, a sum of one function per parameter and one per
pair, each zero at the leading configuration. The spread of a function over the configurations measured
says how much it contributes to the differences between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import combinations
from math import exp
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_solve

from autotune.estimate import WITHIN_90
from autotune.optimize.gp.grid import Axis, Points
from autotune.optimize.gp.scale import decompress
from autotune.optimize.gp.surrogate import Surrogate
from autotune.services.base import Value

Array = npt.NDArray[np.float64]

PAIRS = 5  # interactions reported, the strongest
EDGE = 0.03  # a value within this part of the range from an end is at its edge
WIDER = 2.0  # factor by which a range that is too narrow is widened
SLICES = 8  # parameters with a slice in the view, those that matter most
SLICE_POINTS = 41
SLOPE = 0.2  # part of the range over which the model is asked whether it still climbs


@dataclass(frozen=True)
class Pair:
    """Two parameters whose effect together is not the sum of their own; ``effect`` is a log ratio."""

    first: str
    second: str
    effect: float


@dataclass(frozen=True)
class Edge:
    """A parameter whose best value is at the ``low`` or ``high`` end of its range, and what to try."""

    parameter: str
    value: Value
    end: str
    try_range: tuple[Value, Value]


def effects(surrogate: Surrogate) -> dict[str, float]:
    """Parameter → standard deviation of its effect over what was measured, as a log ratio."""
    alpha = surrogate.log_peak.alpha
    deviations = {name: float((part.T @ alpha).std()) for name, part in _parts(surrogate)}
    return dict(sorted(deviations.items(), key=lambda item: -item[1]))


def uncertainties(surrogate: Surrogate) -> dict[str, float]:
    """Parameter → posterior sd of its ``effects``, along the shape of its posterior mean."""
    process, points = surrogate.log_peak, _configurations(surrogate)
    sds = {}
    for d, (name, part) in enumerate(_parts(surrogate)):
        shape = part.T @ process.alpha
        shape = shape - shape.mean()
        direction = shape / max(float(np.linalg.norm(shape)), 1e-12) / np.sqrt(len(points))
        levels = points[:, d]
        own = process.amplitudes[d] * process.tables[d][levels[:, None], levels[None, :]]
        across = part @ direction
        variance = direction @ own @ direction - across @ cho_solve(process.factor, across)
        sds[name] = float(np.sqrt(max(float(variance), 0.0)))
    return sds


def pairs(surrogate: Surrogate, most: int = PAIRS) -> tuple[Pair, ...]:
    """The strongest interactions, those with an effect of at least one percent."""
    process = surrogate.log_peak
    interactions = [
        Pair(first, second, process.beta * float(((left * right).T @ process.alpha).std()))
        for (first, left), (second, right) in combinations(_parts(surrogate), 2)
    ]
    ranked = sorted(interactions, key=lambda pair: -pair.effect)[:most]
    return tuple(pair for pair in ranked if pair.effect >= 0.01)


def edges(surrogate: Surrogate, best: Points) -> tuple[Edge, ...]:
    """Numbers whose value in ``best`` is at an end of the range towards which the model climbs, if the
    interval of their effect leaves out zero."""
    too_narrow, sds = [], uncertainties(surrogate)
    clear = {name for name, e in effects(surrogate).items() if e > WITHIN_90 * sds[name]}
    for d, axis in enumerate(surrogate.grid.axes):
        unmoved = best[d] == surrogate.grid.baseline[d]
        if not axis.ordered or unmoved or axis.dimension.name not in clear:
            continue
        place = float(axis.units[best[d]])
        for end, near in (("low", place <= EDGE), ("high", place >= 1 - EDGE)):
            if not near:
                continue
            inner, size = best.copy(), len(axis.values)
            step = max(1, round(SLOPE * size))
            inner[d] = np.clip(best[d] + (step if end == "low" else -step), 0, size - 1)
            mean, _ = surrogate.predict(np.array([best, inner]))
            if mean[0] > mean[1]:
                too_narrow.append(_wider(axis, best[d], end))
    return tuple(too_narrow)


def _wider(axis: Axis, level: int, end: str) -> Edge:
    dimension = axis.dimension
    low, high = float(dimension.low or 0), float(dimension.high or 0)
    if end == "high":
        bounds = (low, high * WIDER if dimension.log else high + (high - low))
    else:
        bounds = (low / WIDER if dimension.log else low - (high - low), high)
    # Counts and sizes do not go below zero, nor a count of workers below one.
    least = min(low, 1.0) if dimension.integer and low > 0 else min(low, 0.0)
    numbers = [dimension.number(max(least, number)) for number in bounds]
    return Edge(dimension.name, axis.values[level], end, (numbers[0], numbers[1]))


def _configurations(surrogate: Surrogate) -> Points:
    """The configurations measured, each once: test beds repeat the baseline, and finals the leaders."""
    return np.unique(surrogate.observations.points, axis=0)


def _parts(surrogate: Surrogate) -> Iterator[tuple[str, Array]]:
    """Each parameter, with its own part of the covariance between the observations that the model was
    fitted to and the configurations measured."""
    process, points = surrogate.log_peak, _configurations(surrogate)
    for d, axis in enumerate(surrogate.grid.axes):
        left, right = process.points[:, d], points[:, d]
        part = process.amplitudes[d] * process.tables[d][left[:, None], right[None, :]]
        yield axis.dimension.name, part


def view(surrogate: Surrogate, anova: Mapping[str, float]) -> dict[str, Any]:
    """As JSON: ``importance`` (``effect`` and its ``sd`` are of a log ratio), ``pairs``, ``edges``, and
    ``slices`` of the parameters that matter most, through the configuration believed to be the best:
    ``x``, ``mean`` and the 90 % band ``low`` to ``high``, as peaks."""
    best = surrogate.observations.points[surrogate.best()]
    ranked, sds = effects(surrogate), uncertainties(surrogate)
    return {
        "importance": [
            {
                "parameter": name,
                "effect": round(effect, 4),
                "sd": round(sds[name], 4),
                "ped_anova": anova.get(name),
            }
            for name, effect in ranked.items()
        ],
        "pairs": [asdict(pair) for pair in pairs(surrogate)],
        "edges": [asdict(edge) for edge in edges(surrogate, best)],
        "slices": {name: _slice(surrogate, name) for name in list(ranked)[:SLICES]},
    }


def _slice(surrogate: Surrogate, name: str) -> dict[str, list[Any]]:
    axes = surrogate.grid.axes
    d = next(d for d, axis in enumerate(axes) if axis.dimension.name == name)
    count = len(axes[d].values)
    levels = np.unique(np.linspace(0, count - 1, min(count, SLICE_POINTS)).round().astype(int))
    points = np.repeat(
        surrogate.observations.points[surrogate.best()][None, :], len(levels), axis=0
    )
    points[:, d] = levels
    mean, sd = surrogate.predict(points)
    scale = exp(surrogate.observations.log_peaks.max())

    def peaks(log_peaks: Any) -> list[float]:
        # Peaks of a benchmark command may be of any size.
        return [float(f"{scale * np.exp(h):.6g}") for h in decompress(log_peaks)]

    return {
        "x": [axes[d].values[level] for level in levels],
        "mean": peaks(mean),
        "low": peaks(mean - WITHIN_90 * sd),
        "high": peaks(mean + WITHIN_90 * sd),
    }
