from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import log, sqrt

import numpy as np
import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spaces import SPACE

from autotune.optimize.gp import sampler
from autotune.optimize.gp.grid import GridPoints, ParameterGrid
from autotune.optimize.gp.moves import (
    MAX_FAILED_STEPS,
    MIN_LONG_STEP_GAIN,
    STEP_FRACTIONS,
    Move,
    MoveHistory,
    list_guided_candidates,
    parse_moves,
    read_history,
    suggest_long_step,
)
from autotune.optimize.gp.surrogate import CHANGES_KEY, TrialObservations
from autotune.optimize.searcher import Outcome, Searcher
from autotune.services.base import Action, Parameter, Settings
from autotune.space.dimension import Dimension
from autotune.space.expression import parse_comparison
from autotune.space.rules import Rule
from autotune.space.space import SearchSpace

GRID = ParameterGrid.from_dimensions(SPACE.tunable_dimensions, SPACE.baseline)
NAMES = [axis.dimension.name for axis in GRID.axes]
TOLD = [f"{name}{way}" for name in NAMES for way in "+-"] + [
    "lb.x.service=apache",
    "os.x.flag=True",
]
CHILDREN = "web.x.children"


def observed(*trials: tuple[Settings, float, str], presets: int = 1) -> TrialObservations:
    """What was measured: what each configuration changes, its log peak and its recommended moves."""
    points = GRID.encode_all([{**SPACE.baseline, **settings} for settings, _, _ in trials])
    none = np.empty((0, len(NAMES)), np.intp)
    return TrialObservations(
        points, np.array([peak for _, peak, _ in trials]), np.full(len(trials), 0.03),
        np.zeros(len(trials), bool), none, none, tuple(tuple(moves.split()) for _, _, moves in trials),
        suggested=tuple(place >= presets for place in range(len(trials))),
    )  # fmt: skip


def start(settings: Settings) -> MoveHistory:
    return MoveHistory(GRID.encode({**SPACE.baseline, **settings}), 0.0, (), None)


def changes(points: GridPoints, origin: GridPoints) -> list[dict[str, object]]:
    """What each point changes of the origin."""
    before = GRID.decode(origin)
    return [
        {name: value for name, value in GRID.decode(point).items() if value != before[name]}
        for point in points
    ]


@pytest.mark.parametrize(
    ("settings", "moves", "expected"),
    [
        # A tenth of a logarithmic range from 2 to 256 is a factor of 1.6, in a hundred steps.
        ({CHILDREN: 40}, [f"{CHILDREN}+"], [{CHILDREN: 66}]),
        ({CHILDREN: 40}, [f"{CHILDREN}-"], [{CHILDREN: 25}]),
        # Never beyond the range; a short range moves by one at least.
        ({"web.x.threads": 4}, ["web.x.threads+"], []),
        ({"web.x.threads": 3}, ["web.x.threads+"], [{"web.x.threads": 4}]),
        # All together first, then each alone, in the order of the advice.
        (
            {CHILDREN: 40},
            ["os.x.flag=True", f"{CHILDREN}+", "lb.x.service=apache"],
            [
                {CHILDREN: 66, "lb.x.service": "apache", "os.x.flag": True},
                {"os.x.flag": True},
                {CHILDREN: 66},
                {"lb.x.service": "apache"},
            ],
        ),
        # What does not exist, has no order, is not on offer, or is the case already.
        ({}, ["web.y.children+", "lb.x.service+", "lb.x.service=iis", "lb.x.service=nginx"], []),
        ({}, ["", "+", "=", CHILDREN], []),
    ],
)
def test_moves_are_made_alone_and_together(
    settings: Settings, moves: list[str], expected: list[dict[str, object]]
) -> None:
    past = start(settings)
    points = list_guided_candidates(GRID, past, moves, lengths=STEP_FRACTIONS[:1])
    assert changes(points, past.start) == expected


def test_without_a_length_what_is_logarithmic_moves_by_a_factor_of_three() -> None:
    past = start({CHILDREN: 20})
    (up,) = changes(
        list_guided_candidates(GRID, past, [f"{CHILDREN}+"], lengths=(None,)), past.start
    )
    (down,) = changes(
        list_guided_candidates(GRID, past, [f"{CHILDREN}-"], lengths=(None,)), past.start
    )
    assert (up, down) == ({CHILDREN: 60}, {CHILDREN: 6})


@pytest.mark.parametrize(
    ("children", "expected"),
    [(40, [63]), (63, [191]), (100, [256]), (256, [])],  # a guide warns of more than 64
)
def test_a_move_stops_at_a_guides_bound_and_goes_on_from_there(
    children: int, expected: list[int]
) -> None:
    bounded = tuple(
        replace(d, safe_range=(4, 64)) if d.name == CHILDREN else d
        for d in SPACE.tunable_dimensions
    )
    grid = ParameterGrid.from_dimensions(bounded, SPACE.baseline)
    origin = grid.encode({**SPACE.baseline, CHILDREN: children})
    past = MoveHistory(origin, 0.0, (), None)
    points = list_guided_candidates(grid, past, [f"{CHILDREN}+"], lengths=(None,))
    assert [grid.decode(point)[CHILDREN] for point in points[:1]] == expected


@pytest.mark.parametrize(("connections", "expected"), [(0, []), (100, [356])])
def test_a_limit_is_not_raised_from_no_limit(connections: int, expected: list[int]) -> None:
    name = "lb.x.server_maxconn"
    parameter = Parameter(
        name, "-", stock=0, action=Action.RELOAD, source="-", special_values={0: "maxconn"}
    )
    grid = ParameterGrid.from_dimensions([Dimension(name, parameter, 0, 0, 1024)], {name: 0})
    past = MoveHistory(grid.encode({name: connections}), 0.0, (), None)
    points = list_guided_candidates(grid, past, [f"{name}+"], lengths=(None,))
    assert [grid.decode(point)[name] for point in points] == pytest.approx(expected, abs=10)


def test_equal_moves_of_several_lengths_are_one_candidate() -> None:
    past = start({})
    points = list_guided_candidates(GRID, past, ["web.x.threads+"])
    assert changes(points, past.start) == [{"web.x.threads": 2}]


@given(st.lists(st.sampled_from(TOLD), max_size=6), st.integers(0, 1000), st.booleans())
def test_moves_stay_in_range_and_change_nothing_else(
    moves: list[str], seed: int, failing: bool
) -> None:
    rng = np.random.default_rng(seed)
    points = (rng.random((5, len(NAMES))) * GRID.level_counts).astype(np.intp)
    none = np.empty((0, len(NAMES)), np.intp)
    told = TrialObservations(
        points, rng.normal(0, 0.2, 5), np.full(5, 0.03), np.zeros(5, bool),
        points[:1] if failing else none, none, suggested=(False, *[True] * 4),
    )  # fmt: skip
    named = {move.rstrip("+-").partition("=")[0] for move in moves}
    others = [i for i, name in enumerate(NAMES) if name not in named]
    for row in range(5):
        for point in list_guided_candidates(GRID, read_history(GRID, told, row), moves):
            assert (point >= 0).all()
            assert (point < GRID.level_counts).all()
            assert (point[others] == points[row][others]).all()
            assert (point != points[row]).any()


def next_step(told: TrialObservations) -> dict[str, object] | None:
    """What a long step changes of the configuration with the highest peak."""
    leader = told.points[int(told.log_peaks.argmax())]
    point = suggest_long_step(GRID, told, lambda points, _: points)
    return None if point is None else changes(point[None, :], leader)[0]


MORE = f"{CHILDREN}+"
LESS = f"{CHILDREN}-"


def test_a_move_that_helped_goes_twice_as_far_next_and_one_that_failed_half_as_far() -> None:
    first = ({}, 0.0, MORE)
    assert next_step(observed(first)) == {CHILDREN: 15}
    helped = ({CHILDREN: 15}, 0.5, MORE)
    assert next_step(observed(first, helped)) == {CHILDREN: 143}
    failed = ({CHILDREN: 143}, 0.2, MORE)
    assert next_step(observed(first, helped, failed)) == {CHILDREN: 47}


def test_a_failed_move_is_not_repeated_and_the_model_has_its_turn() -> None:
    told = [({}, 0.0, MORE)]
    for _ in range(MAX_FAILED_STEPS):
        step = next_step(observed(*told))
        assert step is not None
        assert all(step != settings for settings, _, _ in told)
        told.append((step, -0.2, MORE))  # type: ignore[arg-type]
    assert next_step(observed(*told)) is None


@pytest.mark.parametrize(
    ("loss", "next_children"),
    [
        (MIN_LONG_STEP_GAIN / 2, 15),  # the limit that stopped it may be gone
        (2 * MIN_LONG_STEP_GAIN, 9),  # the value itself is bad
    ],
)
def test_a_failure_from_a_worse_start_counts_only_if_it_did_harm(
    loss: float, next_children: int
) -> None:
    first, failed = ({}, 0.0, MORE), ({CHILDREN: 15}, -loss, "")
    elsewhere: tuple[Settings, float, str] = (
        {"lb.x.service": "apache"},
        2 * MIN_LONG_STEP_GAIN,
        MORE,
    )
    assert next_step(observed(first, failed)) != {CHILDREN: 15}
    assert next_step(observed(first, failed, elsewhere)) == {CHILDREN: next_children}


def climb_to(cliff: int, trials: int) -> list[int]:
    """The numbers of children tried where more always helps up to ``cliff``, and is fatal beyond."""
    told: list[tuple[Settings, float, str]] = [({CHILDREN: 5}, log(5), MORE)]
    for _ in range(trials):
        step = next_step(observed(*told))
        if step is None:
            break
        children = step[CHILDREN]
        assert isinstance(children, int)
        told.append((step, log(children) - 3 * (children > cliff), MORE))  # type: ignore[arg-type]
    return [int(settings[CHILDREN]) for settings, _, _ in told]  # type: ignore[call-overload]


@pytest.mark.parametrize("cliff", [16, 27, 40, 90, 200])
def test_steps_close_in_on_a_value_that_does_harm(cliff: int) -> None:
    tried = climb_to(cliff, 12)
    good = max(children for children in tried if children <= cliff)
    assert len(set(tried)) == len(tried)
    assert log(cliff / good) < 2 * MIN_LONG_STEP_GAIN


def test_a_move_back_stops_half_way_to_its_origin() -> None:
    first, overshot = ({CHILDREN: 10}, 0.0, MORE), ({CHILDREN: 90}, 0.3, LESS)
    step = next_step(observed(first, overshot))
    assert step is not None
    assert 25 < float(step[CHILDREN]) < 36  # type: ignore[arg-type]


def test_a_choice_that_failed_by_itself_is_not_made_again() -> None:
    advice = "os.x.flag=True"
    assert next_step(observed(({}, 0.0, advice))) == {"os.x.flag": True}
    assert next_step(observed(({}, 0.0, advice), ({"os.x.flag": True}, 0.0, ""))) is None


def test_small_gains_leave_the_next_step_to_the_model() -> None:
    first = ({}, 0.0, MORE)
    assert next_step(observed(first, ({CHILDREN: 15}, MIN_LONG_STEP_GAIN / 2, MORE))) is None
    assert next_step(observed(first, ({CHILDREN: 15}, MIN_LONG_STEP_GAIN * 2, MORE))) is not None
    assert next_step(observed(({}, 0.0, ""))) is None


@pytest.mark.parametrize("again", [0.28, 0.32, 0.5])
def test_a_leader_that_is_measured_again_is_neither_a_failure_nor_a_new_leader(
    again: float,
) -> None:
    first, helped = ({}, 0.0, MORE), ({CHILDREN: 15}, 0.3, MORE)
    step = next_step(observed(first, helped))
    assert step is not None
    assert next_step(observed(first, helped, ({CHILDREN: 15}, again, MORE))) == step


def test_a_lucky_peak_does_not_lead_after_it_was_measured_again() -> None:
    first, better = ({}, 0.0, MORE), ({CHILDREN: 15}, 0.4, MORE)
    lucky = ({"lb.x.service": "apache"}, 0.5, MORE)
    told = observed(first, lucky, better, ({"lb.x.service": "apache"}, -0.1, MORE))
    merged = told.merge_repeats()
    assert merged.log_peaks.tolist() == pytest.approx([0.0, 0.2, 0.4])
    assert merged.suggested == (False, True, True)
    leader = told.points[2]
    point = suggest_long_step(GRID, told, lambda points, _: points)
    assert point is not None
    assert changes(point[None, :], leader) == [{CHILDREN: 143}]


def test_an_upper_bound_counts_only_until_a_configuration_is_measured_in_full() -> None:
    told = observed(({}, 0.5, ""), ({}, 0.1, ""))
    told = replace(told, pruned=np.array([True, False]))
    assert told.merge_repeats().log_peaks == pytest.approx([0.1], abs=1e-5)
    bound = replace(observed(({}, 0.5, "")), pruned=np.array([True]))
    assert bound.merge_repeats().log_peaks == pytest.approx([0.5])


def test_a_repeat_without_a_diagnosis_keeps_the_moves_of_the_measurement_that_has_one() -> None:
    rough, precise = ({}, 0.0, ""), ({}, 0.0, MORE)
    assert next_step(observed(rough)) is None
    step = next_step(observed(precise))
    assert step is not None
    assert next_step(observed(rough, precise)) == step
    assert next_step(observed(precise, rough)) == step


def test_a_loss_within_its_error_is_no_harm() -> None:
    """A short measurement does not limit a parameter for the whole study."""
    first, worse, elsewhere = ({}, 0.0, MORE), ({CHILDREN: 15}, -0.2, ""), {"os.x.flag": True}
    told = observed(first, worse, (elsewhere, 0.5, MORE))
    rough = replace(told, sds=np.array([0.03, 0.13, 0.03]))
    harmful = [
        list(read_history(GRID, each, 2).list_failures(NAMES.index(CHILDREN)))
        for each in (told, rough)
    ]
    assert [len(failures) for failures in harmful] == [1, 0]
    pruned = replace(rough, pruned=np.array([False, True, False]))
    assert list(read_history(GRID, pruned, 2).list_failures(NAMES.index(CHILDREN)))


def test_a_configuration_that_failed_before_the_leader_was_measured_is_no_failure_of_the_leader() -> (
    None
):
    told = observed(({}, 0.0, MORE), ({CHILDREN: 8}, 0.2, MORE))
    failed = GRID.encode_all([{**SPACE.baseline, CHILDREN: 15}])
    assert read_history(GRID, replace(told, failed_points=failed), 1).unusable_count == 1
    numbered = replace(told, failed_points=failed, trial_numbers=(0, 2), failed_numbers=(1,))
    assert read_history(GRID, numbered, 1).unusable_count == 0
    assert read_history(GRID, numbered, 0).unusable_count == 1


def test_a_worse_value_whose_diagnosis_points_back_limits_a_step() -> None:
    """Even if the value was not worse than the origin of the step to it."""
    first, better = ({CHILDREN: 5}, 0.0, MORE), ({CHILDREN: 10, "os.x.flag": True}, 0.6, MORE)
    unlimited = next_step(observed(first, better))
    assert unlimited is not None
    beyond = ({CHILDREN: 40}, 0.0, f"{CHILDREN}-")
    limited = next_step(observed(first, beyond, better))
    assert limited is not None
    assert limited.keys() == unlimited.keys() == {CHILDREN}
    assert 10 < float(str(limited[CHILDREN])) < 40 <= float(str(unlimited[CHILDREN])) + 15
    silent = ({CHILDREN: 40}, 0.0, MORE)
    assert next_step(observed(first, silent, better)) == unlimited


def test_a_step_whose_diagnosis_points_back_is_one_harmful_value() -> None:
    """A second harmful value would end the halving."""
    first = ({CHILDREN: 10}, 0.0, MORE)
    beyond = ({CHILDREN: 40}, -0.3, f"{CHILDREN}-")
    history, axis = read_history(GRID, observed(first, beyond), 0), NAMES.index(CHILDREN)
    distance = history.find_harmful_distance(Move(axis, 1))
    harmful_point = GRID.encode({**SPACE.baseline, CHILDREN: 40})
    assert distance == harmful_point[axis] - history.start[axis]


OVERSHOT = ({CHILDREN: 5}, 0.0, MORE), ({CHILDREN: 200}, 0.4, "")


def test_a_step_that_went_too_far_is_taken_back_by_half_of_the_surplus() -> None:
    """Five children carry e^0 and are too few, so 5 e^0.4 = 7.5 may carry what 200 do."""
    assert next_step(observed(*OVERSHOT)) == {CHILDREN: pytest.approx(sqrt(7.5 * 200), rel=0.05)}


def test_advice_to_take_back_what_gained_without_advice_is_not_followed() -> None:
    gained = ({CHILDREN: 20}, 0.6, MORE)
    assert next_step(observed(OVERSHOT[0], ({CHILDREN: 200}, 0.4, MORE), gained)) is None
    assert next_step(observed(OVERSHOT[0], ({CHILDREN: 200}, 0.4, LESS), gained)) is not None


def test_what_is_taken_back_again_is_not_doubled_and_not_repeated_after_a_failure() -> None:
    again = ({CHILDREN: 50}, 0.6, "")
    assert next_step(observed(*OVERSHOT, again)) == {CHILDREN: pytest.approx(21, abs=1)}
    assert next_step(observed(*OVERSHOT, ({CHILDREN: 39}, 0.4, ""))) is None


@pytest.mark.parametrize(
    ("high", "gain", "moves"),
    [
        (14, 0.4, MORE),  # less than a long step above what suffices
        (200, 0.4, "os.x.flag=True"),  # nobody said that five are too few
        (200, 0.4, f"web.x.threads+ {MORE}"),  # another parameter limits first
        (200, 3.7, MORE),  # all of it is needed
    ],
)
def test_what_is_not_clearly_too_high_stays(high: int, gain: float, moves: str) -> None:
    assert next_step(observed(({CHILDREN: 5}, 0.0, moves), ({CHILDREN: high}, gain, ""))) is None


def test_what_is_being_measured_elsewhere_is_not_suggested_again() -> None:
    told = observed(({}, 0.0, MORE))
    pending = GRID.encode({**SPACE.baseline, CHILDREN: 15})
    assert next_step(replace(told, pending_points=pending[None, :])) is None


def asked(
    space: SearchSpace, presets: Sequence[tuple[Settings, float, str]], count: int
) -> list[Settings]:
    """The first suggestions after these presets."""
    search = Searcher(optuna.storages.InMemoryStorage(), "s", space, "gp", 3, 30)
    for number, (settings, peak, moves) in enumerate(presets):
        notes = {"trial": number, "phase": "recommended", CHANGES_KEY: moves}
        search.record_outcome(None, {**space.baseline, **settings}, Outcome(peak, notes))
    suggestions: list[Settings] = []
    for number in range(len(presets), len(presets) + count):
        suggestion = search.suggest()
        suggestions.append({**space.baseline, **suggestion.values})
        notes = {"trial": number, "phase": "search", CHANGES_KEY: MORE}
        search.record_outcome(suggestion.number, suggestions[-1], Outcome(900.0 + number, notes))
    return suggestions


COUPLED = "web.x.children <= 60 * web.x.threads"
PAIR = SearchSpace(SPACE.dimensions, (Rule(COUPLED, parse_comparison(COUPLED)),), {})


@pytest.mark.parametrize("space", [SPACE, PAIR])
def test_suggestions_keep_the_rules_and_follow_from_the_seed(space: SearchSpace) -> None:
    presets = [({"web.x.threads": 2}, 1000.0, MORE), ({"lb.x.keepalive": 90}, 800.0, "")]
    suggestions = asked(space, presets, 6)
    assert suggestions == asked(space, presets, 6)
    for settings in suggestions:
        assert all(d.allows(settings[d.name]) for d in space.tunable_dimensions)
        assert all(space.is_kept(rule, settings) for rule in space.constraints)


def test_no_point_is_repaired_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Consecutive suggestions from one leader have most of their candidates in common."""
    repaired: list[tuple[str, frozenset[str]]] = []
    select = sampler._select_candidate

    def count(space: SearchSpace, settings: Settings, keep: set[str]) -> Settings:
        repaired.append((repr(settings), frozenset(keep)))
        return select(space, settings, keep)

    monkeypatch.setattr(sampler, "_select_candidate", count)
    asked(PAIR, [({"web.x.threads": 2}, 5000.0, MORE), ({"lb.x.keepalive": 90}, 800.0, "")], 6)
    assert len(repaired) == len(set(repaired)) > 0


def test_what_a_raised_value_needs_is_raised_with_it() -> None:
    (settings,) = asked(PAIR, [({CHILDREN: 40}, 1000.0, MORE)] * 2, 1)
    assert (settings[CHILDREN], settings["web.x.threads"]) == (124, 3)


def test_what_cannot_be_read_is_no_move() -> None:
    assert [GRID.axes[m.axis].dimension.name for m in parse_moves(GRID, TOLD)] == [
        move.rstrip("+-").partition("=")[0] for move in TOLD
        if "=" in move or GRID.axes[NAMES.index(move[:-1])].is_ordered
    ]  # fmt: skip
