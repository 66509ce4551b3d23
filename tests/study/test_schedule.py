"""What is measured next once the search has ended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotune.environments.peak import Peak
from autotune.space.space import SearchSpace
from autotune.study.alternation import MAX_FAILED_CONFIRMATIONS
from autotune.study.ranking import find_best_trial, select_finalist_pair
from autotune.study.schedule import select_next_step
from autotune.study.schedule_steps import ConcludeStep, MeasureStep, SimplifyStep
from autotune.study.state_replay import apply_record
from autotune.study.study_state import Phase, State, Trial
from autotune.study.winner_changes import Simplification
from autotune.target.model import Budget
from tests.study.ranked import ADVICE, OTHER, PROOF, STOCK, believed, measured_again

LIMITED = Peak(80.0, 80.0, 80.0, 0.03, "limited", limit="load.max_rate")


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


@pytest.mark.parametrize(
    "outcome", [{"failure": "the load broke", "is_fault": True}, {"peak": LIMITED}]
)
def test_a_resumed_study_continues_a_proof_that_stopped_after_faults(
    outcome: dict[str, Any],
) -> None:
    """The cause of the faults, such as a low load.max_rate, may have been fixed since then."""
    state = believed((STOCK, 90.0), (ADVICE, 100.0), (OTHER, 120.0), sd=0.02)
    state = measured_again(state, Phase.FINALIST, (2, 121.0), (1, 100.0))
    state = replace(state, simplification=Simplification(), seconds={"load": 60.0})
    state = measured_again(state, Phase.CONFIRM, PROOF[0])
    space, budget = SearchSpace((), (), {}), Budget.model_construct(trials=3, time=3600.0)
    for session in range(2):
        step = select_next_step(state, space, budget, 60.0)
        assert isinstance(step, MeasureStep), session
        assert (step.phase, step.source_trial) == (Phase.CONFIRM, 2)
        faults = [
            Trial(len(state.trials) + n, Phase.CONFIRM, {}, source_trial=2, **outcome)
            for n in range(MAX_FAILED_CONFIRMATIONS + 1)
        ]
        state = replace(state, trials=(*state.trials, *faults))
        assert select_next_step(state, space, budget, 60.0) == ConcludeStep()
        state = apply_record(state, {"event": "session"})


def test_a_resumed_study_measures_finalists_again_that_showed_nothing() -> None:
    state = believed((STOCK, 90.0), (ADVICE, 112.0), (OTHER, 120.0))
    faults = [
        Trial(3 + n, Phase.FINALIST, {}, source_trial=of, failure="no load", is_fault=True)
        for n, of in enumerate((2, 1))
    ]
    state = replace(state, trials=(*state.trials, *faults), seconds={"load": 100.0})
    space, budget = SearchSpace((), (), {}), Budget.model_construct(trials=3, time=3600.0)
    assert select_next_step(state, space, budget, 100.0) == SimplifyStep(2)
    resumed = apply_record(state, {"event": "session"})
    step = select_next_step(resumed, space, budget, 100.0)
    assert isinstance(step, MeasureStep)
    assert (step.phase, step.source_trial) == (Phase.FINALIST, 2)


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
