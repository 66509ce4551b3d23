from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import optuna
import pytest
from spaces import dimension, many

from autotune.estimate import InstanceCapacity
from autotune.optimize.gp import surrogate
from autotune.optimize.gp.grid import ParameterGrid
from autotune.optimize.gp.scale import compress_observations, decompress_log_peaks
from autotune.optimize.gp.surrogate import (
    PeakShifts,
    SurrogateModel,
    TrialObservations,
    compute_log_expected_improvement,
)

SPACE = many(6)
GRID = ParameterGrid.from_dimensions(SPACE.tunable_dimensions, SPACE.baseline)
NOTHING = np.empty((0, 6), int)


def points(count: int, seed: int = 1) -> np.ndarray:
    return (np.random.default_rng(seed).random((count, 6)) * GRID.level_counts).astype(int)


def observe(
    at: np.ndarray, log_peaks: np.ndarray, failed: np.ndarray = NOTHING
) -> TrialObservations:
    zeros = np.zeros(len(at))
    return TrialObservations(at, log_peaks, zeros, zeros.astype(bool), failed, NOTHING)


def test_near_the_best_heights_keep_their_distance_and_far_below_they_do_not() -> None:
    compressed, sds = compress_observations(np.array([0.0, -0.1, -3.0]), np.full(3, 0.05))
    assert compressed == pytest.approx([0.0, -0.1, -0.3 * (1 + np.log(10))])
    assert sds == pytest.approx([0.05, 0.05, 0.005])


def test_a_disturbed_measurement_of_the_best_does_not_hide_it() -> None:
    at = points(40)
    at[:6] = np.clip(at[0] + np.arange(6)[:, None], 0, 100)
    log_peaks = -3.0 * (at[:, 0] / 100 - 0.7) ** 2
    log_peaks += np.random.default_rng(3).normal(0, 0.02, 40)
    honest = SurrogateModel.fit(GRID, observe(at, log_peaks)).predict(at[2:3])[0]
    log_peaks[2] -= 0.6
    disturbed = SurrogateModel.fit(GRID, observe(at, log_peaks)).predict(at[2:3])[0]
    assert disturbed == pytest.approx(honest, abs=0.08)


@pytest.mark.parametrize("below", [0.35, 1.0, 2.3])
def test_what_others_say_lifts_a_measurement_by_half_at_most(below: float) -> None:
    at = points(40)
    log_peaks = -3.0 * (at[:, 0] / 100 - 0.7) ** 2
    top = int(log_peaks.argmax())
    log_peaks[top] -= below
    found = SurrogateModel.fit(GRID, observe(at, log_peaks))
    measured, _ = found.predict_measured()
    believed, _ = found.predict(at)
    others = np.arange(40) != top
    assert measured[others] == pytest.approx(believed[others])
    if below == 0.35:
        assert measured[top] == pytest.approx(believed[top])
        return
    loss = log_peaks.max() - log_peaks[top] - np.log(1.5)
    assert measured[top] == pytest.approx(
        compress_observations(np.array([0.0, -loss]), np.zeros(2))[0][1]
    )
    assert measured[top] < believed[top]
    assert found.find_best_index() != top


def test_an_estimate_is_the_mean_of_model_and_measurement_unless_they_contradict() -> None:
    at = points(40)
    log_peaks = -3.0 * (at[:, 0] / 100 - 0.7) ** 2 + np.random.default_rng(3).normal(0, 0.05, 40)
    low, screened = 3, 7
    log_peaks[low] -= 0.35
    told = replace(observe(at, log_peaks), pruned=np.arange(40) == screened)
    found = SurrogateModel.fit(GRID, told)
    predicted = decompress_log_peaks(found.predict_measured()[0])
    mean, sd = found.estimate_measured()
    measured = log_peaks - log_peaks.max()
    near = np.abs(measured - predicted) < 0.1
    near[[low, screened]] = False
    assert near.sum() > 20
    assert mean[near] == pytest.approx((predicted + measured)[near] / 2)
    assert mean[[low, screened]] == pytest.approx(predicted[[low, screened]])
    assert (sd[near] > 0.02).all()


@pytest.mark.parametrize(("above", "sd"), [(0.9, 0.1), (0.9, 0.5)])
def test_a_measurement_far_above_the_model_counts_alone(above: float, sd: float) -> None:
    """A disturbance only lowers measurements. The model smooths narrow peaks."""
    at = points(40)
    high, others = 3, np.arange(40) != 3
    log_peaks = -0.5 * (at[:, 0] / 100 - 0.7) ** 2 + np.random.default_rng(3).normal(0, 0.05, 40)
    log_peaks[high] = log_peaks[others].max() + above
    told = replace(observe(at, log_peaks), sds=np.where(others, 0.03, sd))
    found = SurrogateModel.fit(GRID, told)
    predicted = decompress_log_peaks(found.predict_measured()[0])[high]
    mean, sds = (values[high] for values in found.estimate_measured())
    assert predicted < -0.5  # relative to the measurement
    if sd == 0.1:
        assert (mean, sds) == (pytest.approx(0.0), pytest.approx(sd, rel=0.4))
    else:  # it may be luck
        assert mean == pytest.approx(predicted / 2)


def test_repeats_of_a_configuration_have_one_estimate() -> None:
    at = points(40)
    log_peaks = -3.0 * (at[:, 0] / 100 - 0.7) ** 2
    at[39], log_peaks[39] = at[3], log_peaks[3] - 0.2
    found = SurrogateModel.fit(GRID, observe(at, log_peaks))
    mean, _ = found.estimate_measured()
    assert mean[3] == pytest.approx(mean[39])
    rough = replace(observe(at, log_peaks), sds=np.where(np.arange(40) == 39, 0.3, 0.0))
    assert SurrogateModel.fit(GRID, rough).estimate_measured()[0][3] > mean[3] + 0.02


def test_it_learns_where_configurations_fail() -> None:
    at = points(60)
    fails = at[:, 0] + at[:, 1] > 130
    found = SurrogateModel.fit(GRID, observe(at[~fails], np.zeros((~fails).sum()), at[fails]))
    new = points(300, seed=2)
    truth = new[:, 0] + new[:, 1] > 130
    chance = found.predict_feasibility(new)
    assert chance[~truth].mean() > 0.8
    assert chance[truth].mean() < 0.4


def test_before_anything_failed_everything_may_work() -> None:
    assert (
        SurrogateModel.fit(GRID, observe(points(5), np.arange(5.0))).predict_feasibility(points(9))
        == 1
    ).all()


@pytest.mark.parametrize("z", [2.0, 0.0, -3.0, -4.99, -5.01, -30.0])
def test_improvement_is_what_integration_gives(z: float) -> None:
    from scipy.integrate import quad

    def integrand(t: float) -> float:
        return t * np.exp(-0.5 * ((t - z) ** 2 - z * z * (z < 0))) / np.sqrt(2 * np.pi)

    whole = quad(integrand, 0, np.inf)[0]
    expected = np.log(whole) - 0.5 * z * z * (z < 0)
    found = compute_log_expected_improvement(np.array([z * 0.1]), np.array([0.1]), 0.0)[0]
    assert found == pytest.approx(np.log(0.1) + expected, abs=0.1)


def test_a_screened_one_is_a_ceiling_and_no_more() -> None:
    at = points(40)
    log_peaks = -3.0 * (at[:, 0] / 100 - 0.7) ** 2
    low = int(log_peaks.argmin())
    observations = observe(at, log_peaks)
    log_peaks = log_peaks.copy()
    log_peaks[low] += 0.8
    screened = np.arange(40) == low
    zeros = np.zeros(40)
    ceiling = TrialObservations(at, log_peaks, zeros + 0.05 * screened, screened, NOTHING, NOTHING)
    believed = SurrogateModel.fit(GRID, ceiling).predict(at[low : low + 1])[0]
    true = SurrogateModel.fit(GRID, observations).predict(at[low : low + 1])[0]
    assert believed == pytest.approx(true, abs=0.15)


def many_observed(count: int) -> TrialObservations:
    at = points(count)
    log_peaks = -3.0 * (at[:, 0] / 100 - 0.7) ** 2 - (at[:, 1] / 100 - 0.4) ** 2
    log_peaks += np.random.default_rng(3).normal(0, 0.02, count)
    observed = observe(at, log_peaks, points(count, seed=5))
    return replace(
        observed, trial_numbers=tuple(range(1000, 1000 + count)), recommended_changes=((),) * count
    )


def test_of_many_observations_the_highest_the_newest_and_some_of_all_others_are_modelled() -> None:
    observed = many_observed(120)
    bounded = observed.limit_points(60)
    rows = np.array(bounded.trial_numbers) - 1000
    assert len(rows) == len(bounded.recommended_changes) == 60
    assert (np.diff(rows) > 0).all()
    assert set(np.argsort(-observed.log_peaks)[:30]) | set(range(110, 120)) <= set(rows)
    assert observed.log_peaks.argsort().tolist().index(rows[bounded.log_peaks.argmin()]) < 10
    assert (bounded.points == observed.points[rows]).all()
    assert len(bounded.failed_points) == 20
    assert {p.tobytes() for p in observed.tried_points} == {
        p.tobytes() for p in bounded.tried_points
    }


def test_as_many_as_fit_are_modelled_as_they_are() -> None:
    observed = replace(many_observed(60), failed_points=points(20, seed=5))
    assert observed.limit_points(60) is observed


def test_a_bounded_model_says_of_the_leaders_what_that_of_all_does() -> None:
    observed = many_observed(120)
    all_of_them, bounded = (
        SurrogateModel.fit(GRID, each) for each in (observed, observed.limit_points(60))
    )
    leaders = observed.points[np.argsort(-observed.log_peaks)[:10]]
    expected, sd = all_of_them.predict(leaders)
    assert np.abs(bounded.predict(leaders)[0] - expected).max() < 2 * sd.max()
    assert bounded.predict_measured()[0].max() == pytest.approx(
        all_of_them.predict_measured()[0].max(), abs=0.02
    )


@pytest.mark.parametrize(("bed", "log"), [({"bed": "b1"}, 6.8), ({}, 7.0)])
def test_what_parts_carry_is_compared_as_on_an_average_bed(bed: dict[str, str], log: float) -> None:
    trial = optuna.trial.create_trial(
        value=1000.0,
        user_attrs={"trial": 3, "capacities": json.dumps({"web.cpu": [7.0, 0.1, ["web"]]}), **bed},
    )
    shifts = PeakShifts({3: (0.2, 0.05)}, {"b1": 0.03, "b2": 0.04})
    observations = surrogate.collect_observations(GRID, [trial], surrogate.NO_TRIAL, shifts)
    assert observations.capacities[0]["web.cpu"].log == pytest.approx(log)
    assert observations.log_peaks == pytest.approx([np.log(1000) - 0.2])
    assert observations.sds == pytest.approx([0.05])
    assert observations.shared_sds == pytest.approx(np.array([[0.03 if bed else 0.0, 0.0]]))


@pytest.mark.parametrize(
    ("distinct", "pending", "modelled"),
    [(4, 0, True), (3, 0, False), (10, 7, False), (11, 7, True), (11, 8, False)],
)
def test_parts_are_modelled_once_more_configurations_are_measured_than_pending(
    distinct: int, pending: int, modelled: bool
) -> None:
    """The same configuration on several test beds, such as the baseline, is one."""
    at = np.vstack([points(distinct), *[points(1)] * 6])
    log_peaks = -3.0 * (at[:, 0] / 100 - 0.7) ** 2
    tier = GRID.axes[0].dimension.name.partition(".")[0]
    parts = tuple(
        {part: InstanceCapacity(float(log), 0.1, (tier,)) for part in ("cpu", "workers")}
        for log in log_peaks
    )
    observed = observe(at, log_peaks)
    observed = replace(observed, capacities=parts, pending_points=points(pending, seed=5))
    assert observed.has_enough_capacities == modelled
    if not modelled:
        assert SurrogateModel.fit(GRID, observed).composite_model is None


@pytest.mark.parametrize("explained", [True, False])
def test_parts_are_modelled_only_while_they_explain_the_peaks(explained: bool) -> None:
    """Of two tiers the narrower limits the stack, or else what is told of them is chance."""
    rng, tiers = np.random.default_rng(4), ("a", "b")
    dimensions = [dimension(f"{tier}.x.p{n}", baseline=0.5, low=0.0, high=1.0)
                  for tier in tiers for n in range(3)]  # fmt: skip
    grid = ParameterGrid.from_dimensions(dimensions, {d.name: 0.5 for d in dimensions})
    at = (rng.random((24, 6)) * grid.level_counts).astype(np.intp)
    rates = -3.0 * (at[:, [0, 3]] / 100 - np.array([0.7, 0.3])) ** 2
    told = rates if explained else rng.normal(0, 1.0, rates.shape)
    log_peaks = rates.min(axis=1) + rng.normal(0, 0.02, len(at))
    parts = tuple(
        {
            tier: InstanceCapacity(float(log), 0.1, (tier,))
            for tier, log in zip(tiers, row, strict=True)
        }
        for row in told
    )
    observed = replace(observe(at, log_peaks), capacities=parts)
    assert (SurrogateModel.fit(grid, observed).composite_model is not None) == explained
