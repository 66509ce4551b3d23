"""Which configurations are measured again once the search has ended."""

from __future__ import annotations

from dataclasses import replace
from math import hypot
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.environments.peak import Peak
from autotune.estimate import Estimate
from autotune.optimize.ranking import PosteriorPeaks
from autotune.space.space import SearchSpace
from autotune.study.alternation import (
    MAX_RUNNER_UP_PAIRS,
    MIN_BLOCKS,
    _plan_alternation,
    plan_runner_up,
)
from autotune.study.proof import decide_verdict, list_confirmations
from autotune.study.ranking import (
    find_best_preset,
    find_best_trial,
    is_clearly_worse,
    select_finalist_pair,
    select_finalists,
)
from autotune.study.schedule import _plan_interrupted_trial, select_next_step
from autotune.study.schedule_steps import ConcludeStep, MeasureStep, SimplifyStep
from autotune.study.study_drift import list_bed_readings
from autotune.study.study_state import Phase, State, StudyPause, Trial
from autotune.study.time_budget import compute_average_trial_seconds, compute_min_proof_seconds
from autotune.study.winner_changes import Simplification
from autotune.target.model import Budget

Placed = tuple[Phase, float]
STOCK, ADVICE, OTHER = Phase.BASELINE, Phase.RECOMMENDED, Phase.SEARCH


def believed(*peaks: Placed, sd: float = 0.05) -> State:
    """A searched state: where the model stands on each trial, in order."""
    measured = Peak(100.0, 90.0, 110.0, sd, "measured")
    trials = [Trial(n, phase, {}, peak=measured) for n, (phase, _) in enumerate(peaks)]
    posterior = PosteriorPeaks(
        {n: Estimate.from_value(peak, sd) for n, (_, peak) in enumerate(peaks)}, sd
    )
    return State(trials=tuple(trials), posterior=posterior)


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


def measured_again(state: State, phase: Phase, *peaks: tuple[int, float]) -> State:
    more = tuple(
        Trial(
            len(state.trials) + n,
            phase,
            {},
            source_trial=of,
            peak=Peak(peak, peak, peak, 0.03, "measured"),
        )
        for n, (of, peak) in enumerate(peaks)
    )
    return replace(state, trials=(*state.trials, *more))


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


def test_leader_and_preset_are_compared_before_anything_is_claimed() -> None:
    state = believed((STOCK, 90.0), (ADVICE, 115.0), (OTHER, 120.0), sd=0.06)
    state = measured_again(state, Phase.FINALIST, (2, 121.0), (1, 118.0))
    assert select_finalist_pair(state) == (2, 1)
    space, budget = SearchSpace((), (), {}), Budget.model_construct(trials=3, time=3600.0)
    state = replace(state, seconds={"load": 60.0})
    step = select_next_step(state, space, budget, 60.0)
    assert isinstance(step, MeasureStep)
    assert (step.phase, step.source_trial) == (Phase.RUNNER_UP, 1)
    # Their pairs count when the winner is chosen, and it is the winner that is compared next.
    decided = measured_again(state, Phase.RUNNER_UP, (1, 100.0), (2, 125.0), (2, 125.0), (1, 100.0))
    assert find_best_trial(decided) == 2
    decided = replace(decided, simplification=Simplification())
    step = select_next_step(decided, space, budget, 60.0)
    assert isinstance(step, MeasureStep)
    assert (step.phase, step.source_trial) == (Phase.CONFIRM, 0)


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


def test_a_preset_that_fails_against_the_leader_is_no_rival_any_more() -> None:
    state = believed((STOCK, 90.0), (ADVICE, 115.0), (OTHER, 120.0), sd=0.06)
    state = replace(measured_again(state, Phase.FINALIST, (2, 121.0)), seconds={"load": 60.0})
    space, budget = SearchSpace((), (), {}), Budget.model_construct(trials=3, time=3600.0)
    fault = Trial(4, Phase.FINALIST, {}, source_trial=1, failure="no load", is_fault=True)
    state = replace(state, trials=(*state.trials, fault))
    step = select_next_step(state, space, budget, 60.0)
    assert isinstance(step, MeasureStep)
    assert (step.phase, step.source_trial) == (Phase.RUNNER_UP, 1)
    failed = Trial(5, Phase.RUNNER_UP, {}, source_trial=1, failure="it stopped")
    state = replace(state, trials=(*state.trials, failed))
    assert find_best_trial(state) == 2
    assert select_next_step(state, space, budget, 60.0) == SimplifyStep(2)


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


def test_after_each_long_pause_the_pair_starts_again() -> None:
    state = believed((STOCK, 90.0), (ADVICE, 115.0), (OTHER, 120.0), sd=0.06)
    for pause_count in range(1, 6):
        step = _plan_alternation(state, Phase.CONFIRM, 2, 0, None, is_stage_over=False)
        assert isinstance(step, MeasureStep)
        assert step.source_trial == 0
        state = measured_again(state, Phase.CONFIRM, (0, 90.0))
        pause = StudyPause(state.trials[-1].number)
        state = replace(state, pauses=(*state.pauses, pause))
        assert (len(state.pauses), list_confirmations(state, 2)) == (pause_count, [])
        assert _plan_alternation(state, Phase.CONFIRM, 2, 0, None, is_stage_over=True) is None


@pytest.mark.parametrize(
    ("finished", "stopped"),
    [
        ((0,), 2),  # before the first pair was complete
        ((0, 2), 2),
        ((0, 2, 2), 0),
        ((0, 2, 2, 0, 0), 2),
    ],
)
def test_a_pair_that_was_stopped_and_starts_again_has_both_sides(
    finished: tuple[int, ...], stopped: int
) -> None:
    """Its interrupted measurement is repeated first, and then the other side is measured."""
    state = believed((STOCK, 90.0), (ADVICE, 115.0), (OTHER, 120.0), sd=0.06)
    state = measured_again(state, Phase.CONFIRM, *((of, 100.0) for of in finished))
    number = len(state.trials)
    interrupted = Trial(number, Phase.CONFIRM, {}, source_trial=stopped)
    state = replace(state, trials=(*state.trials, interrupted), pauses=(StudyPause(number),))
    for expected in (stopped, 2 - stopped):
        step = plan_proof(state)
        assert (step.phase, step.source_trial) == (Phase.CONFIRM, expected)
        state = measured_again(state, Phase.CONFIRM, (expected, 100.0))
    last_pair = list_confirmations(state, 2)[-2:]
    assert [m.is_winner for m in last_pair] == [stopped == 2, stopped == 0]


def plan_proof(state: State) -> MeasureStep:
    """Return the next measurement of a proof of trial 2 that is never over."""
    step = _plan_interrupted_trial(state, None) or _plan_alternation(
        state, Phase.CONFIRM, 2, 0, None, is_stage_over=False
    )
    assert isinstance(step, MeasureStep)
    return step


@given(st.lists(st.sampled_from(["measured", "stopped", "paused", "measured, then paused"])))
def test_wherever_a_study_stops_each_pair_has_both_sides_and_no_pause(events: list[str]) -> None:
    """The peak of each measurement is its session between long pauses."""
    state, session = believed((STOCK, 90.0), (ADVICE, 115.0), (OTHER, 120.0), sd=0.06), 1
    for event in events:
        step, number = plan_proof(state), len(state.trials)
        if event.startswith("measured"):
            state = measured_again(state, Phase.CONFIRM, (step.source_trial or 0, float(session)))
        else:
            trial = Trial(number, Phase.CONFIRM, {}, source_trial=step.source_trial)
            state = replace(state, trials=(*state.trials, trial))
        if event.endswith("paused"):
            state, session = replace(state, pauses=(*state.pauses, StudyPause(number))), session + 1
        measured = list_confirmations(state, 2)
        pairs = list(zip(measured[::2], measured[1::2], strict=False))
        assert all(first.is_winner is not second.is_winner for first, second in pairs)
        assert all(first.peak.value == second.peak.value for first, second in pairs)


def test_two_measurements_of_one_side_on_record_are_no_pair() -> None:
    """As a study may contain them: each is left out if the next one is of the same side."""
    state = believed((STOCK, 90.0), (ADVICE, 115.0), (OTHER, 120.0), sd=0.06)
    sides = ((2, 118.0), (2, 119.0), (2, 120.0), (0, 90.0), (0, 91.0))
    state = measured_again(state, Phase.CONFIRM, *sides)
    measured = list_confirmations(state, 2)
    assert [round(m.peak.value) for m in measured] == [120, 90, 91]
    assert plan_proof(state).source_trial == 2


def test_without_finals_nobody_is_compared_and_the_leader_is_proven() -> None:
    """A budget that had no time for them: half a pair must not be all that is known."""
    state = believed((STOCK, 90.0), (ADVICE, 115.0), (OTHER, 120.0), sd=0.06)
    assert select_finalist_pair(state) is None
    assert select_finalist_pair(measured_again(state, Phase.RUNNER_UP, (1, 118.0))) is None


@pytest.mark.parametrize(("spare_trials", "is_compared"), [(1.9, False), (2.1, True)])
def test_leader_and_rival_are_compared_only_if_time_for_a_pair_is_left(
    spare_trials: float, is_compared: bool
) -> None:
    state = believed((STOCK, 90.0), (ADVICE, 115.0), (OTHER, 120.0), sd=0.06)
    state = measured_again(state, Phase.FINALIST, (2, 121.0), (1, 118.0))
    state = replace(state, seconds={"load": 60.0 * len(state.trials)})
    average = compute_average_trial_seconds(state)
    needed_seconds = compute_min_proof_seconds(state) + (MIN_BLOCKS + spare_trials) * average
    budget = Budget.model_construct(trials=3, time=state.elapsed_seconds + needed_seconds)
    step = plan_runner_up(state, budget, state.elapsed_seconds, None)
    assert isinstance(step, MeasureStep) is is_compared


@pytest.mark.parametrize(
    ("pair_count", "is_over"), [(MAX_RUNNER_UP_PAIRS - 1, False), (MAX_RUNNER_UP_PAIRS, True)]
)
def test_leader_and_rival_that_stay_alike_are_compared_in_so_many_pairs(
    pair_count: int, is_over: bool
) -> None:
    state = believed((STOCK, 90.0), (ADVICE, 119.0), (OTHER, 120.0), sd=0.06)
    state = measured_again(state, Phase.FINALIST, (2, 120.0), (1, 120.0))
    pairs = ((1, 120.0), (2, 120.0), (2, 120.0), (1, 120.0)) * pair_count
    state = measured_again(state, Phase.RUNNER_UP, *pairs[: 2 * pair_count])
    budget = Budget.model_construct(trials=3, time=1e6)
    step = plan_runner_up(state, budget, 60.0, None)
    assert (step is None) is is_over


def test_leaders_are_measured_again_before_time_is_kept_for_simplifying() -> None:
    state = believed((STOCK, 90.0), (ADVICE, 115.0), (OTHER, 120.0), sd=0.06)
    state = replace(state, seconds={"load": 3 * 60.0})
    budget = Budget.model_construct(trials=3, time=60.0 * (3 + 2 + 6))
    step = select_next_step(state, SearchSpace((), (), {}), budget, 3 * 60.0)
    assert isinstance(step, MeasureStep)
    assert step.phase is Phase.FINALIST
    # Rough finalists are measured again even if the measurements of the proof get shorter for it.
    short = Budget.model_construct(trials=3, time=60.0 * (3 + 1.6 + 6))
    rough = replace(state.trials[2], peak=Peak(120.0, 97.0, 149.0, 0.13, "rough"))
    roughly = replace(state, trials=(*state.trials[:2], rough), seconds={"load": 2.5 * 60.0})
    for searched, expected in ((state, False), (roughly, True)):
        step = select_next_step(searched, SearchSpace((), (), {}), short, 3 * 60.0)
        assert (isinstance(step, MeasureStep) and step.phase is Phase.FINALIST) is expected
    # Two of them, where more would leave no time for blocks.
    state = believed((STOCK, 90.0), (ADVICE, 115.0), (OTHER, 120.0), (OTHER, 119.0), sd=0.06)
    state = measured_again(state, Phase.FINALIST, (2, 121.0), (1, 118.0))
    state = replace(state, seconds={"load": 6 * 60.0})
    budget = Budget.model_construct(trials=4, time=60.0 * (6 + 4 + 6))
    step = select_next_step(state, SearchSpace((), (), {}), budget, 6 * 60.0)
    assert isinstance(step, MeasureStep)
    assert step.phase is Phase.RUNNER_UP


def test_repeats_that_scatter_more_than_the_model_believes_widen_the_claim() -> None:
    state = believed((STOCK, 90.0), (OTHER, 120.0), sd=0.01)
    pairs = [(0, 90.0), (1, 120.0), (1, 121.0), (0, 90.0), (0, 91.0), (1, 120.0)]
    calm = measured_again(state, Phase.CONFIRM, *pairs)
    storm = measured_again(state, Phase.FINALIST, (1, 100.0), (1, 145.0), (1, 100.0), (1, 145.0))
    stormy = measured_again(storm, Phase.CONFIRM, *pairs)
    quiet, loud = (list_confirmations(s, 1)[0].peak.sd for s in (calm, stormy))
    assert loud > 3 * quiet


def test_a_winner_is_proven_without_what_does_nothing() -> None:
    state = believed((STOCK, 90.0), (ADVICE, 60.0), (OTHER, 120.0), (OTHER, 100.0), sd=0.04)
    state = measured_again(state, Phase.FINALIST, (2, 121.0), (3, 100.0))
    state = replace(state, seconds={"load": 60.0})
    space, budget = SearchSpace((), (), {}), Budget.model_construct(trials=4, time=3600.0)
    assert select_next_step(state, space, budget, 60.0) == SimplifyStep(2)
    block = Simplification(of=2, settings={"a.b.c": 1}, reverted=("a.b.d",))
    state = replace(state, simplification=block)
    step = select_next_step(state, space, budget, 60.0)
    assert isinstance(step, MeasureStep)
    assert (step.phase, step.source_trial, step.settings) == (Phase.SIMPLIFIED, 2, {"a.b.c": 1})
    simple = measured_again(state, Phase.SIMPLIFIED, (2, 119.0))
    assert find_best_trial(simple) == 2
    # The model is asked again: what it accepts is proven, when it knows of nothing more.
    assert select_next_step(simple, space, budget, 60.0) == SimplifyStep(2)
    number = len(simple.trials) - 1
    done = replace(block, reverted=(), without=("a.b.d",), accepted=number, measured=1)
    simple = replace(simple, simplification=done)
    assert find_best_trial(simple) == number
    step = select_next_step(simple, space, budget, 60.0)
    assert isinstance(step, MeasureStep)
    assert (step.phase, step.source_trial) == (Phase.CONFIRM, 0)
    # Another block is measured as long as there is time to prove what is left.
    following = replace(simple, simplification=replace(done, reverted=("a.b.d", "a.b.e")))
    assert select_next_step(following, space, budget, 60.0).phase is Phase.SIMPLIFIED  # type: ignore[union-attr]
    assert select_next_step(following, space, budget, 3590.0).phase is Phase.CONFIRM  # type: ignore[union-attr]
    # What turns out to have carried some of the gain stays.
    refused = replace(done, accepted=None, without=(), refused=(("a.b.d",),))
    assert find_best_trial(replace(simple, simplification=refused)) == 2
    nothing = replace(state, simplification=Simplification())
    step = select_next_step(nothing, space, budget, 60.0)
    assert isinstance(step, MeasureStep)
    assert step.phase is Phase.CONFIRM


def test_another_leader_is_simplified_anew() -> None:
    """Further finalists, for which time was left, have changed the leader."""
    state = believed((STOCK, 90.0), (ADVICE, 60.0), (OTHER, 120.0), (OTHER, 100.0), sd=0.04)
    state = measured_again(state, Phase.FINALIST, (2, 121.0), (3, 100.0))
    state = measured_again(state, Phase.SIMPLIFIED, (3, 101.0))
    block = Simplification(of=3, settings={"a.b.c": 1}, reverted=("a.b.d",), measured=1)
    state = replace(state, simplification=block, seconds={"load": 60.0})
    space, budget = SearchSpace((), (), {}), Budget.model_construct(trials=4, time=3600.0)
    assert select_next_step(state, space, budget, 60.0) == SimplifyStep(2)


@pytest.mark.parametrize(("peak", "less"), [(118.0, False), (112.0, False), (95.0, True)])
def test_a_block_that_clearly_carries_less_is_no_disturbance(peak: float, less: bool) -> None:
    state = believed((STOCK, 50.0), (ADVICE, 60.0), (OTHER, 120.0), sd=0.04)
    state = measured_again(state, Phase.FINALIST, (2, 121.0), (1, 60.0))
    state = measured_again(state, Phase.SIMPLIFIED, (2, peak))
    assert is_clearly_worse(state, 2, state.trials[-1]) is less


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


PROOF = ((0, 90.0), (2, 121.0), (2, 120.0), (0, 91.0), (0, 90.0), (2, 120.0), (2, 121.0), (0, 90.0))
UNMET = Peak(0.0, 0.0, 0.0, 0.5, "unmeetable")
LIMITED = Peak(80.0, 80.0, 80.0, 0.03, "limited", limit="load.max_rate")


@pytest.mark.parametrize(
    ("failures", "verdict"),
    [
        ((), "improved"),
        (((2, {"failure": "stopped or restarted under load"}),), "no-improvement"),
        (((2, {"peak": UNMET}),), "no-improvement"),
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


def test_nothing_more_is_measured_for_a_winner_that_fails() -> None:
    state = believed((STOCK, 90.0), (ADVICE, 100.0), (OTHER, 120.0), sd=0.02)
    state = measured_again(state, Phase.FINALIST, (2, 121.0), (1, 100.0))
    state = replace(state, simplification=Simplification(), seconds={"load": 60.0})
    space, budget = SearchSpace((), (), {}), Budget.model_construct(trials=3, time=3600.0)
    state = measured_again(state, Phase.CONFIRM, *PROOF[:2])
    step = select_next_step(state, space, budget, 60.0)
    assert isinstance(step, MeasureStep)
    assert (step.phase, step.source_trial) == (Phase.CONFIRM, 2)
    failed = Trial(len(state.trials), Phase.CONFIRM, {}, source_trial=2, failure="it stopped")
    failing = replace(state, trials=(*state.trials, failed))
    assert select_next_step(failing, space, budget, 60.0) == ConcludeStep()


def build_finals(*confirmations: tuple[int, float]) -> State:
    """A study of 60 s per trial, with finals and these measurements of the proof."""
    state = believed((STOCK, 90.0), (ADVICE, 60.0), (OTHER, 92.0), (OTHER, 80.0), sd=0.04)
    state = measured_again(state, Phase.FINALIST, (2, 93.0), (3, 80.0))
    state = measured_again(state, Phase.CONFIRM, *confirmations)
    return replace(
        state, simplification=Simplification(), seconds={"load": 60.0 * len(state.trials)}
    )


ONE_PAIR = ((0, 90.0), (2, 91.0))
THREE_PAIRS = (*ONE_PAIR, (2, 88.0), (0, 91.0), (0, 90.0), (2, 92.0))


@pytest.mark.parametrize(
    ("confirmations", "elapsed_seconds", "is_continued"),
    [
        # Pairs of at least 15 s per side, which may exceed the budget of 1,000 s by less than one pair
        (ONE_PAIR, 999.0, True),
        (ONE_PAIR, 1000.0, False),
        # Pairs of 60 s per side, which must end within the budget
        (THREE_PAIRS, 879.0, True),
        (THREE_PAIRS, 880.0, False),
    ],
)
def test_only_the_pairs_that_a_proof_needs_may_exceed_the_budget(
    confirmations: tuple[tuple[int, float], ...], elapsed_seconds: float, is_continued: bool
) -> None:
    space, budget = SearchSpace((), (), {}), Budget.model_construct(trials=4, time=1000.0)
    step = select_next_step(build_finals(*confirmations), space, budget, elapsed_seconds)
    if is_continued:
        assert isinstance(step, MeasureStep)
        assert step.phase is Phase.CONFIRM
    else:
        assert step == ConcludeStep()


@pytest.mark.parametrize(
    ("block_count", "elapsed_seconds", "phase"),
    [
        (0, 900.0, Phase.SIMPLIFIED),  # 140 s may be enough for the first block and the proof
        (0, 920.0, Phase.CONFIRM),
        (1, 580.0, Phase.SIMPLIFIED),  # seven measurements of 60 s each
        (1, 590.0, Phase.CONFIRM),
    ],
)
def test_the_first_block_is_measured_even_if_less_time_remains_for_the_proof(
    block_count: int, elapsed_seconds: float, phase: Phase
) -> None:
    block = Simplification(
        of=2, settings={"a.b.c": 1}, reverted=("a.b.d",), measured=block_count
    )  # fmt: skip
    state = measured_again(build_finals(), Phase.SIMPLIFIED, *[(2, 92.0)] * block_count)
    state = replace(state, simplification=block, seconds={"load": 60.0 * len(state.trials)})
    space, budget = SearchSpace((), (), {}), Budget.model_construct(trials=4, time=1000.0)
    step = select_next_step(state, space, budget, elapsed_seconds)
    assert isinstance(step, MeasureStep)
    assert step.phase is phase


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


def test_a_peak_of_a_bed_without_drift_is_read_as_it_was_measured() -> None:
    measured = Peak(100.0, 90.0, 110.0, 0.05, "measured")
    trials = tuple(Trial(n, STOCK, {}, peak=measured, bed=bed) for n, bed in enumerate("ab"))
    readings = list_bed_readings(State(trials=trials, beds=("a", "b")))
    assert [(reading.bed, reading.peak) for reading in readings] == [
        ("a", measured.estimate), ("b", measured.estimate)
    ]  # fmt: skip
