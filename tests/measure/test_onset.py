from __future__ import annotations

from math import exp, log

import numpy as np
import pytest

from autotune.measure import Slo, logit_normal, onset
from autotune.measure.noise import LOG_RATE_STEP, TABLE_REACH_STEPS
from bench.queues import LiveBench
from bench.servers import Server

ALLOWED, LIMIT = 0.01, 0.05
SOFT_SLOPE = 0.8  # of the rate that the limit's length holds: its decay, soft as services make it


@pytest.mark.parametrize("seconds", [0.5, 2.0, 10.0])
def test_more_load_never_violates_less(seconds: float) -> None:
    for row in onset.compute_onset(ALLOWED, LIMIT, seconds).violation_fraction:
        seen = row[~np.isnan(row)]
        assert np.all(np.diff(seen) >= -1e-9)
        assert np.all((seen >= 0.0) & (seen <= 1.0))


def test_a_long_reading_at_the_peak_shows_the_allowed_fraction() -> None:
    at_peak = onset.compute_onset(ALLOWED, LIMIT, 5000.0).violation_fraction[:, TABLE_REACH_STEPS]
    assert at_peak == pytest.approx(ALLOWED, rel=0.05)


def test_the_slope_at_the_peak_is_the_shapes_own() -> None:
    table = np.log(
        onset.compute_onset(ALLOWED, LIMIT, 5000.0).violation_fraction[
            :, TABLE_REACH_STEPS - 1 : TABLE_REACH_STEPS + 1
        ]
    )
    slopes = np.diff(table, axis=1)[:, 0] / 0.005
    wanted = [shape.slope for shape in onset.ONSET_SHAPES]
    # A floor's slope changes within a step.
    plain = [
        not shape.floor_share or (shape.is_bursty and shape.slope < 20.0)
        for shape in onset.ONSET_SHAPES
    ]
    assert slopes[plain] == pytest.approx(np.array(wanted)[plain], rel=0.01)


def test_overload_seen_for_longer_is_seen_more() -> None:
    steep = [i for i, shape in enumerate(onset.ONSET_SHAPES) if shape.slope > 400.0]
    short, long = (
        onset.compute_onset(ALLOWED, LIMIT, s).violation_fraction[steep, TABLE_REACH_STEPS + 6]
        for s in (1.0, 8.0)
    )
    assert np.all(long > short)


def test_a_reading_shares_its_fate_the_more_the_longer_busy_periods_last() -> None:
    bursts = [
        i for i, shape in enumerate(onset.ONSET_SHAPES) if shape.is_bursty and not shape.floor_share
    ]
    shown = onset.compute_onset(ALLOWED, LIMIT, 2.0)
    at_peak = shown.correlation[bursts, TABLE_REACH_STEPS]
    assert len(bursts) > 4
    assert np.all(np.diff(at_peak) > 0.0)  # steeper onsets are nearer to saturation
    assert np.all((shown.correlation[bursts] >= 0.0) & (shown.correlation[bursts] <= 1.0))
    longer = onset.compute_onset(ALLOWED, LIMIT, 20.0).correlation[bursts, TABLE_REACH_STEPS]
    assert np.all(longer < at_peak)


@pytest.mark.parametrize("allowed", [0.3, 0.05, 0.01, 0.0001])
def test_a_gradual_onset_scatters_less_the_longer_a_reading_is(allowed: float) -> None:
    short, long = (
        onset.compute_onset(allowed, LIMIT, seconds).gradual_onset for seconds in (2.0, 20.0)
    )
    assert short
    assert long
    assert np.all(np.diff(short.logit_sd[:, TABLE_REACH_STEPS]) > 0.0)
    assert np.all(long.logit_sd < short.logit_sd)
    assert np.all((long.logit_sd > 0.3) & (short.logit_sd < logit_normal.MAX_LOGIT_SD))
    assert onset.compute_onset(allowed, LIMIT, 2.0, is_latency=False).gradual_onset is None


def test_likeness_is_that_of_a_queue_simulated_request_by_request() -> None:
    """One worker, exponential services of 5 ms: in theory a slope of 5.4 at 108 requests/s."""
    rng = np.random.default_rng(11)
    peak, lead, seconds = 108.0, 1.0, 2.0
    shares = []
    for _ in range(3000):
        n = rng.poisson(1.2 * peak * (lead + seconds))
        arrivals = np.sort(rng.random(n)) * (lead + seconds)
        services = np.cumsum(rng.exponential(0.005, n))
        begun = np.maximum.accumulate(arrivals - np.concatenate([[0.0], services[:-1]]))
        late = begun + services - arrivals > LIMIT
        shares.append(late[arrivals >= lead].mean())
    mean = float(np.mean(shares))
    counting = mean * (1.0 - mean) / (1.2 * peak * seconds)
    likeness = (float(np.var(shares)) - counting) / (mean * (1.0 - mean))
    shape = [
        i
        for i, s in enumerate(onset.ONSET_SHAPES)
        if s.is_bursty and not s.floor_share and s.slope == 5.0
    ]
    assert len(shape) == 1
    shown = onset.compute_onset(ALLOWED, LIMIT, seconds)
    at = TABLE_REACH_STEPS + round(log(1.2) / LOG_RATE_STEP)
    assert shown.violation_fraction[shape, at] == pytest.approx(mean, rel=0.2)
    assert shown.correlation[shape, at] == pytest.approx(likeness, rel=0.35)


@pytest.mark.parametrize("offset", [-0.06, 0.0])
def test_counts_are_those_of_a_queue_whose_services_matter(offset: float) -> None:
    """Four workers, services of 5 ms, simulated request by request: how often nothing is late, and
    how often more than the allowed fraction."""
    server, slo = Server(workers=4), Slo(quantile=0.99, limit=LIMIT, errors=0.001)
    bench = LiveBench(server, slo, np.random.default_rng(3), noise=0.0, disturbed=0.0)
    peak, seconds = server.peak(slo), 2.0
    readings = [bench(peak * exp(offset), seconds) for _ in range(250)]
    least = np.mean([reading.violations == 0 for reading in readings])
    most = np.mean([reading.violation_fraction > ALLOWED for reading in readings])
    slope = SOFT_SLOPE * LIMIT * peak
    slopes = [shape.slope for shape in onset.ONSET_SHAPES if shape.is_bursty and shape.floor_share]
    shape = min(range(len(slopes)), key=lambda i: abs(log(slopes[i] / slope)))
    gradual, at = (
        onset.compute_onset(ALLOWED, LIMIT, seconds).gradual_onset,
        TABLE_REACH_STEPS + round(offset / LOG_RATE_STEP),
    )
    assert gradual
    counts = gradual.mean_logit[shape, at], gradual.logit_sd[shape, at]
    requests = peak * exp(offset) * seconds
    assert logit_normal.compute_count_likelihood(0.0, requests, *counts) == pytest.approx(
        least, abs=0.1
    )
    assert logit_normal.compute_exceedance_probability(ALLOWED, *counts) == pytest.approx(
        most, abs=0.05
    )


def test_before_any_reading_a_faster_server_is_expected_to_be_steeper() -> None:
    weights = onset.build_prior_shape_weights(np.array([log(100.0), log(10_000.0)]), LIMIT)
    slopes = np.array([shape.slope for shape in onset.ONSET_SHAPES])
    slow, fast = slopes @ weights
    assert weights.sum(axis=0) == pytest.approx([1.0, 1.0])
    assert fast > 3.0 * slow
