"""What of a winner goes back to what runs before it is proven."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from math import exp
from typing import Any

import numpy as np
import optuna
import pytest
from spaces import dimension

from autotune.environments.peak import Peak
from autotune.estimate import MEASUREMENT_LOG_SD, Estimate
from autotune.optimize.ranking import PosteriorPeaks
from autotune.optimize.searcher import Outcome, Searcher
from autotune.optimize.simplify import (
    ACCEPTED_PROBABILITY,
    PROMISING_PROBABILITY,
    compute_keep_probabilities,
    is_expendable,
    revert_changes,
    simplify_winner,
)
from autotune.services.base import Action, Effect, Settings
from autotune.services.diagnosis import Resource
from autotune.space.expression import parse_comparison
from autotune.space.rules import Rule
from autotune.space.space import SearchSpace
from autotune.study.journal_records import RecordedBottleneck
from autotune.study.search_history import record_outcome
from autotune.study.simplification import MAX_UNMEASURED_BLOCKS, select_next_block
from autotune.study.study_state import Phase, State, Trial
from autotune.study.winner_changes import Simplification

MATTERS, RESTARTS = "web.x.p0", ("cache.y.p8", "cache.y.p9")
NAMES = (*(f"web.x.p{n}" for n in range(8)), *RESTARTS)


def _dimension(name: str) -> object:
    found = dimension(name, baseline=0.2, low=0.0, high=1.0)
    action = Action.RESTART if name in RESTARTS else Action.RELOAD
    effect = Effect.CAPACITY if name == MATTERS else Effect.SMALL
    return replace(found, parameter=replace(found.parameter, action=action, effect=effect))


SPACE = SearchSpace(tuple(map(_dimension, NAMES)), (), {})  # type: ignore[arg-type]


def searched(count: int = 24) -> tuple[Searcher, Settings]:
    """A search in which only one parameter matters, and its best: changed everywhere."""
    rng = np.random.default_rng(2)
    search = Searcher(optuna.storages.InMemoryStorage(), "s", SPACE, "gp", 1, 40)
    search.record_outcome(None, SPACE.baseline, Outcome(100 * exp(0.16), {"trial": 0, "sd": 0.02}))
    for number in range(1, count):
        settings = {name: float(rng.random()) for name in NAMES}
        peak = 100 * exp(0.8 * settings[MATTERS] + rng.normal(0, 0.02))
        search.record_outcome(None, settings, Outcome(peak, {"trial": number, "sd": 0.02}))
    return search, dict.fromkeys(NAMES, 0.9)


def test_what_does_nothing_is_reverted_and_what_matters_stays() -> None:
    search, winner = searched()
    found = simplify_winner(search.fit_surrogate(), SPACE, winner)
    assert found.settings[MATTERS] == 0.9
    assert set(RESTARTS) <= set(found.reverted)
    assert len(found.reverted) >= 7
    assert {n: found.settings[n] for n in found.reverted} == dict.fromkeys(found.reverted, 0.2)
    assert found.probability > 0.5


def test_what_hardly_matters_by_what_guides_say_comes_first_and_is_no_block_twice() -> None:
    core = ("web.x.p0", "web.x.p1", "cache.y.p8")
    space = replace(SPACE, dimensions=tuple(
        replace(d, parameter=replace(d.parameter, effect=Effect.CAPACITY)) if d.name in core else d
        for d in SPACE.dimensions
    ))  # fmt: skip
    search, winner = searched()
    unimportant = tuple(name for name in NAMES if name not in core)
    assert simplify_winner(search.fit_surrogate(), space, winner).reverted == unimportant
    more = simplify_winner(
        search.fit_surrogate(), space, winner, accepted_changes=unimportant
    ).reverted
    assert set(unimportant) < set(more)
    assert MATTERS not in more
    others = simplify_winner(
        search.fit_surrogate(), space, winner, rejected_sets=[unimportant]
    ).reverted
    assert others
    assert not set(unimportant) <= set(others)


def test_kept_changes_are_in_no_block() -> None:
    search, winner = searched()
    kept = {"web.x.p3", RESTARTS[0]}
    found = simplify_winner(search.fit_surrogate(), SPACE, winner, kept_changes=kept)
    assert set(found.reverted) == set(NAMES) - kept - {MATTERS}
    # Changes that are kept are left, so all others may be reverted.
    winner = {**SPACE.baseline, "web.x.p3": 0.9, "web.x.p5": 0.9}
    found = simplify_winner(search.fit_surrogate(), SPACE, winner, kept_changes=kept)
    assert found.reverted == ("web.x.p5",)


@pytest.mark.parametrize(("evidence", "service", "keeps"), [
    ("keep connections open (web.x.p3)", "x", True),
    ("raise p3", "x", True),
    ("raise p3", "y", False),  # the service does not have the resource that ran out
    ("raise p33", "x", False),
])  # fmt: skip
def test_what_the_evidence_names_is_not_in_the_first_block(
    evidence: str, service: str, keeps: bool
) -> None:
    search, winner = searched()
    trials = [Trial(n, Phase.SEARCH, {}, peak=_peak(100.0)) for n in range(24)]
    trials.append(Trial(24, Phase.SEARCH, winner, peak=_peak(205.0)))
    found = RecordedBottleneck("web", service, "web1", Resource.CPU, evidence, 0.5, trial=1)
    state = State(tuple(trials), bottlenecks={1: found})
    reverted = select_next_block(state, search.fit_surrogate(), SPACE, 24).reverted
    assert ("web.x.p3" not in reverted) is keeps
    assert len(reverted) > 1


def test_what_was_accepted_for_another_winner_is_not_reverted_for_this_one() -> None:
    search, winner = searched()
    trials = [Trial(n, Phase.SEARCH, {}, peak=_peak(100.0)) for n in range(24)]
    trials.append(Trial(24, Phase.SEARCH, winner, peak=_peak(205.0)))
    trials.append(Trial(25, Phase.SIMPLIFIED, winner, source_trial=3, peak=_peak(200.0)))
    earlier = Simplification(
        of=3, reverted=RESTARTS, accepted=22, without=("web.x.p1",), measured=1
    )
    state = State(tuple(trials), simplification=earlier)
    block = select_next_block(state, search.fit_surrogate(), SPACE, 24)
    assert (block.of, block.accepted, block.without, block.refused) == (24, None, (), ())
    assert block.measured == 1


def test_what_has_no_effect_beside_the_other_settings_is_reverted_first() -> None:
    conditional = (("web.x.p0", (0.2,)),)
    space = replace(SPACE, dimensions=tuple(
        replace(d, parameter=replace(d.parameter, effect=Effect.CAPACITY),
                conditions=conditional if d.name == "web.x.p1" else ())
        for d in SPACE.dimensions
    ))  # fmt: skip
    search, winner = searched()
    assert simplify_winner(search.fit_surrogate(), space, winner).reverted == ("web.x.p1",)


def test_what_was_accepted_stays_reverted_and_what_was_refused_is_no_part_of_more() -> None:
    search, winner = searched()
    accepted, refused = RESTARTS[:1], frozenset({"web.x.p1", "web.x.p2"})
    found = simplify_winner(search.fit_surrogate(), SPACE, winner, accepted, [refused])
    assert set(accepted) < set(found.reverted)
    assert not refused <= set(found.reverted)
    assert MATTERS not in found.reverted


def test_a_block_that_was_refused_does_not_keep_the_other_changes() -> None:
    search, winner = searched()
    surrogate = search.fit_surrogate()
    for refused in pairwise(NAMES[1:8]):
        found = simplify_winner(surrogate, SPACE, winner, rejected_sets=[refused]).reverted
        assert not set(refused) <= set(found)
        assert len(found) >= 7, refused


def test_what_the_model_doubts_is_measured_and_not_reverted_for_that() -> None:
    """Time is kept for it, and the model takes more changes to matter than do."""
    search, _ = searched(8)
    winner = {**SPACE.baseline, MATTERS: 0.3, "web.x.p1": 0.9}
    doubted = simplify_winner(search.fit_surrogate(), SPACE, winner, rejected_sets=[["web.x.p1"]])
    assert doubted.reverted == (MATTERS,)
    assert PROMISING_PROBABILITY <= doubted.probability < ACCEPTED_PROBABILITY


def test_what_carries_the_gain_is_hardly_free() -> None:
    search, winner = searched()
    needed, idle = compute_keep_probabilities(
        search.fit_surrogate(), SPACE, winner, [[MATTERS], RESTARTS]
    )
    assert needed < 0.05
    assert idle > 0.5


def test_a_rule_that_needs_a_change_keeps_it() -> None:
    text = "cache.y.p8 >= web.x.p0 - 0.3"
    ruled = replace(SPACE, constraints=(Rule(text, parse_comparison(text)),))
    search, winner = searched()
    assert "cache.y.p8" not in simplify_winner(search.fit_surrogate(), ruled, winner).reverted


def test_one_change_that_a_rule_keeps_does_not_keep_the_others() -> None:
    search, winner = searched()
    surrogate = search.fit_surrogate()
    for name in NAMES[1:8]:
        text = f"{name} >= {MATTERS}"
        rule = Rule(text, parse_comparison(text))
        found = simplify_winner(surrogate, replace(SPACE, constraints=(rule,)), winner).reverted
        assert name not in found
        assert len(found) >= 7, name


@pytest.mark.parametrize(
    ("text", "reverts"),
    [
        ("web.x.p0 <= 0.8", True),
        ("web.x.p0 + web.x.p1 <= 0.8", True),  # broken by less without the change …
        ("web.x.p0 - web.x.p1 <= -0.1", False),  # … and by more
    ],
)
def test_a_rule_that_the_winner_breaks_itself_may_not_be_broken_further(
    text: str, reverts: bool
) -> None:
    """Of processes' memory more is known now than when it was tried."""
    ruled = replace(SPACE, constraints=(Rule(text, parse_comparison(text)),))
    search, winner = searched()
    changes = simplify_winner(search.fit_surrogate(), ruled, winner).reverted
    assert len(changes) >= 6
    assert ("web.x.p1" in changes) == reverts


def test_never_is_everything_reverted() -> None:
    search, _ = searched()
    for winner in ({**SPACE.baseline, "web.x.p3": 0.9}, {**SPACE.baseline, RESTARTS[0]: 0.9}):
        assert simplify_winner(search.fit_surrogate(), SPACE, winner).reverted == ()


def test_the_baseline_has_nothing_to_revert() -> None:
    search, _ = searched()
    found = simplify_winner(search.fit_surrogate(), SPACE, SPACE.baseline)
    assert found.reverted == ()
    assert found.settings == SPACE.baseline


def _peak(value: float) -> Peak:
    return Peak(value, 0.95 * value, 1.05 * value, 0.02, "measured")


TOP = 100 * exp(0.8 * 0.9)


def with_winner() -> tuple[Searcher, State]:
    """A search, and its study before a block is measured. Trial 24 is the winner."""
    search, winner = searched(8)
    search.record_outcome(None, winner, Outcome(TOP, {"trial": 24, "sd": 0.02}))
    trials = [Trial(n, Phase.SEARCH, {}, peak=_peak(100.0)) for n in range(24)]
    trials.append(Trial(24, Phase.SEARCH, winner, peak=_peak(TOP)))
    posterior = PosteriorPeaks({24: Estimate.from_value(TOP, 0.03)}, MEASUREMENT_LOG_SD)
    return search, State(tuple(trials), posterior=posterior)


@pytest.mark.parametrize(("reading", "holds"), [(0.98, True), (0.9, False), (0.65, False)])
def test_a_block_is_reverted_where_the_loss_to_expect_is_less_than_its_changes_are_worth(
    reading: float, holds: bool
) -> None:
    """One reading that is low by less than its noise is no reason to keep what does nothing."""
    search, state = with_winner()
    asked = select_next_block(state, search.fit_surrogate(), SPACE, 24)
    top = reading * TOP
    tried = Trial(25, Phase.SIMPLIFIED, asked.settings, source_trial=24, peak=_peak(top))
    search.record_outcome(None, tried.settings, Outcome(top, {"trial": 25, "sd": 0.02}))
    state = replace(state, trials=(*state.trials, tried), simplification=asked)
    record = select_next_block(state, search.fit_surrogate(), SPACE, 24)
    assert record.accepted == (25 if holds else None)
    assert record.without == (asked.reverted if holds else ())
    assert record.refused == (() if holds else (asked.reverted,))


def measure_blocks(
    *outcomes: dict[str, Any],
    bottlenecks: Mapping[int, RecordedBottleneck] | None = None,
) -> list[Simplification]:
    """The records of a study whose measurements of blocks have these outcomes."""
    search, state = with_winner()
    state = replace(state, bottlenecks=bottlenecks or {})
    records = [select_next_block(state, search.fit_surrogate(), SPACE, 24)]
    for outcome in outcomes:
        number, settings = len(state.trials), records[-1].settings
        block = Trial(number, Phase.SIMPLIFIED, settings, source_trial=24, **outcome)
        record_outcome(search, block)
        state = replace(state, trials=(*state.trials, block), simplification=records[-1])
        records.append(select_next_block(state, search.fit_surrogate(), SPACE, 24))
    return records


@pytest.mark.parametrize(
    ("verdict", "sd", "is_accepted"), [("measured", 0.02, True), ("screened", 0.1, False)]
)
def test_a_block_whose_measurement_was_pruned_is_not_reverted(
    verdict: str, sd: float, is_accepted: bool
) -> None:
    """Its peak is only an upper bound, which may be close to the winner's."""
    peak = Peak(0.98 * TOP, 0.8 * TOP, 1.1 * TOP, sd, verdict)
    asked, record = measure_blocks({"peak": peak})
    assert record.without == (asked.reverted if is_accepted else ())
    assert record.refused == (() if is_accepted else (asked.reverted,))


FAULT = {"failure": "the load broke", "is_fault": True}
LIMITED = {"peak": Peak(80.0, 80.0, 80.0, 0.03, "limited", limit="load.max_rate")}
MEASURED = {"peak": _peak(0.98 * TOP)}


@pytest.mark.parametrize(
    ("outcomes", "is_refused"),
    [([FAULT], False), ([LIMITED], False), ([{"failure": "it stopped"}], True)],
)
def test_a_block_is_measured_again_if_nothing_was_measured(
    outcomes: list[dict[str, Any]], is_refused: bool
) -> None:
    asked, record = measure_blocks(*outcomes)
    assert record.measured == 1
    assert record.accepted is None
    assert record.refused == ((asked.reverted,) if is_refused else ())
    assert (record.reverted == asked.reverted) is not is_refused


def test_the_second_measurement_of_a_block_decides() -> None:
    asked, _, record = measure_blocks(FAULT, MEASURED)
    assert (record.accepted, record.without, record.refused) == (26, asked.reverted, ())


@pytest.mark.parametrize("outcomes", [[FAULT] * MAX_UNMEASURED_BLOCKS, [FAULT, LIMITED]])
def test_no_more_blocks_are_measured_if_nothing_can_be_measured(
    outcomes: list[dict[str, Any]],
) -> None:
    *_, before, last = measure_blocks(*outcomes)
    assert before.reverted
    assert last == replace(before, reverted=(), measured=len(outcomes))
    assert last.refused == ()


@pytest.mark.parametrize("is_accepted", [True, False])
def test_what_the_evidence_names_is_in_no_later_block(is_accepted: bool) -> None:
    evidence = RecordedBottleneck("web", "x", "web1", Resource.CPU, "raise p3", 0.5, trial=1)
    share = 0.98 if is_accepted else 0.65
    records = measure_blocks({"peak": _peak(share * TOP)}, bottlenecks={1: evidence})
    assert (records[-1].accepted is not None) is is_accepted
    assert all("web.x.p3" not in record.reverted for record in records)
    without_evidence = measure_blocks({"peak": _peak(share * TOP)})
    assert any("web.x.p3" in record.reverted for record in without_evidence)


@pytest.mark.parametrize("effect", [Effect.SMALL, Effect.CAPACITY])
def test_a_noisy_loss_counts_less_for_changes_with_a_small_documented_effect(
    effect: Effect,
) -> None:
    """A study that multiplies the capacity makes the model expect large effects of every change."""
    matters = {MATTERS}
    space = replace(SPACE, dimensions=tuple(
        d if d.name in matters else replace(d, parameter=replace(d.parameter, effect=effect))
        for d in SPACE.dimensions
    ))  # fmt: skip
    search = Searcher(optuna.storages.InMemoryStorage(), "s", space, "gp", 1, 40)
    rng, winner = np.random.default_rng(5), dict.fromkeys(NAMES, 0.9)
    search.record_outcome(None, space.baseline, Outcome(20.0, {"trial": 0, "sd": 0.15}))
    for number in range(1, 7):
        settings = {**winner, MATTERS: float(0.2 + 0.12 * number)}
        peak = 20 * exp(5.0 * (settings[MATTERS] - 0.2) + rng.normal(0, 0.05))
        search.record_outcome(None, settings, Outcome(peak, {"trial": number, "sd": 0.12}))
    top = 20 * exp(3.6)
    search.record_outcome(None, winner, Outcome(top, {"trial": 7, "sd": 0.1}))
    block = [name for name in NAMES if name not in matters]
    reverted = revert_changes(space, winner, block)
    search.record_outcome(None, reverted, Outcome(0.84 * top, {"trial": 8, "sd": 0.1}))
    accepts = is_expendable(search.fit_surrogate(), space, winner, block, ())
    assert accepts == (effect is Effect.SMALL)
