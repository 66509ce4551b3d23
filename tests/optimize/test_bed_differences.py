"""Test beds told apart, and a gain claimed across them."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest

from autotune.estimate import Estimate
from autotune.optimize.bed_differences import BedReading, estimate_offsets
from autotune.optimize.confirmation import Proof, SideMeasurement, is_winner_turn

TRUE = {"a": 0.0, "b": log(0.8), "c": log(1.25)}
NOISES = {"a": 0.03, "b": 0.03, "c": 0.15}


def readings(rng: np.random.Generator, repeats: int) -> list[BedReading]:
    """Each configuration on each bed, again and again, and one that a single bed measured."""
    shared = [
        BedReading(c, bed, Estimate(7.0 + 0.3 * c + TRUE[bed] + NOISES[bed] * rng.normal(), 0.01))
        for c in range(2)
        for bed in TRUE
        for _ in range(repeats)
    ]
    return [*shared, BedReading(99, "a", Estimate(9.0, 0.01))]


def test_offsets_are_relative_to_an_average_bed_and_as_sure_as_they_say() -> None:
    rng, inside = np.random.default_rng(1), 0
    for _ in range(100):
        learned = estimate_offsets(readings(rng, 3), list(TRUE))
        mean = sum(TRUE.values()) / len(TRUE)
        assert sum(o.log for o in learned.values()) == pytest.approx(0.0, abs=1e-9)
        inside += sum(abs(o.log - (TRUE[bed] - mean)) < 1.645 * o.sd for bed, o in learned.items())
    assert 0.84 <= inside / 300 <= 0.99


def test_beds_that_are_alike_get_no_offset_from_noise() -> None:
    rng, beds = np.random.default_rng(5), [f"bed{n}" for n in range(8)]
    baselines = [BedReading(0, bed, Estimate(7.0 + 0.03 * rng.normal(), 0.02)) for bed in beds]
    offsets = estimate_offsets(baselines, beds)
    assert {*offsets} == {*beds}
    for offset in offsets.values():
        assert abs(offset.log) < 0.015
        assert offset.sd < 0.03


def test_a_bed_that_scatters_more_counts_less() -> None:
    learned = estimate_offsets(readings(np.random.default_rng(2), 8), list(TRUE))
    assert learned["c"].noise > 2 * learned["a"].noise
    assert learned["c"].excess_sd > 0.05
    assert (
        learned["a"].remove_from_peak(Estimate(7.0, 0.02)).sd
        < learned["c"].remove_from_peak(Estimate(7.0, 0.02)).sd
    )


def test_nothing_is_known_of_beds_that_share_nothing() -> None:
    apart = [BedReading(n, bed, Estimate(7.0, 0.01)) for n, bed in enumerate(TRUE)]
    assert estimate_offsets(apart, list(TRUE)) == {}


def test_what_an_offset_adds_it_removes() -> None:
    offset = estimate_offsets(readings(np.random.default_rng(3), 2), list(TRUE))["b"]
    assert offset.remove_from_peak(
        offset.add_to_peak(Estimate(7.0, 0.02))
    ).log_mean == pytest.approx(7.0)


def alternating(
    rng: np.random.Generator, gain: float, level: float, pairs: int = 3, noise: float = 0.03
) -> list[SideMeasurement]:
    return [
        SideMeasurement(
            is_winner_turn(n),
            Estimate(level + is_winner_turn(n) * log(gain) + noise * rng.normal(), noise),
        )
        for n in range(2 * pairs)
    ]


def proof(rng: np.random.Generator, *gains: float, pairs: int = 3) -> Proof:
    """One bed for each gain, unequal ones."""
    return Proof(
        {f"bed{n}": alternating(rng, gain, 7.0 + 0.2 * n, pairs) for n, gain in enumerate(gains)}
    )


def test_without_a_gain_hardly_any_claim_and_intervals_that_cover() -> None:
    rng = np.random.default_rng(4)
    proofs = [proof(rng, 1.0, 1.0) for _ in range(300)]
    assert sum(p.is_proven for p in proofs) <= 15
    covering = [gain.low <= 1.0 <= gain.high for p in proofs if (gain := p.compute_gain())]
    assert 0.86 <= sum(covering) / len(covering) <= 0.97


def test_a_gain_that_beds_agree_on_is_proven_by_a_pair_of_each() -> None:
    agreeing = proof(np.random.default_rng(5), 1.3, 1.3, 1.3, pairs=1)
    assert agreeing.is_proven
    assert not agreeing.beds_disagree
    assert set(agreeing.gain_by_bed) == {"bed0", "bed1", "bed2"}
    assert agreeing.compute_gain() is not None


def test_beds_that_disagree_widen_the_interval_to_that_of_so_few_beds() -> None:
    rng = np.random.default_rng(6)
    split, same = proof(rng, 1.6, 1.1), proof(rng, 1.33, 1.33)
    assert split.beds_disagree
    assert not same.beds_disagree
    wide, narrow = split.compute_gain(), same.compute_gain()
    assert wide is not None and narrow is not None  # noqa: PT018
    assert log(wide.high / wide.low) > 3 * log(narrow.high / narrow.low)
    assert wide.low < exp(log(1.1)) < wide.high


@pytest.mark.parametrize("beds", [2, 4])
def test_the_interval_of_beds_that_disagree_covers_the_gain_of_further_beds(beds: int) -> None:
    rng = np.random.default_rng(11)
    proofs = [proof(rng, *np.exp(rng.normal(0.2, 0.15, beds))) for _ in range(300)]
    gains = [one.compute_gain() for one in proofs if one.beds_disagree]
    covering = [gain.low <= exp(0.2) <= gain.high for gain in gains if gain]
    assert len(covering) > 100
    assert sum(covering) / len(covering) >= 0.84


def test_what_is_worse_on_a_bed_is_not_claimed() -> None:
    rng = np.random.default_rng(7)
    assert not proof(rng, 2.0, 2.0, 2.0, 2.0, 0.9, pairs=6).is_proven


def test_nothing_is_decided_before_a_second_bed_has_a_pair() -> None:
    rng = np.random.default_rng(8)
    measured = dict(proof(rng, 1.5, 1.5).measured)
    assert Proof(measured).is_decided
    assert not Proof({**measured, "bed1": []}).is_decided
    assert Proof({"bed0": measured["bed0"]}).is_decided


def test_disagreement_is_seldom_seen_where_there_is_none() -> None:
    rng = np.random.default_rng(9)
    assert sum(proof(rng, 1.2, 1.2, 1.2).beds_disagree for _ in range(300)) <= 30
