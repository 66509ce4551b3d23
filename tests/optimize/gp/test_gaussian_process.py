from __future__ import annotations

import dataclasses
from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from spaces import many

from autotune.optimize.gp import gaussian_process
from autotune.optimize.gp.gaussian_process import ProcessPriors, compute_axis_covariance
from autotune.optimize.gp.grid import ParameterGrid

SPACE = many(8)
GRID = ParameterGrid.from_dimensions(SPACE.tunable_dimensions, SPACE.baseline)
TABLES = tuple(compute_axis_covariance(axis) for axis in GRID.axes)
RNG = np.random.default_rng(1)
POINTS = (RNG.random((40, 8)) * GRID.level_counts).astype(int)
UNITS = POINTS / 100.0
TRUE = 0.5 * UNITS[:, 0] - 1.5 * (UNITS[:, 1] - 0.6) ** 2 + 0.8 * (UNITS[:, 0] - 0.5) * UNITS[:, 1]
NOISY = TRUE + RNG.normal(0, 0.03, 40)
OF_TWO = 0.2 * (np.arange(40)[:, None] // 20 == [[0, 1]])  # the second half has an error of its own


def fitted() -> gaussian_process.GaussianProcess:
    return gaussian_process.fit_process(TABLES, POINTS, NOISY, np.zeros(40), ProcessPriors())


def test_tables_are_covariances_of_effects_without_a_mean() -> None:
    for each in TABLES:
        assert np.linalg.eigvalsh(each).min() > -1e-9
        weights = np.gradient(GRID.axes[0].unit_positions)
        assert each @ weights == pytest.approx(0.0, abs=1e-9)


def test_the_gradient_is_the_slope_of_the_loss() -> None:
    problem = gaussian_process._FitProblem(
        TABLES, POINTS, NOISY, np.full(40, 1e-4), OF_TWO, ProcessPriors()
    )
    theta = problem.default_start + RNG.normal(0, 0.5, len(problem.default_start))
    slope = approx_fprime(theta, lambda t: problem.compute_loss_and_gradient(t)[0], 1e-6)
    assert problem.compute_loss_and_gradient(theta)[1] == pytest.approx(slope, rel=1e-3, abs=1e-3)


def test_parameters_that_matter_stand_out() -> None:
    amplitudes = fitted().amplitudes
    assert set(np.argsort(-amplitudes)[:2]) == {0, 1}
    assert amplitudes[:2].min() > 5 * amplitudes[2:].max()


def test_it_predicts_what_it_has_not_seen_within_its_sd() -> None:
    points = (np.random.default_rng(2).random((200, 8)) * GRID.level_counts).astype(int)
    units = points / 100.0
    true = (
        0.5 * units[:, 0] - 1.5 * (units[:, 1] - 0.6) ** 2 + 0.8 * (units[:, 0] - 0.5) * units[:, 1]
    )
    mean, sd = fitted().predict(points)
    assert np.abs(mean - true).mean() < 0.05
    assert (np.abs(mean - true) < 2 * sd).mean() > 0.85


def test_leaving_one_out_is_what_the_others_predict_of_it() -> None:
    process = fitted()
    miss, sd = process.compute_leave_one_out_errors()
    others = np.arange(40) != 7
    total = process.compute_covariance(POINTS, POINTS)[np.ix_(others, others)] + np.diag(
        process.variances[others]
    )
    across = process.compute_covariance(POINTS, POINTS)[7, others]
    weights = np.linalg.solve(total, across)
    assert miss[7] == pytest.approx(
        NOISY[7] - process.level - weights @ (NOISY[others] - process.level), rel=1e-6
    )
    own = process.compute_prior_variance(POINTS[7:8])[0] + process.variances[7]
    assert sd[7] ** 2 == pytest.approx(own - weights @ across, rel=1e-6)


def test_a_known_variance_takes_weight_from_an_observation() -> None:
    wrong = NOISY.copy()
    wrong[3] -= 0.6
    variances = np.where(np.arange(40) == 3, 1.0, 0.0)
    doubted = gaussian_process.fit_process(
        TABLES, POINTS, wrong, variances, ProcessPriors()
    ).predict(POINTS)[0]
    trusted = gaussian_process.fit_process(
        TABLES, POINTS, wrong, np.zeros(40), ProcessPriors()
    ).predict(POINTS)[0]
    assert abs(doubted - TRUE)[3] < abs(trusted - TRUE)[3]


def test_an_error_that_observations_share_is_told_from_what_parameters_do() -> None:
    shifted = NOISY + np.where(np.arange(40) < 20, 0.0, 0.3)
    alone = gaussian_process.fit_process(
        TABLES, POINTS, shifted, np.full(40, 0.2**2), ProcessPriors()
    )
    process = gaussian_process.fit_process(
        TABLES, POINTS, shifted, np.zeros(40), ProcessPriors(), shared_sds=OF_TWO
    )

    def errors(predicted: np.ndarray) -> np.ndarray:
        error = predicted - TRUE
        return np.abs(error - error.mean())

    together, apart = errors(process.predict(POINTS)[0]), errors(alone.predict(POINTS)[0])
    assert together.mean() < 0.5 * apart.mean()
    assert together.mean() < 0.03


def test_what_is_believed_of_pending_points_has_no_share_in_such_an_error() -> None:
    process = gaussian_process.fit_process(
        TABLES, POINTS, NOISY, np.zeros(40), ProcessPriors(), shared_sds=OF_TWO
    )
    believing = process.with_pending_points(POINTS[:3] ^ 1)
    assert believing.shared_sds.shape == (43, 2)
    assert not believing.shared_sds[40:].any()
    assert believing.predict(POINTS)[0] == pytest.approx(process.predict(POINTS)[0], abs=1e-6)


def test_a_covariance_is_the_sum_over_parameters_and_pairs() -> None:
    anchored = tuple(
        compute_axis_covariance(axis, int(level))
        for axis, level in zip(GRID.axes, POINTS[0], strict=True)
    )
    others = np.where(RNG.random((30, 8)) < 0.2, POINTS[:30], POINTS[0])
    for covariance_tables in (TABLES, anchored):
        process = dataclasses.replace(fitted(), covariance_tables=covariance_tables)
        kappa = [
            a * t[POINTS[:, d][:, None], others[:, d]]
            for d, (a, t) in enumerate(zip(process.amplitudes, covariance_tables, strict=True))
        ]
        pairs = sum(one * other for one, other in combinations(kappa, 2))
        total = gaussian_process.LEVEL_VARIANCE + sum(kappa) + process.interaction_weight * pairs
        assert process.compute_covariance(POINTS, others) == pytest.approx(total, abs=1e-12)
        assert process.compute_covariance(POINTS[:2], POINTS[:0]).shape == (2, 0)


def fit_two_varied(similar: gaussian_process.GaussianProcess | None = None) -> tuple[
    gaussian_process.GaussianProcess, int
]:  # fmt: skip
    """Return a process fitted to points that vary two parameters, and how often the loss was
    computed.
    """
    anchored = tuple(
        compute_axis_covariance(axis, int(level))
        for axis, level in zip(GRID.axes, POINTS[0], strict=True)
    )
    points = np.where(np.arange(8) < 2, POINTS, POINTS[0])
    losses: list[float] = []
    compute = gaussian_process._FitProblem.compute_loss_and_gradient

    def count(problem: gaussian_process._FitProblem, theta: np.ndarray) -> tuple[float, np.ndarray]:
        assert len(theta) == 2 + 3
        loss, gradient = compute(problem, theta)
        losses.append(loss)
        return loss, gradient

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gaussian_process._FitProblem, "compute_loss_and_gradient", count)
        process = gaussian_process.fit_process(
            anchored, points, NOISY, np.zeros(40), ProcessPriors(), start_process=similar
        )
    return process, len(losses)


def test_only_parameters_that_were_varied_are_fitted() -> None:
    process, _ = fit_two_varied()
    assert np.log(process.amplitudes[2:]) == pytest.approx(process.log_scale)
    assert process.amplitudes[:2].min() > process.amplitudes[2]


def test_a_fit_that_starts_from_a_similar_process_is_short_and_ends_alike() -> None:
    first, count = fit_two_varied()
    second, again = fit_two_varied(similar=first)
    assert again <= count / 3
    assert second.predict(POINTS)[0] == pytest.approx(first.predict(POINTS)[0], abs=0.01)
