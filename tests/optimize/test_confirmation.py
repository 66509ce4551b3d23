from __future__ import annotations

from collections.abc import Sequence
from math import exp

import numpy as np
import pytest

from autotune.estimate import Estimate
from autotune.optimize.confirmation import (
    Proof,
    SideMeasurement,
    compute_gain,
    estimate_repeat_sd,
    is_winner_turn,
)


def readings(
    rng: np.random.Generator,
    ratio: float,
    count: int,
    noise: float,
    drift: float = 0.0,
    told: float | None = None,
) -> list[SideMeasurement]:
    """``told``: the sd that each says of itself, where that is not the ``noise`` there is."""
    found = []
    for index in range(count):
        peak = (
            1000.0
            * (ratio if is_winner_turn(index) else 1.0)
            * exp(rng.normal(0, noise) + drift * index)
        )
        found.append(
            SideMeasurement(is_winner_turn(index), Estimate.from_value(peak, told or noise))
        )
    return found


def proof(measured: Sequence[SideMeasurement]) -> Proof:
    """The proof of a study without test beds."""
    return Proof({None: measured})


def test_sides_alternate_so_that_drift_cancels() -> None:
    assert [is_winner_turn(i) for i in range(8)] == [False, True, True, False] * 2
    rng = np.random.default_rng(1)
    found = compute_gain(readings(rng, 1.2, 8, 1e-9, drift=0.05))
    assert found is not None
    assert found.ratio == pytest.approx(1.2, rel=1e-6)


def test_no_pair_no_gain() -> None:
    assert compute_gain([]) is None
    assert compute_gain([SideMeasurement(False, Estimate.from_value(1000.0, 0.02))]) is None


@pytest.mark.parametrize("pairs", [3, 6])
def test_the_interval_covers_the_true_gain_as_often_as_it_says(pairs: int) -> None:
    rng = np.random.default_rng(7)
    covered = 0
    for index in range(1000):
        # Nobody knows the noise: it is what the measurements say of themselves, or half as much again.
        found = compute_gain(readings(rng, 1.1, 2 * pairs, 0.06 if index % 2 else 0.04, told=0.04))
        assert found is not None
        covered += found.low <= 1.1 <= found.high
    assert 0.86 <= covered / 1000 <= 0.94


def test_without_effect_nothing_is_claimed_even_when_looked_at_after_every_pair() -> None:
    rng = np.random.default_rng(11)
    claims = 0
    for _ in range(1000):
        all_of_them = readings(rng, 1.0, 12, 0.04)
        taken = next((n for n in range(6, 13, 2) if proof(all_of_them[:n]).is_decided), 12)
        claims += proof(all_of_them[:taken]).is_proven
    assert claims / 1000 <= 0.05


def test_fewer_than_three_pairs_prove_nothing() -> None:
    clear = readings(np.random.default_rng(3), 2.0, 12, 0.01)
    assert not proof(clear[:4]).is_proven
    assert proof(clear[:6]).is_proven


def test_noise_twice_what_it_was_taken_for_is_not_claimed_as_a_gain() -> None:
    rng = np.random.default_rng(17)
    claims = 0
    for _ in range(2000):
        measured = readings(rng, 1.0, 12, 0.08, told=0.04)
        taken = next((n for n in range(6, 13, 2) if proof(measured[:n]).is_decided), 12)
        claims += proof(measured[:taken]).is_proven
    assert claims / 2000 <= 0.075


def test_a_clear_gain_is_decided_early() -> None:
    rng = np.random.default_rng(3)
    clear = readings(rng, 2.0, 12, 0.04)
    assert not proof(clear[:4]).is_decided
    assert proof(clear[:6]).is_decided


def test_two_measurements_of_one_side_show_no_gain() -> None:
    winner, baseline = (
        SideMeasurement(is_winner, Estimate.from_value(1000.0, 0.02)) for is_winner in (True, False)
    )
    assert compute_gain([winner, winner]) is None
    assert compute_gain([baseline, baseline]) is None
    found = compute_gain([winner, winner, baseline, winner])
    assert found is not None
    assert found.pairs == 1


def halved(measured: SideMeasurement) -> SideMeasurement:
    return SideMeasurement(
        measured.is_winner, Estimate.from_value(measured.peak.value / 2, measured.peak.sd)
    )


def test_a_disturbed_measurement_takes_its_pair_with_it() -> None:
    rng = np.random.default_rng(5)
    clear = readings(rng, 1.5, 10, 0.03)
    honest = compute_gain(clear)
    hit = [halved(one) if i == 4 else one for i, one in enumerate(clear)]
    found = compute_gain(hit)
    assert found is not None
    assert honest is not None
    assert found.pairs == honest.pairs - 1
    assert found.ratio == pytest.approx(honest.ratio, rel=0.03)


def test_a_configuration_that_varies_is_not_judged_by_its_better_half() -> None:
    rng = np.random.default_rng(5)
    clear = readings(rng, 1.5, 10, 0.02)
    winner_indices = [i for i, one in enumerate(clear) if one.is_winner]
    varying = [halved(one) if i in winner_indices[1:3] else one for i, one in enumerate(clear)]
    found = compute_gain(varying)
    assert found is not None
    assert found.pairs == 5
    assert found.low < 1.0
    assert not proof(varying).is_proven


def test_the_spread_of_repeats_is_that_of_one_measurement() -> None:
    rng = np.random.default_rng(3)
    logs = rng.normal(0, 0.05, (400, 8))
    spreads = [estimate_repeat_sd(list(np.diff(each))) for each in logs]
    assert np.mean(spreads) == pytest.approx(0.05, rel=0.1)


def test_a_disturbed_repeat_is_no_noise() -> None:
    steps = [0.03, -0.05, 0.02, 0.04, -0.03]
    assert estimate_repeat_sd([*steps, -0.4, 0.38]) == pytest.approx(estimate_repeat_sd(steps))
    # Where repeats differ that much all the time, it is.
    assert estimate_repeat_sd([0.4, -0.38, 0.35, -0.4]) > 0.25


@pytest.mark.parametrize("true", [1.06, 1.12, 1.25])
def test_a_proven_gain_is_right_on_average_over_the_proofs(true: float) -> None:
    """Without the correction, six pairs that prove 6 % show 9 % on average."""
    rng, shown, corrected = np.random.default_rng(3), list[float](), list[float]()
    for _ in range(1500):
        pairs = readings(rng, true, 12, 0.05)
        if proof(pairs).is_proven:
            plain, gain = compute_gain(pairs), proof(pairs).compute_proven_gain()
            assert plain is not None
            assert gain is not None
            assert plain.low <= gain.ratio <= plain.ratio
            assert (gain.low, gain.high, gain.pairs) == (plain.low, plain.high, plain.pairs)
            shown.append(plain.ratio)
            corrected.append(gain.ratio)
    assert np.mean(corrected) == pytest.approx(true, abs=0.01)
    assert np.mean(shown) > np.mean(corrected)


def test_a_gain_far_above_the_noise_is_reported_as_measured() -> None:
    pairs = readings(np.random.default_rng(1), 1.8, 6, 0.03)
    plain, gain = compute_gain(pairs), proof(pairs).compute_proven_gain()
    assert plain is not None
    assert gain is not None
    assert gain.ratio == pytest.approx(plain.ratio, rel=1e-6)
    assert proof([]).compute_proven_gain() is None


def build_pairs(ratios: Sequence[float], sd: float) -> list[SideMeasurement]:
    """Return one pair for each ratio of winner and baseline."""
    return [
        SideMeasurement(
            is_winner_turn(index),
            Estimate.from_value(
                1000.0 * (ratios[index // 2] if is_winner_turn(index) else 1.0), sd
            ),
        )
        for index in range(2 * len(ratios))
    ]


@pytest.mark.parametrize(("worse_pairs", "is_proven"), [(0, True), (1, True), (2, False)])
def test_a_single_pair_on_a_bed_does_not_refute_the_gain_of_all_beds(
    worse_pairs: int, is_proven: bool
) -> None:
    noisy_pairs = build_pairs([1.0, 1.2, 1.1, 1.3, 1.02, 1.18] * 2, 0.1)
    both = Proof({"a": noisy_pairs, "b": build_pairs([0.97] * worse_pairs, 0.005)})
    of_other = [gain for bed, gain in both.gain_by_bed.items() if bed == "b"]
    assert [gain.high < 1.0 for gain in of_other] == [True] * bool(worse_pairs)
    gain = both.compute_gain()
    assert gain is not None
    assert gain.low > 1.0
    assert not both.beds_disagree
    assert both.is_proven is is_proven
