"""Which configurations are measured again once the search has ended."""

from __future__ import annotations

from dataclasses import replace
from math import hypot
from typing import Any

import pytest

from autotune.environments.peak import Peak
from autotune.study.proof import decide_verdict
from autotune.study.ranking import (
    estimate_measurement_sd,
    find_best_preset,
    find_best_trial,
    is_clearly_worse,
    is_undecided,
    select_finalist_pair,
    select_finalists,
)
from autotune.study.study_state import Phase, State, Trial
from tests.study.ranked import ADVICE, OTHER, STOCK, Placed, believed, measured_again


@pytest.mark.parametrize(
    ("peaks", "chosen"),
    [
        # The baseline is measured for the proof anyway.
        ([(STOCK, 200.0), (OTHER, 120.0), (OTHER, 110.0)], (1, 2)),
        # What guides advise comes before another lucky one, as long as it may be the best …
        ([(STOCK, 90.0), (ADVICE, 112.0), (OTHER, 120.0), (OTHER, 115.0)], (2, 1)),
        ([(STOCK, 90.0), (ADVICE, 120.0), (OTHER, 112.0), (OTHER, 115.0)], (1, 3)),
        # … the better of two of them, and none that is clearly behind.
        ([(STOCK, 90.0), (ADVICE, 110.0), (ADVICE, 112.0), (OTHER, 120.0), (OTHER, 119.0)], (3, 2)),
        ([(STOCK, 90.0), (ADVICE, 80.0), (OTHER, 120.0), (OTHER, 115.0)], (2, 3)),
    ],
)  # fmt: skip
def test_the_leaders_and_the_best_advice(peaks: list[Placed], chosen: tuple[int, ...]) -> None:
    assert select_finalists(believed(*peaks), max_count=2, min_count=2) == chosen


def test_more_of_them_where_they_are_hard_to_tell_apart() -> None:
    peaks = [(STOCK, 90.0), (OTHER, 120.0), (OTHER, 119.0), (OTHER, 118.0), (OTHER, 60.0)]
    assert select_finalists(believed(*peaks), max_count=4, min_count=2) == (1, 2, 3)


@pytest.mark.parametrize(
    ("again", "winner"),
    [
        ([(2, 122.0), (1, 118.0)], 1),  # a lucky tie is no reason to leave what guides advise
        ([(2, 125.0), (1, 105.0)], 2),
        ([(2, 110.0), (1, 118.0)], 1),
    ],
)
def test_the_best_preset_wins_unless_another_is_likely_to_be_better(
    again: list[tuple[int, float]], winner: int
) -> None:
    state = believed((STOCK, 90.0), (ADVICE, 115.0), (OTHER, 120.0), sd=0.06)
    assert find_best_trial(measured_again(state, Phase.FINALIST, *again)) == winner


@pytest.mark.parametrize(
    ("again", "outcome", "winner"),
    [
        ((2, 108.0), None, 1),  # the time ended before the preset was measured again
        ((2, 130.0), None, 2),
        ((2, 108.0), {"failure": "the load broke", "is_fault": True}, 1),
        ((2, 108.0), {"failure": "it stopped"}, 2),
    ],
)
def test_a_leader_beats_the_best_preset_even_if_only_the_leader_was_measured_again(
    again: tuple[int, float], outcome: dict[str, Any] | None, winner: int
) -> None:
    state = believed((STOCK, 90.0), (ADVICE, 115.0), (OTHER, 120.0), sd=0.06)
    state = measured_again(state, Phase.FINALIST, again)
    if outcome is not None:
        failed = Trial(len(state.trials), Phase.FINALIST, {}, source_trial=1, **outcome)
        state = replace(state, trials=(*state.trials, failed))
    assert find_best_trial(state) == winner


def test_a_preset_that_is_far_behind_is_no_rival_of_two_finalists() -> None:
    state = believed((STOCK, 90.0), (ADVICE, 80.0), (OTHER, 120.0), (OTHER, 118.0), sd=0.06)
    state = measured_again(state, Phase.FINALIST, (2, 121.0), (3, 120.0))
    assert select_finalist_pair(state) == (2, 3)


def test_the_preset_that_leads_needs_no_rival() -> None:
    assert select_finalist_pair(believed((STOCK, 90.0), (ADVICE, 120.0), (OTHER, 115.0))) is None


def test_one_lucky_reading_does_not_take_the_place_of_the_best_preset() -> None:
    """However little noise the model believes in, as it does after a few trials of many parameters."""
    state = believed((STOCK, 90.0), (ADVICE, 115.0), (OTHER, 117.0), sd=0.05)
    assert state.posterior is not None
    state = replace(state, posterior=replace(state.posterior, noise=0.01))
    state = measured_again(state, Phase.FINALIST, (1, 115.0), (2, 121.0))
    assert find_best_trial(state) == 1
    assert (
        find_best_trial(measured_again(state, Phase.RUNNER_UP, (2, 123.0), (1, 114.0), (2, 124.0)))
        == 2
    )
    # A command says itself how exact its values are.
    assert find_best_trial(replace(state, values={1: {}})) == 2


@pytest.mark.parametrize(
    ("phase", "winner"), [(Phase.REFERENCE, 1), (Phase.FINALIST, 1), (Phase.CONFIRM, 2)]
)
def test_where_repeats_scatter_more_it_takes_more_than_one_reading(
    phase: Phase, winner: int
) -> None:
    """Repeats of the baseline, to leave the estimates of the others alone. Those of the proof come too
    late to choose by."""
    state = believed((STOCK, 90.0), (ADVICE, 110.0), (OTHER, 112.0), sd=0.06)
    state = measured_again(state, Phase.FINALIST, (1, 110.0), (2, 130.0))
    assert find_best_trial(state) == 2
    repeats = ((0, 80.0), (0, 112.0), (0, 80.0), (0, 112.0))
    assert find_best_trial(measured_again(state, phase, *repeats)) == winner


def test_a_preset_that_failed_after_it_was_compared_leaves_the_next_one_to_compare() -> None:
    """The pause before the second half of the pair was long, so the whole pair was repeated."""
    state = believed((STOCK, 90.0), (ADVICE, 115.0), (ADVICE, 114.0), (OTHER, 120.0), sd=0.06)
    state = measured_again(state, Phase.FINALIST, (3, 121.0))
    state = measured_again(state, Phase.RUNNER_UP, (1, 118.0))
    failed = Trial(len(state.trials), Phase.RUNNER_UP, {}, source_trial=1, failure="it stopped")
    state = replace(state, trials=(*state.trials, failed))
    pair = select_finalist_pair(state)
    assert pair == (3, 2)
    assert is_undecided(state, *pair)


@pytest.mark.parametrize(("noise", "least"), [(0.005, 0.05), (0.2, 0.2)])
def test_a_measurement_is_as_uncertain_as_readings_usually_are(noise: float, least: float) -> None:
    state = believed((STOCK, 90.0), (OTHER, 120.0))
    assert state.posterior is not None
    state = replace(state, posterior=replace(state.posterior, noise=noise))
    sd = estimate_measurement_sd(state, state.trials[1])
    assert sd == pytest.approx(hypot(least, state.trials[1].peak.sd))
    # A command says itself how exact its values are.
    values = replace(state, values={1: {}})
    assert estimate_measurement_sd(values, state.trials[1]) == pytest.approx(
        hypot(noise, state.trials[1].peak.sd)
    )


def test_without_finals_nobody_is_compared_and_the_leader_is_proven() -> None:
    """A budget that had no time for them: half a pair must not be all that is known."""
    state = believed((STOCK, 90.0), (ADVICE, 115.0), (OTHER, 120.0), sd=0.06)
    assert select_finalist_pair(state) is None
    assert select_finalist_pair(measured_again(state, Phase.RUNNER_UP, (1, 118.0))) is None


@pytest.mark.parametrize(("peak", "less"), [(118.0, False), (112.0, False), (95.0, True)])
def test_a_block_that_clearly_carries_less_is_no_disturbance(peak: float, less: bool) -> None:
    state = believed((STOCK, 50.0), (ADVICE, 60.0), (OTHER, 120.0), sd=0.04)
    state = measured_again(state, Phase.FINALIST, (2, 121.0), (1, 60.0))
    state = measured_again(state, Phase.SIMPLIFIED, (2, peak))
    assert is_clearly_worse(state, 2, state.trials[-1:]) is less


@pytest.mark.parametrize("confirmed", range(1, 9))
def test_what_is_proven_is_chosen_once_and_for_all(confirmed: int) -> None:
    """However much the proof scatters: a winner that changes under it would prove something else."""
    state = believed((STOCK, 90.0), (ADVICE, 118.0), (OTHER, 120.0), sd=0.02)
    state = measured_again(state, Phase.FINALIST, (2, 124.0), (1, 112.0))
    assert find_best_trial(state) == 2
    pairs = [
        (0, 50.0),
        (2, 160.0),
        (2, 60.0),
        (0, 120.0),
        (0, 55.0),
        (2, 150.0),
        (2, 70.0),
        (0, 99.0),
    ]
    state = measured_again(state, Phase.CONFIRM, *pairs[:confirmed])
    assert find_best_trial(state) == decide_verdict(state).best == 2


@pytest.mark.parametrize(
    ("verdicts", "best"),
    [
        (("measured", "measured"), 2),
        (("measured", "screened"), 1),
        (("screened", "screened"), None),
    ],
)
def test_a_pruned_preset_is_not_the_best_preset(
    verdicts: tuple[str, str], best: int | None
) -> None:
    peaks = [
        Peak(100.0, 90.0, 110.0, 0.05, verdicts[0]),
        Peak(110.0, 99.0, 121.0, 0.05, verdicts[1]),
    ]
    presets = [Trial(n, Phase.ADVISED, {}, peak=peak) for n, peak in enumerate(peaks, 1)]
    stock = Trial(0, Phase.BASELINE, {}, peak=Peak(90.0, 81.0, 99.0, 0.05, "measured"))
    preset = find_best_preset(State(trials=(stock, *presets)))
    assert (preset.number if preset else None) == best
