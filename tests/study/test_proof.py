from __future__ import annotations

from dataclasses import replace
from math import hypot
from typing import Any

import pytest

from autotune.environments.peak import Peak
from autotune.study.proof import decide_verdict, list_confirmations
from autotune.study.ranking import REPEATED_PHASES, estimate_repeat_noise
from autotune.study.study_state import Phase, StudyPause, Trial
from tests.study.ranked import ADVICE, OTHER, PROOF, STOCK, believed, measured_again

UNMET = Peak(0.0, 0.0, 0.0, 0.5, "unmeetable")
GUESS = Peak(700.0, 300.0, 1600.0, 0.5, "unmet")  # no rate met the objective
LIMITED = Peak(80.0, 80.0, 80.0, 0.03, "limited", limit="load.max_rate")


def test_the_proof_is_as_noisy_as_repeats_are_and_not_noisier() -> None:
    """The spread of repeats has what each of them says of its own imprecision."""
    state = believed((STOCK, 90.0), (ADVICE, 115.0), (OTHER, 120.0), sd=0.06)
    assert state.posterior is not None
    state = replace(state, posterior=replace(state.posterior, noise=0.01))
    alike = ((0, 90.0), (2, 120.0), (2, 121.0), (0, 91.0), (0, 90.0), (2, 120.0))
    apart = ((0, 80.0), (2, 120.0), (2, 145.0), (0, 95.0), (0, 80.0), (2, 121.0))
    own = hypot(measured_again(state, Phase.CONFIRM, *alike).trials[-1].peak.sd, 0.01)
    for readings, expected in ((alike, own), (apart, 0.13)):
        measured = list_confirmations(measured_again(state, Phase.CONFIRM, *readings), 2)
        assert [m.peak.sd for m in measured] == pytest.approx([expected] * 6, rel=0.15)


def test_a_rough_baseline_is_no_repeat_that_shows_noise() -> None:
    state = measured_again(
        believed((STOCK, 90.0), (ADVICE, 115.0), (OTHER, 120.0)), Phase.CONFIRM, *PROOF
    )

    def estimate_noise(verdict: str) -> float:
        baseline = replace(state.trials[0], peak=Peak(92.0, 74.0, 114.0, 0.13, verdict))
        trials = (baseline, *state.trials[1:])
        return estimate_repeat_noise(replace(state, trials=trials), *REPEATED_PHASES)

    assert estimate_noise("rough") == estimate_repeat_noise(state, Phase.CONFIRM)
    assert estimate_noise("rough") != estimate_noise("measured")


@pytest.mark.parametrize(
    ("pauses", "counted"),
    [
        ((), [90.0, 120.0, 121.0, 91.0, 92.0]),
        ((StudyPause(5),), [90.0, 120.0, 91.0, 92.0]),
        ((StudyPause(5, "b"),), [90.0, 120.0, 121.0, 91.0, 92.0]),
        ((StudyPause(4), StudyPause(7)), [90.0, 120.0, 121.0, 91.0]),
    ],
)
def test_half_a_pair_before_a_long_pause_does_not_count(
    pauses: tuple[StudyPause, ...], counted: list[float]
) -> None:
    """Trials 3 to 7 are of the proof, and the fifth of them is alone."""
    state = believed((STOCK, 90.0), (ADVICE, 115.0), (OTHER, 120.0), sd=0.06)
    proof = ((0, 90.0), (2, 120.0), (2, 121.0), (0, 91.0), (2, 92.0))
    measured = list_confirmations(
        replace(measured_again(state, Phase.CONFIRM, *proof), pauses=pauses), 2
    )
    assert [round(m.peak.value, 1) for m in measured] == counted


def test_repeats_that_scatter_more_than_the_model_believes_widen_the_claim() -> None:
    state = believed((STOCK, 90.0), (OTHER, 120.0), sd=0.01)
    pairs = [(0, 90.0), (1, 120.0), (1, 121.0), (0, 90.0), (0, 91.0), (1, 120.0)]
    calm = measured_again(state, Phase.CONFIRM, *pairs)
    storm = measured_again(state, Phase.FINALIST, (1, 100.0), (1, 145.0), (1, 100.0), (1, 145.0))
    stormy = measured_again(storm, Phase.CONFIRM, *pairs)
    quiet, loud = (list_confirmations(s, 1)[0].peak.sd for s in (calm, stormy))
    assert loud > 3 * quiet


@pytest.mark.parametrize(
    ("failures", "verdict"),
    [
        ((), "improved"),
        (((2, {"failure": "stopped or restarted under load"}),), "no-improvement"),
        (((2, {"peak": UNMET}),), "no-improvement"),
        (((2, {"peak": GUESS}),), "improved"),  # it ran out of time, and is repeated
        (((0, {"peak": UNMET}),), "improved"),
        # A disturbance of the whole machine affects both sides.
        (((0, {"peak": UNMET}), (2, {"peak": UNMET})), "improved"),
        (((2, {"failure": "the load broke", "is_fault": True}),), "improved"),
        (((2, {"peak": LIMITED}),), "improved"),
    ],
)
def test_a_winner_that_fails_in_the_proof_is_not_proven(
    failures: tuple[tuple[int, dict[str, Any]], ...], verdict: str
) -> None:
    state = believed((STOCK, 90.0), (ADVICE, 100.0), (OTHER, 120.0), sd=0.02)
    state = measured_again(state, Phase.FINALIST, (2, 121.0), (1, 100.0))
    state = measured_again(state, Phase.CONFIRM, *PROOF)
    for of, outcome in failures:
        trial = Trial(len(state.trials), Phase.CONFIRM, {}, source_trial=of, **outcome)
        state = replace(state, trials=(*state.trials, trial))
    decided = decide_verdict(state)
    assert (decided.verdict, decided.best) == (verdict, 2)
    assert (decided.gain is None) is (verdict == "no-improvement")


@pytest.mark.parametrize("beds", [(), ("a",), ("a", "b")])
def test_a_verdict_contains_the_gain_of_each_bed(beds: tuple[str, ...]) -> None:
    state = believed((STOCK, 90.0), (ADVICE, 100.0), (OTHER, 120.0), sd=0.02)
    state = measured_again(state, Phase.FINALIST, (2, 121.0), (1, 100.0))
    for bed in beds or (None,):
        proven = measured_again(state, Phase.CONFIRM, *PROOF)
        proof_trials = [replace(t, bed=bed) for t in proven.trials[len(state.trials) :]]
        state = replace(state, trials=(*state.trials, *proof_trials))
    verdict = decide_verdict(replace(state, beds=beds))
    assert {bed: gain.pairs for bed, gain in verdict.beds.items()} == dict.fromkeys(beds, 4)
    assert verdict.disagree is (False if beds else None)


def test_guesses_prove_nothing() -> None:
    """No rate met the objective in any measurement of the winner."""
    state = believed((STOCK, 90.0), (ADVICE, 100.0), (OTHER, 120.0), sd=0.02)
    state = measured_again(state, Phase.FINALIST, (2, 121.0), (1, 100.0))
    proven = measured_again(state, Phase.CONFIRM, *PROOF)
    guesses = [
        replace(t, peak=GUESS) if t.phase is Phase.CONFIRM and t.source_trial == 2 else t
        for t in proven.trials
    ]
    assert decide_verdict(proven).verdict == "improved"
    assert decide_verdict(replace(proven, trials=tuple(guesses))).verdict == "no-improvement"
