"""A Gaussian process for many parameters of which few matter, and few trials.

The function is a constant, an effect per parameter, and an interaction per pair. κ_d is the
covariance of parameter d's effect times its squared amplitude:

    k = constant + e₁(κ) + β e₂(κ),    e₁ = Σ κ_d,    e₂ = Σ_{c<d} κ_c κ_d

(additive Gaussian processes: Duvenaud et al., 2011). Only parameters that matter themselves can
interact. Amplitudes have half-Cauchy priors around a common scale that is also learned. These
priors let a few amplitudes be large and shrink the rest. Eriksson & Jankowiak (2021) use the same
horseshoe for lengths. The fit finds the most probable amplitudes with the exact gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from autotune.optimize.gp.grid import GridAxis, GridPoints

Array = npt.NDArray[np.float64]

# Smallest squared amplitude relative to the scale, as a logarithm: with few trials no parameter is
# certain to have no effect.
MIN_LOG_AMPLITUDE = -3.0
LEVEL_VARIANCE = 1.0  # variance of the level, in squares of the logarithm
# Hyperparameters are learned from at most this many observations, as the cost grows with their cube.
# These are the highest, and an even choice of the others. Predictions use all observations.
MAX_FITTED_OBSERVATIONS, FITTED_HIGHEST = 100, 60
# Matérn lengths, in parts of a range.
LONG_LENGTH_SCALE, SHORT_LENGTH_SCALE, SHORT_SCALE_WEIGHT = (
    1.0,
    0.25,
    0.25,
)


def axis_covariance(axis: GridAxis, anchor: int | None = None) -> Array:
    """Return the covariance of one parameter's effect between its levels; the diagonal is 1 on
    average.

    The effect is zero at ``anchor``, the level of the leading configuration. Without an anchor it
    is zero on average over the range (functional ANOVA: Durrande et al., 2013). A sum of effects
    then separates main effects, and a product of two is purely an interaction. Uncertainty is small
    near the anchor and grows with every changed parameter. Two Matérn 5/2 processes bend over the
    whole range and over a quarter of it. They cover slopes, valleys and thresholds without a length
    to learn from few trials.
    """
    if axis.is_ordered:
        raw = _mixture_covariance(tuple(axis.unit_positions.tolist()))
        weights = (
            np.gradient(axis.unit_positions)
            if len(axis.unit_positions) > 2
            else np.ones(len(axis.unit_positions))
        )
    else:
        raw = np.eye(len(axis.values))
        weights = np.ones(len(axis.values))
    weights = weights / weights.sum()
    pivot = np.eye(len(weights))[anchor] if anchor is not None else weights
    mean = raw @ pivot
    centred = raw - np.outer(mean, mean) / float(pivot @ mean)
    return np.asarray(centred / float(weights @ centred.diagonal()))


@lru_cache(maxsize=256)
def _mixture_covariance(units: tuple[float, ...]) -> Array:
    """The covariance without an anchor. Cached: a suggestion needs the same ones again and again."""
    locations = np.array(units)
    distance = np.abs(locations[:, None] - locations[None, :])
    return (1 - SHORT_SCALE_WEIGHT) * matern_correlation(
        distance / LONG_LENGTH_SCALE
    ) + SHORT_SCALE_WEIGHT * matern_correlation(distance / SHORT_LENGTH_SCALE)


def matern_correlation(distance: Array) -> Array:
    """Matérn 5/2 correlation at distances in units of its length."""
    scaled = np.sqrt(5.0) * distance
    return np.asarray((1.0 + scaled + scaled**2 / 3.0) * np.exp(-scaled))


@dataclass(frozen=True)
class ProcessPriors:
    """Priors in the unit of the observations: typical ``effect_size`` of a parameter, ``noise_sd`` sd.
    ``scale_width``: how far ``effect_size`` may be off, as the sd of the logarithm of its square."""

    effect_size: float = 0.1
    noise_sd: float = 0.04
    scale_width: float = 1.5


@dataclass(frozen=True)
class GaussianProcess:
    """A fitted process. ``amplitudes`` are per parameter, squared; ``noise_variance`` is a variance;
    ``values`` are relative to ``level``. ``shared_sds``: see `fit_process`."""

    tables: tuple[Array, ...]
    points: GridPoints
    amplitudes: Array
    interaction_weight: float
    noise_variance: float
    level: float
    variances: Array
    values: Array
    shared_sds: Array

    @cached_property
    def cholesky_factor(self) -> tuple[Array, bool]:
        """Cholesky factor of the covariance of the observations."""
        total = self.covariance(self.points, self.points) + self.shared_sds @ self.shared_sds.T
        total[np.diag_indices_from(total)] += self.variances
        factor: tuple[Array, bool] = cho_factor(total, lower=True)
        return factor

    @cached_property
    def observation_weights(self) -> Array:
        """The weights of the observations."""
        return np.asarray(cho_solve(self.cholesky_factor, self.values))

    @cached_property
    def _diagonals(self) -> Array:
        """Variance of each parameter's effect, ``[parameter, level]``, padded with zeros."""
        padded = np.zeros((len(self.tables), max(map(len, self.tables), default=0)))
        for d, table in enumerate(self.tables):
            padded[d, : len(table)] = table.diagonal()
        return padded

    def _deviations(self, points: GridPoints) -> npt.NDArray[np.bool_]:
        """True where a point differs from the parameter's anchor, ``[parameter, point]``.

        A parameter has no effect at its anchor, and most configurations leave most parameters there.
        """
        return np.asarray(self._diagonals[np.arange(len(self.tables))[:, None], points.T] > 0)

    def covariance(self, left: GridPoints, right: GridPoints) -> Array:
        first = np.zeros((len(left), len(right)))
        squares = np.zeros_like(first)
        by_row, by_column = self._deviations(left), self._deviations(right)
        for d in np.flatnonzero(by_row.any(axis=1) & by_column.any(axis=1)):
            rows, columns = np.flatnonzero(by_row[d]), np.flatnonzero(by_column[d])
            table = self.tables[d]
            part = self.amplitudes[d] * table[left[rows, d][:, None], right[columns, d]]
            where = np.ix_(rows, columns) if part.shape != first.shape else ...
            first[where] += part
            squares[where] += part * part
        return LEVEL_VARIANCE + first + self.interaction_weight * 0.5 * (first * first - squares)

    def prior_variance(self, points: GridPoints) -> Array:
        diagonals = self._diagonals[np.arange(len(self.tables))[:, None], points.T]
        parts = self.amplitudes[:, None] * diagonals
        first = parts.sum(axis=0)
        squares = (parts * parts).sum(axis=0)
        return np.asarray(
            LEVEL_VARIANCE + first + self.interaction_weight * 0.5 * (first * first - squares)
        )

    def predict(self, points: GridPoints) -> tuple[Array, Array]:
        """Mean and sd of the noiseless function."""
        across = self.covariance(self.points, points)
        mean = self.level + across.T @ self.observation_weights
        explained = (across * cho_solve(self.cholesky_factor, across)).sum(axis=0)
        return mean, np.sqrt(np.maximum(self.prior_variance(points) - explained, 1e-10))

    def sample(self, points: GridPoints, count: int, rng: np.random.Generator) -> Array:
        """``count`` samples of the posterior at ``points``, one per row."""
        across = self.covariance(self.points, points)
        mean = self.level + across.T @ self.observation_weights
        total = self.covariance(points, points) - across.T @ cho_solve(self.cholesky_factor, across)
        size, shape = np.linalg.eigh(total)
        root = shape * np.sqrt(np.maximum(size, 0.0))
        return np.asarray(mean + rng.normal(size=(count, len(points))) @ root.T)

    def with_pending(self, points: GridPoints) -> GaussianProcess:
        """As if ``points`` had been measured and come out as predicted: less is uncertain there."""
        if not len(points):
            return self
        mean, _ = self.predict(points)
        return replace(
            self,
            points=np.vstack([self.points, points]),
            values=np.concatenate([self.values, mean - self.level]),
            variances=np.concatenate([self.variances, np.full(len(points), self.noise_variance)]),
            shared_sds=np.pad(self.shared_sds, ((0, len(points)), (0, 0))),
        )

    def leave_one_out(self) -> tuple[Array, Array]:
        """Each observation minus what the others predict of it, and the sd of that."""
        inverse = cho_solve(self.cholesky_factor, np.eye(len(self.points)))
        variance = 1.0 / inverse.diagonal()
        return self.observation_weights * variance, np.sqrt(variance)


def fit_process(
    tables: tuple[Array, ...],
    points: GridPoints,
    values: Array,
    variances: Array,
    priors: ProcessPriors,
    level: float | None = None,
    steps: int = 40,
    shared_sds: Array | None = None,
) -> GaussianProcess:
    """``variances`` are known ones per observation; the noise that all have alike comes on top.

    ``shared_sds``, ``[observation, source]``: the sd of each error that several observations have in
    common, such as how much more a test bed carries than is known. Their differences are not affected
    by it.
    """
    shared_sds = np.zeros((len(points), 0)) if shared_sds is None else shared_sds
    level = float(np.median(values)) if level is None else level
    learned = _select_fitted(values)
    problem = _FitProblem(
        tables,
        points[learned],
        values[learned] - level,
        variances[learned],
        shared_sds[learned],
        priors,
    )
    optimum = minimize(
        problem.loss_and_gradient,
        problem.opening,
        jac=True,
        method="L-BFGS-B",
        bounds=problem.bounds(),
        options={"maxiter": steps},
    )
    relative, (scale, beta, noise) = optimum.x[: len(tables)], optimum.x[len(tables) :]
    variance = float(np.exp(noise))
    return GaussianProcess(
        tables, points, np.exp(relative + scale), float(np.exp(beta - scale)), variance, level,
        variances + variance, values - level, shared_sds,
    )  # fmt: skip


def _select_fitted(values: Array) -> npt.NDArray[np.intp]:
    """The observations that hyperparameters are learned from, in the order they were made."""
    if len(values) <= MAX_FITTED_OBSERVATIONS:
        return np.arange(len(values))
    order = np.argsort(-values, kind="stable")
    others = np.linspace(
        FITTED_HIGHEST, len(values) - 1, MAX_FITTED_OBSERVATIONS - FITTED_HIGHEST
    ).astype(np.intp)
    return np.sort(np.concatenate([order[:FITTED_HIGHEST], order[others]]))


class _FitProblem:
    """Minus the log posterior of the hyperparameters, with its gradient.

    θ = (log squared amplitude relative to the scale per parameter …, log scale², log β', log
    noise²). β = β' / scale², so that an interaction is relative to its two effects.
    """

    def __init__(
        self, tables: tuple[Array, ...], points: GridPoints, values: Array, variances: Array,
        shared_sds: Array, beliefs: ProcessPriors,
    ) -> None:  # fmt: skip
        self.tables, self.values, self.variances = tables, values, variances
        self.common = LEVEL_VARIANCE + shared_sds @ shared_sds.T
        self.flat = np.stack(
            [t[points[:, d][:, None], points[:, d][None, :]].ravel() for d, t in enumerate(tables)]
        )
        self.flat2 = self.flat**2
        self.shape = (len(points), len(points))
        # Means and sds of the priors on what follows the amplitudes in θ.
        self.middle = np.array(
            [2 * np.log(beliefs.effect_size), np.log(0.1), 2 * np.log(beliefs.noise_sd)]
        )
        self.widths = np.array([beliefs.scale_width, 1.5, 1.5])
        self.opening = np.concatenate([np.full(len(tables), -1.0), self.middle])

    def bounds(self) -> list[tuple[float, float]]:
        scale, _, noise = self.middle
        return [
            *[(MIN_LOG_AMPLITUDE, 6.0)] * len(self.tables),
            (scale - 5, scale + 4),
            (-5.0, 3.0),
            (noise - 2.5, noise + 3),
        ]

    def loss_and_gradient(self, theta: Array) -> tuple[float, Array]:
        size = len(self.tables)
        relative, (scale, beta, noise) = theta[:size], theta[size:]
        amplitudes = np.exp(relative + scale)
        share = float(np.exp(beta - scale))
        first = (amplitudes @ self.flat).reshape(self.shape)
        squares = (amplitudes**2 @ self.flat2).reshape(self.shape)
        second = 0.5 * (first * first - squares)
        total = self.common + first + share * second
        total[np.diag_indices_from(total)] += self.variances + np.exp(noise)
        try:
            factor = cho_factor(total, lower=True)
        except np.linalg.LinAlgError:
            return 1e10, np.zeros_like(theta)
        inverse = cho_solve(factor, np.eye(len(total)))
        alpha = inverse @ self.values
        fit_ = 0.5 * self.values @ alpha + np.log(factor[0].diagonal()).sum()
        slope = -0.5 * (np.outer(alpha, alpha) - inverse)
        weights = slope * (1.0 + share * first)
        each = amplitudes * (self.flat @ weights.ravel()) - share * amplitudes**2 * (
            self.flat2 @ slope.ravel()
        )
        pairs = share * float((slope * second).sum())
        others = [each.sum() - pairs, pairs, float(np.exp(noise) * slope.trace())]
        gradient = np.concatenate([each, others])
        prior, prior_gradient = self._prior_and_gradient(theta)
        return float(fit_ + prior), gradient + prior_gradient

    def _prior_and_gradient(self, theta: Array) -> tuple[float, Array]:
        """Half-Cauchy on amplitudes (in the log of their squares), normal on the logs of the rest.

        For a parameter that has not been tried, the mode is the common scale, not zero. Without the
        Jacobian (as in BoTorch's MAP-SAAS) the search would take it to have no effect and never try it.
        The prior of a parameter's class limits how many may matter (`surrogate.EFFECT_VARIANCES`).
        """
        size = len(self.tables)
        relative = theta[:size]
        loss = np.log1p(np.exp(relative)) - 0.5 * relative
        gradient = 1.0 / (1.0 + np.exp(-relative)) - 0.5
        rest = (theta[size:] - self.middle) / self.widths
        return float(loss.sum() + 0.5 * rest @ rest), np.concatenate([gradient, rest / self.widths])
