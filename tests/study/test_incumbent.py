"""The peak to beat, and presets that were pruned against one that did not last."""

from __future__ import annotations

from dataclasses import replace
from math import log, sqrt

import pytest

from autotune.environments.load_session import UNMEASURED_PEAK_SD
from autotune.environments.peak import Peak
from autotune.study.incumbent import (
    find_doubtful_pruning,
    find_incumbent,
    find_rough_incumbent,
    is_exploring,
)
from autotune.study.ranking import estimate_candidate_peaks
from autotune.study.schedule import REFERENCE_INTERVAL_TRIALS
from autotune.study.schedule_steps import MeasureStep
from autotune.study.study_drift import find_reference
from autotune.study.study_loop import REPEAT_LOG_SD, estimate_expected_peak
from autotune.study.study_state import Phase, State, Trial
from tests.study.test_reference import trial

GATE = 0.2


def studied(*trials: Trial) -> State:
    return State(trials=trials, seconds={"load": 1.0})


def pruned(number: int, phase: Phase, ceiling: float) -> Trial:
    """A trial that was given up: most likely 360/s, and hardly more than ``ceiling``."""
    return replace(trial(number, phase, 360.0), peak=Peak(360.0, 300.0, ceiling, 0.1, "screened"))


def test_it_is_the_best_measured_in_full() -> None:
    state = studied(
        trial(0, Phase.BASELINE, 300.0),
        trial(1, Phase.RECOMMENDED, 500.0),
        pruned(2, Phase.ADVISED, 900.0),
    )
    to_beat = find_incumbent(state)
    assert to_beat is not None
    assert to_beat.value == pytest.approx(500.0)


def test_a_reference_measured_again_corrects_it() -> None:
    state = studied(
        trial(0, Phase.BASELINE, 381.0),
        trial(1, Phase.SEARCH, 350.0),
        trial(2, Phase.REFERENCE, 300.0, of=0),
    )
    to_beat = find_incumbent(state)
    assert to_beat is not None
    assert to_beat.value == pytest.approx(350.0)
    only = studied(state.trials[0], state.trials[2])
    to_beat = find_incumbent(only)
    assert to_beat is not None
    assert to_beat.value == pytest.approx(sqrt(381.0 * 300.0), rel=0.01)


def test_a_preset_pruned_against_a_lucky_reading_is_measured_once_more() -> None:
    before = (trial(0, Phase.BASELINE, 450.0), pruned(1, Phase.ADVISED, 400.0))
    assert find_doubtful_pruning(studied(*before), GATE) is None
    after = (*before, trial(2, Phase.REFERENCE, 300.0, of=0))
    doubtful = find_doubtful_pruning(studied(*after), GATE)
    assert doubtful is not None
    assert doubtful.number == 1
    again = trial(3, Phase.ADVISED, 420.0, of=1)
    state = studied(*after, again)
    assert find_doubtful_pruning(state, GATE) is None
    # It stands for the preset from now on.
    assert estimate_candidate_peaks(state)[1].value == pytest.approx(420.0)
    assert find_reference(studied(*before, again)) == before[0]


@pytest.mark.parametrize(
    ("phase", "ceiling", "lower"),
    [
        (Phase.ADVISED, 370.0, 440.0),  # far behind all the same
        (Phase.SEARCH, 400.0, 300.0),  # what the search suggested is left to the search
    ],
)
def test_others_are_left_alone(phase: Phase, ceiling: float, lower: float) -> None:
    state = studied(
        trial(0, Phase.BASELINE, 450.0),
        pruned(1, phase, ceiling),
        trial(2, Phase.REFERENCE, lower, of=0),
    )
    assert find_doubtful_pruning(state, GATE) is None


def test_the_reference_stays_the_same_configuration() -> None:
    """A series of several configurations would show their differences as drift."""
    state = studied(
        trial(0, Phase.BASELINE, 450.0),
        *(trial(n, Phase.SEARCH, 100.0) for n in range(1, REFERENCE_INTERVAL_TRIALS)),
        trial(REFERENCE_INTERVAL_TRIALS, Phase.REFERENCE, 300.0, of=0),
        trial(REFERENCE_INTERVAL_TRIALS + 1, Phase.ADVISED, 900.0, of=1),
    )
    chosen = find_reference(state)
    assert chosen is not None
    assert chosen.number == 0


@pytest.mark.parametrize("again", [Phase.FINALIST, Phase.ADVISED])
def test_a_pruned_configuration_says_less_of_what_to_expect(again: Phase) -> None:
    state = studied(trial(0, Phase.BASELINE, 450.0), pruned(1, Phase.ADVISED, 400.0))
    expected = estimate_expected_peak(state, MeasureStep(again, {}, source_trial=1))
    assert expected is not None
    assert expected.value == pytest.approx(450.0)
    assert expected.sd > REPEAT_LOG_SD
    in_full = replace(state, trials=(*state.trials, trial(2, Phase.ADVISED, 420.0, of=1)))
    expected = estimate_expected_peak(in_full, MeasureStep(again, {}, source_trial=1))
    assert expected is not None
    assert (expected.value, expected.sd) == (pytest.approx(420.0), REPEAT_LOG_SD)


def test_a_rough_peak_says_less_of_what_to_expect() -> None:
    rough = replace(trial(1, Phase.SEARCH, 900.0), peak=Peak(900.0, 720.0, 1125.0, 0.13, "rough"))
    state = studied(trial(0, Phase.BASELINE, 450.0), rough)
    expected = estimate_expected_peak(state, MeasureStep(Phase.FINALIST, {}, source_trial=1))
    assert expected is not None
    assert expected.sd == 0.13


@pytest.mark.parametrize(
    ("peaks", "exploring"),
    [
        ([], False),
        ([38.0], False),  # nothing to compare
        ([38.0, 129.0], True),
        ([38.0, 129.0, 120.0, 60.0], True),
        ([38.0, 129.0, 120.0, 60.0, 125.0, 130.0], False),  # no rise in the last four
        ([38.0, 129.0, 120.0, 60.0, 125.0, 130.0, 400.0], True),
        ([500.0, 520.0, 610.0], False),
        ([500.0, None, 300.0], False),
    ],
)
def test_the_search_explores_while_peaks_rise_by_factors(
    peaks: list[float | None], exploring: bool
) -> None:
    trials = [trial(n, Phase.SEARCH if n else Phase.BASELINE, peak) for n, peak in enumerate(peaks)]
    assert is_exploring(studied(*trials)) is exploring


def test_a_pruned_ceiling_is_no_rise() -> None:
    state = studied(trial(0, Phase.BASELINE, 450.0), pruned(1, Phase.SEARCH, 900.0))
    assert not is_exploring(replace(state, trials=(*state.trials, pruned(2, Phase.SEARCH, 990.0))))


def roughly(number: int, peak: float) -> Trial:
    return replace(
        trial(number, Phase.SEARCH, peak), peak=Peak(peak, 0.8 * peak, 1.25 * peak, 0.13, "rough")
    )


def test_a_rough_incumbent_is_measured_again_once() -> None:
    """The best of several rough peaks is too high, and would prune what is better."""
    state = studied(trial(0, Phase.BASELINE, 450.0), roughly(1, 900.0), roughly(2, 700.0))
    assert find_rough_incumbent(state) == state.trials[1]
    again = replace(trial(3, Phase.SEARCH, 800.0), source_trial=1)
    assert find_rough_incumbent(replace(state, trials=(*state.trials, again))) is None
    under_way = replace(again, peak=None, bed="b1")
    beds = replace(state, trials=(*state.trials, under_way), beds=("b1",))
    assert find_rough_incumbent(beds) is None
    # A rival that is best after that is measured again, too.
    worse = replace(again, peak=Peak(600.0, 570.0, 630.0, 0.03, "measured"))
    second = replace(state, trials=(*state.trials, worse))
    assert find_rough_incumbent(second) == state.trials[2]
    precise = studied(trial(0, Phase.BASELINE, 450.0), trial(1, Phase.SEARCH, 900.0))
    assert find_rough_incumbent(precise) is None


@pytest.mark.parametrize(
    ("phase", "baseline_peak", "sd"),
    [
        (Phase.CONFIRM, 400.0, log(900.0 / 400.0) / 2),
        (Phase.CONFIRM, 30.0, UNMEASURED_PEAK_SD),
        (Phase.CONFIRM, 890.0, REPEAT_LOG_SD),
        (Phase.CONFIRM, None, REPEAT_LOG_SD),
        (Phase.FINALIST, 400.0, REPEAT_LOG_SD),
    ],
)
def test_the_proof_can_correct_a_wrong_peak_of_one_side(
    phase: Phase, baseline_peak: float | None, sd: float
) -> None:
    state = studied(trial(0, Phase.BASELINE, baseline_peak), trial(1, Phase.SEARCH, 900.0))
    expected = estimate_expected_peak(state, MeasureStep(phase, {}, source_trial=1))
    assert expected is not None
    assert expected.sd == pytest.approx(sd)


@pytest.mark.parametrize(("source_trial", "expected_peak"), [(1, 900.0), (2, 600.0)])
def test_a_simplified_winner_is_expected_where_it_was_measured(
    source_trial: int, expected_peak: float
) -> None:
    """And the leader where the leader was measured, although its number stands for both."""
    state = studied(
        trial(0, Phase.BASELINE, 450.0),
        trial(1, Phase.SEARCH, 900.0),
        trial(2, Phase.SIMPLIFIED, 600.0, of=1),
    )
    step = MeasureStep(Phase.CONFIRM, {}, source_trial=source_trial)
    expected = estimate_expected_peak(state, step)
    assert expected is not None
    assert expected.value == pytest.approx(expected_peak)
    assert expected.sd == pytest.approx(log(900.0 / 450.0) / 2)
    # Repeats in the proof do not replace the first measurement.
    proof = trial(3, Phase.CONFIRM, 700.0, of=source_trial)
    later = estimate_expected_peak(studied(*state.trials, proof), step)
    assert later is not None
    assert later.value == pytest.approx(expected_peak)
