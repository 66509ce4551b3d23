"""A Gaussian process for many parameters, few of which matter, and few trials.

The function is the sum of a constant, an effect per parameter, and an interaction per pair of
parameters. κ_d is the covariance of parameter d's effect times its squared amplitude:

    k = constant + e₁(κ) + β e₂(κ),    e₁ = Σ κ_d,    e₂ = Σ_{c<d} κ_c κ_d

(additive Gaussian processes: Duvenaud et al., 2011). Only parameters that also have a main effect can
interact. Amplitudes have half-Cauchy priors around a common scale that is also learned. Half-Cauchy
priors allow a few large amplitudes and shrink all others. Eriksson & Jankowiak (2021) use the same
horseshoe prior for length scales. The fit finds the most probable amplitudes with the exact gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
from scipy.linalg import lapack
from scipy.optimize import minimize

from autotune.optimize.gp.effects import (
    LevelEffects,
    list_varied_axes,
    tabulate_variances,
    take_variances_at,
)
from autotune.optimize.gp.grid import GridAxis, GridPoints

Array = npt.NDArray[np.float64]

# Logarithm of the smallest squared amplitude relative to the common scale. A few trials cannot prove
# that a parameter has no effect.
MIN_LOG_AMPLITUDE = -3.0
# A fit stops when the relative change of the log posterior is below FIT_TOLERANCE. The log posterior is
# then less than 0.01 below its maximum, a difference that no observation could show.
FIT_TOLERANCE = 1e-5
PRIOR_MODE_LOG_AMPLITUDE = 0.0  # log amplitude at the mode of the half-Cauchy prior
LEVEL_VARIANCE = 1.0  # prior variance of the function's constant
# Hyperparameters are learned from at most MAX_FITTED_OBSERVATIONS observations, because the cost grows
# with the cube of their number. The fit uses the FITTED_HIGHEST highest observations and an even sample
# of the rest. Predictions use all observations.
MAX_FITTED_OBSERVATIONS, FITTED_HIGHEST = 100, 60
# Matérn length scales as fractions of a parameter's range, and the weight of the process with the short
# scale.
LONG_LENGTH_SCALE, SHORT_LENGTH_SCALE, SHORT_SCALE_WEIGHT = 1.0, 0.25, 0.25


def compute_axis_covariance(axis: GridAxis, anchor: int | None = None) -> Array:
    """Return the covariance of one parameter's effect between its levels; the diagonal is 1 on average.

    The effect is zero at ``anchor``, the level in the leading configuration. Without an anchor, the
    effect is zero on average over the range (functional ANOVA: Durrande et al., 2013). Each term of the
    sum is therefore a main effect, and each product of two terms is purely an interaction. Uncertainty
    is small near the anchor and grows with every changed parameter. The covariance mixes two Matérn 5/2
    processes, with length scales of the whole range and a quarter of the range. The mixture fits
    slopes, valleys and thresholds, so no length scale must be learned from few trials.
    """
    if axis.is_ordered:
        raw_covariance = _compute_mixture_covariance(tuple(axis.unit_positions.tolist()))
        weights = (
            np.gradient(axis.unit_positions)
            if len(axis.unit_positions) > 2
            else np.ones(len(axis.unit_positions))
        )
    else:
        raw_covariance = np.eye(len(axis.values))
        weights = np.ones(len(axis.values))
    weights = weights / weights.sum()
    anchor_weights = np.eye(len(weights))[anchor] if anchor is not None else weights
    mean = raw_covariance @ anchor_weights
    centred_covariance = raw_covariance - np.outer(mean, mean) / float(anchor_weights @ mean)
    return np.asarray(centred_covariance / float(weights @ centred_covariance.diagonal()))


@lru_cache(maxsize=256)
def _compute_mixture_covariance(unit_positions: tuple[float, ...]) -> Array:
    """Return the covariance without an anchor. Results are cached for later suggestions."""
    positions = np.array(unit_positions)
    distance = np.abs(positions[:, None] - positions[None, :])
    return (1 - SHORT_SCALE_WEIGHT) * compute_matern_correlation(
        distance / LONG_LENGTH_SCALE
    ) + SHORT_SCALE_WEIGHT * compute_matern_correlation(distance / SHORT_LENGTH_SCALE)


def compute_matern_correlation(distance: Array) -> Array:
    """Return the Matérn 5/2 correlation; ``distance`` is in units of the length scale."""
    scaled_distance = np.sqrt(5.0) * distance
    return np.asarray((1.0 + scaled_distance + scaled_distance**2 / 3.0) * np.exp(-scaled_distance))


def factorize_matrix(matrix: Array) -> Array:
    """Return the lower Cholesky factor; the entries above its diagonal are undefined.

    LAPACK is called directly: with few trials, the checks of scipy's functions cost more than the
    arithmetic. Raises LinAlgError if the matrix is not positive definite.
    """
    factor, error_code = lapack.dpotrf(matrix, lower=1, clean=0)
    if error_code:
        raise np.linalg.LinAlgError("the matrix is not positive definite")
    return np.asarray(factor)


def solve_linear_system(factor: Array, right_side: Array) -> Array:
    """Return the solution of a linear system, given the lower Cholesky factor of its matrix."""
    solution, _ = lapack.dpotrs(factor, right_side, lower=1)
    return np.asarray(solution)


@dataclass(frozen=True)
class ProcessPriors:
    """Priors in the unit of the observations: the typical ``effect_size`` of a parameter and
    ``noise_sd``.

    ``scale_width`` is the sd of the logarithm of the squared effect size, which is uncertain.
    """

    effect_size: float = 0.1
    noise_sd: float = 0.04
    scale_width: float = 1.5


@dataclass(frozen=True)
class GaussianProcess:
    """A fitted Gaussian process.

    ``amplitudes`` are the squared amplitudes of the parameters, and ``log_scale`` is the logarithm of
    their common scale. ``values`` are the observations relative to ``level``. `fit_process` explains
    ``shared_sds``.
    """

    covariance_tables: tuple[Array, ...]
    points: GridPoints
    amplitudes: Array
    interaction_weight: float
    noise_variance: float
    level: float
    variances: Array
    values: Array
    shared_sds: Array
    log_scale: float

    @cached_property
    def cholesky_factor(self) -> Array:
        """Return the lower Cholesky factor of the covariance of the observations."""
        total_covariance = self._sum_effects(self._observed_effects, self.points)
        total_covariance += self.shared_sds @ self.shared_sds.T
        total_covariance[np.diag_indices_from(total_covariance)] += self.variances
        return factorize_matrix(total_covariance)

    @cached_property
    def observation_weights(self) -> Array:
        """Return the weights of the observations in a prediction."""
        return solve_linear_system(self.cholesky_factor, self.values)

    @cached_property
    def _effect_variances(self) -> Array:
        return tabulate_variances(self.covariance_tables)

    @cached_property
    def _observed_effects(self) -> LevelEffects:
        return self._build_covariance_effects(self.points)

    def _build_covariance_effects(self, points: GridPoints) -> LevelEffects:
        """Return the covariance of each parameter's effect, between each level and each point."""
        axes = list_varied_axes(self._effect_variances, points)
        covariances = np.zeros((len(axes), self._effect_variances.shape[1], len(points)))
        for row, axis in enumerate(axes):
            table = self.covariance_tables[axis]
            covariances[row, : len(table)] = self.amplitudes[axis] * table[:, points[:, axis]]
        return LevelEffects(axes, covariances, self._effect_variances)

    def _sum_effects(self, effects: LevelEffects, points: GridPoints) -> Array:
        """Return the prior covariance of the function between ``points`` and the columns of
        ``effects``.
        """
        return self._combine_effects(*effects.sum_effects_at(points))

    def _combine_effects(self, sums: Array, squared_sums: Array) -> Array:
        """Return the total covariance from the sums of the effects' covariances and the sums of their
        squares.
        """
        return LEVEL_VARIANCE + sums + self.interaction_weight * 0.5 * (sums * sums - squared_sums)

    def compute_covariance(self, row_points: GridPoints, column_points: GridPoints) -> Array:
        """Return the prior covariance of the function between each row point and each column point."""
        return self._sum_effects(self._build_covariance_effects(column_points), row_points)

    def compute_prior_variance(self, points: GridPoints) -> Array:
        """Return the prior variance of the function at each point."""
        effects = self.amplitudes * take_variances_at(self._effect_variances, points)
        return self._combine_effects(effects.sum(axis=1), (effects * effects).sum(axis=1))

    def predict(self, points: GridPoints) -> tuple[Array, Array]:
        """Return mean and sd of the function without noise at each point."""
        cross_covariance = self._sum_effects(self._observed_effects, points)
        posterior_mean = self.level + cross_covariance @ self.observation_weights
        explained_variance = (
            cross_covariance * solve_linear_system(self.cholesky_factor, cross_covariance.T).T
        ).sum(axis=1)
        return posterior_mean, np.sqrt(
            np.maximum(self.compute_prior_variance(points) - explained_variance, 1e-10)
        )

    def draw_samples(
        self, points: GridPoints, sample_count: int, rng: np.random.Generator
    ) -> Array:
        """Return ``sample_count`` samples of the posterior at ``points``, one sample per row."""
        cross_covariance = self._sum_effects(self._observed_effects, points)
        mean = self.level + cross_covariance @ self.observation_weights
        total_covariance = self.compute_covariance(
            points, points
        ) - cross_covariance @ solve_linear_system(self.cholesky_factor, cross_covariance.T)
        eigenvalues, eigenvectors = np.linalg.eigh(total_covariance)
        covariance_root = eigenvectors * np.sqrt(np.maximum(eigenvalues, 0.0))
        return np.asarray(mean + rng.normal(size=(sample_count, len(points))) @ covariance_root.T)

    def with_pending_points(self, points: GridPoints) -> GaussianProcess:
        """Return the process as if ``points`` had been measured with the predicted results. The
        returned process is less uncertain at these points.
        """
        if not len(points):
            return self
        posterior_mean, _ = self.predict(points)
        return replace(
            self,
            points=np.vstack([self.points, points]),
            values=np.concatenate([self.values, posterior_mean - self.level]),
            variances=np.concatenate([self.variances, np.full(len(points), self.noise_variance)]),
            shared_sds=np.pad(self.shared_sds, ((0, len(points)), (0, 0))),
        )

    def compute_leave_one_out_errors(self) -> tuple[Array, Array]:
        """Return each observation minus its prediction from all other observations, and the sd of this
        difference.
        """
        inverse_covariance = solve_linear_system(self.cholesky_factor, np.eye(len(self.points)))
        variance = 1.0 / inverse_covariance.diagonal()
        return self.observation_weights * variance, np.sqrt(variance)


def inflate_variances(
    variances: Array, is_disregarded: npt.NDArray[np.bool_], errors: Array, sds: Array
) -> Array:
    """Return the variances of the observations, increased for those marked in ``is_disregarded``.
    `GaussianProcess.compute_leave_one_out_errors` returns ``errors`` and ``sds``.
    """
    return variances + np.where(is_disregarded, 4.0 * np.maximum(errors**2, sds**2), 0.0)


def fit_process(
    covariance_tables: tuple[Array, ...],
    points: GridPoints,
    observed_values: Array,
    variances: Array,
    priors: ProcessPriors,
    level: float | None = None,
    max_steps: int = 40,
    shared_sds: Array | None = None,
    start_process: GaussianProcess | None = None,
) -> GaussianProcess:
    """Return a process with the most probable hyperparameters.

    ``shared_sds`` is an array ``[observation, source]``: the sd of each error that several observations
    share. For example, observations on one test bed share the unknown part of the bed's offset. A
    shared error does not affect the differences between the observations that share it. The fit starts
    from ``start_process``, which was fitted to almost the same observations.
    """
    shared_sds = np.zeros((len(points), 0)) if shared_sds is None else shared_sds
    level = float(np.median(observed_values)) if level is None else level
    rows = _select_fitted_rows(observed_values)
    centred_values, fitted_sds = observed_values[rows] - level, shared_sds[rows]
    problem = _FitProblem(
        covariance_tables, points[rows], centred_values, variances[rows], fitted_sds, priors
    )
    optimum = minimize(
        problem.compute_loss_and_gradient,
        problem.build_start_theta(start_process) if start_process else problem.default_start,
        jac=True,
        method="L-BFGS-B",
        bounds=problem.build_bounds(),
        options={"maxiter": max_steps, "ftol": FIT_TOLERANCE},
    )
    relative_amplitudes, (scale, log_interaction_weight, noise) = problem.read_optimum(optimum.x)
    noise_variance = float(np.exp(noise))
    return GaussianProcess(
        covariance_tables,
        points,
        np.exp(relative_amplitudes + scale),
        float(np.exp(log_interaction_weight - scale)),
        noise_variance,
        level,
        variances + noise_variance,
        observed_values - level,
        shared_sds,
        float(scale),
    )


def _select_fitted_rows(observed_values: Array) -> npt.NDArray[np.intp]:
    """Return the indices of the observations to learn hyperparameters from, in chronological order."""
    if len(observed_values) <= MAX_FITTED_OBSERVATIONS:
        return np.arange(len(observed_values))
    descending_rows = np.argsort(-observed_values, kind="stable")
    other_rows = np.linspace(
        FITTED_HIGHEST, len(observed_values) - 1, MAX_FITTED_OBSERVATIONS - FITTED_HIGHEST
    ).astype(np.intp)
    return np.sort(np.concatenate([descending_rows[:FITTED_HIGHEST], descending_rows[other_rows]]))


class _FitProblem:
    """The negative log posterior of the hyperparameters, with its gradient.

    θ = (log squared amplitude relative to the scale for each varied parameter …, log scale², log β',
    log noise²). β = β' / scale², so that an interaction is relative to its two effects. A parameter
    that no trial varied gets the amplitude at the mode of the prior.
    """

    def __init__(
        self,
        covariance_tables: tuple[Array, ...],
        points: GridPoints,
        values: Array,
        variances: Array,
        shared_sds: Array,
        priors: ProcessPriors,
    ) -> None:
        self.values, self.variances = values, variances
        self.parameter_count = len(covariance_tables)
        self.axes = list_varied_axes(tabulate_variances(covariance_tables), points)
        # Covariances are symmetric, so each pair of observations is stored once, as one column.
        self.pair_indices = np.tril_indices(len(points))
        self.pair_multiplicities = np.where(self.pair_indices[0] == self.pair_indices[1], 1.0, 2.0)
        first_rows, second_rows = points[self.pair_indices[0]], points[self.pair_indices[1]]
        self.table_entries = np.zeros((len(self.axes), len(first_rows)))
        for row, axis in enumerate(self.axes):
            self.table_entries[row] = covariance_tables[axis][
                first_rows[:, axis], second_rows[:, axis]
            ]
        self.squared_table_entries = self.table_entries**2
        self.common_covariance = (LEVEL_VARIANCE + shared_sds @ shared_sds.T)[self.pair_indices]
        self.diagonal_columns = np.flatnonzero(self.pair_multiplicities == 1.0)
        self.identity = np.eye(len(points))
        # Means and sds of the priors on the entries of θ that follow the amplitudes.
        self.prior_means = np.array(
            [2 * np.log(priors.effect_size), np.log(0.1), 2 * np.log(priors.noise_sd)]
        )
        self.prior_sds = np.array([priors.scale_width, 1.5, 1.5])
        self.default_start = np.concatenate([np.full(len(self.axes), -1.0), self.prior_means])

    def build_start_theta(self, process: GaussianProcess) -> Array:
        """Return the θ of a fitted process as the start of another fit."""
        relative_amplitudes = np.log(process.amplitudes[self.axes]) - process.log_scale
        beta = np.log(process.interaction_weight) + process.log_scale
        return np.concatenate(
            [relative_amplitudes, [process.log_scale, beta, np.log(process.noise_variance)]]
        )

    def build_bounds(self) -> list[tuple[float, float]]:
        mean_log_scale, _, mean_log_noise = self.prior_means
        return [
            *[(MIN_LOG_AMPLITUDE, 6.0)] * len(self.axes),
            (mean_log_scale - 5, mean_log_scale + 4),
            (-5.0, 3.0),
            (mean_log_noise - 2.5, mean_log_noise + 3),
        ]

    def read_optimum(self, theta: Array) -> tuple[Array, Array]:
        """Return the relative amplitude of each parameter, and the entries of θ that follow
        the amplitudes.
        """
        relative_amplitudes = np.full(self.parameter_count, PRIOR_MODE_LOG_AMPLITUDE)
        relative_amplitudes[self.axes] = theta[: len(self.axes)]
        return relative_amplitudes, theta[len(self.axes) :]

    def compute_loss_and_gradient(self, theta: Array) -> tuple[float, Array]:
        axis_count = len(self.axes)
        relative_amplitudes, (log_scale, beta, noise) = theta[:axis_count], theta[axis_count:]
        amplitudes = np.exp(relative_amplitudes + log_scale)
        interaction_weight = float(np.exp(beta - log_scale))
        first_order, squared_terms = (
            amplitudes @ self.table_entries,
            amplitudes**2 @ self.squared_table_entries,
        )
        second_order = 0.5 * (first_order * first_order - squared_terms)
        pair_covariances = self.common_covariance + first_order + interaction_weight * second_order
        pair_covariances[self.diagonal_columns] += self.variances + np.exp(noise)
        total_covariance = np.zeros_like(self.identity)
        total_covariance[self.pair_indices] = pair_covariances
        try:
            cholesky_factor = factorize_matrix(total_covariance)
        except np.linalg.LinAlgError:
            return 1e10, np.zeros_like(theta)
        inverse_covariance = solve_linear_system(cholesky_factor, self.identity)
        solved_values = inverse_covariance @ self.values
        fit_loss = 0.5 * self.values @ solved_values + np.log(cholesky_factor.diagonal()).sum()
        # Each pair is stored once, but the sum is over both orders of a pair.
        covariance_gradient = (
            0.5
            * self.pair_multiplicities
            * (inverse_covariance - np.outer(solved_values, solved_values))[self.pair_indices]
        )
        axis_gradients = amplitudes * (
            self.table_entries @ (covariance_gradient * (1.0 + interaction_weight * first_order))
        ) - interaction_weight * amplitudes**2 * (self.squared_table_entries @ covariance_gradient)
        pair_gradient = interaction_weight * float(covariance_gradient @ second_order)
        other_gradients = [
            axis_gradients.sum() - pair_gradient,
            pair_gradient,
            float(np.exp(noise) * covariance_gradient[self.diagonal_columns].sum()),
        ]
        gradient = np.concatenate([axis_gradients, other_gradients])
        prior, prior_gradient = self._compute_prior_and_gradient(theta)
        return float(fit_loss + prior), gradient + prior_gradient

    def _compute_prior_and_gradient(self, theta: Array) -> tuple[float, Array]:
        """Return the log prior and its gradient: half-Cauchy for amplitudes, normal for the logarithms
        of the other entries.

        The half-Cauchy density is converted to the logarithm of the squared amplitude. For an untried
        parameter, the mode is therefore the common scale, not zero. Without the Jacobian (as in
        BoTorch's MAP-SAAS), the search would assume that an untried parameter has no effect, and would
        never try the parameter. The prior variance of each class of parameters limits how many of these
        parameters matter (`surrogate.EFFECT_VARIANCES`).
        """
        axis_count = len(self.axes)
        relative_amplitudes = theta[:axis_count]
        loss = np.log1p(np.exp(relative_amplitudes)) - 0.5 * relative_amplitudes
        gradient = 1.0 / (1.0 + np.exp(-relative_amplitudes)) - 0.5
        standard_scores = (theta[axis_count:] - self.prior_means) / self.prior_sds
        return float(loss.sum() + 0.5 * standard_scores @ standard_scores), np.concatenate(
            [gradient, standard_scores / self.prior_sds]
        )
