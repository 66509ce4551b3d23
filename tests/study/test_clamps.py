"""Values that a deployment found clamped: what the study, its search and its ranking make of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.deploy.deploy_result import DeployResult
from autotune.deploy.read_back import find_mismatches
from autotune.environments.evaluation import FailedEvaluation
from autotune.environments.peak import Peak
from autotune.errors import AutotuneError
from autotune.estimate import Estimate
from autotune.optimize.storage import open_sqlite
from autotune.services.base import Settings, Value
from autotune.space.parameter_caps import Clamp, infer_clamp
from autotune.study import clamps
from autotune.study.opening import plan_opening
from autotune.study.ranking import estimate_candidate_peaks
from autotune.study.schedule_steps import MeasureStep
from autotune.study.state_replay import replay_records
from autotune.study.study_drift import estimate_bed_drifts
from autotune.study.study_state import COUNTED_PHASES, Phase, State, Trial
from autotune.study.study_store import StudyStore
from autotune.study.trial import _finish_trial, begin_trial
from autotune.target.model import Budget
from tests.study.simulated import FormulaFleet, context, space, study

CONNECTIONS = "lb.nginx.worker_connections"
CHILDREN = "web.php_fpm.max_children"
MOST, CHUNK = 1000, 8


def taken(asked: Settings) -> dict[str, Value]:
    """The values in effect on hosts that allow ``MOST`` connections and start children by the chunk."""
    children = -(-int(asked[CHILDREN]) // CHUNK) * CHUNK
    return {**asked, CONNECTIONS: min(int(asked[CONNECTIONS]), MOST), CHILDREN: children}


class ClampingFleet(FormulaFleet):
    def deploy(self, asked: Settings) -> DeployResult:
        effective = taken(asked)
        done = super().deploy(effective)
        differing = find_mismatches(asked, effective, space().active_parameters(asked))
        return replace(done, effective=effective, mismatches=differing)


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> StudyStore:
    budget: dict[str, Any] = {"trials": 8, "time": "30m"}
    directory = tmp_path_factory.mktemp("clamps") / "s"
    return study(directory, budget=Budget(**budget), fleet=ClampingFleet())[1]


def test_no_two_configurations_differ_only_in_clamped_values(searched: StudyStore) -> None:
    state = searched.state
    effects = [
        tuple(sorted(state.find_trial(n).effective_settings.items()))
        for n in estimate_candidate_peaks(state)
    ]
    assert len(effects) == len(set(effects)) > 3
    assert any(trial.clamped_parameters for trial in state.trials)


def test_no_later_suggestion_exceeds_a_limit_that_was_shown(searched: StudyStore) -> None:
    assert searched.state.clamps[CONNECTIONS] == Clamp(maximum=MOST)
    assert searched.state.clamps.get(CHILDREN) in (None, Clamp(minimum=CHUNK))
    first = next(t.number for t in searched.state.trials if CONNECTIONS in t.clamped_parameters)
    later = [t for t in searched.state.trials if t.number > first and t.phase in COUNTED_PHASES]
    assert all(float(t.settings[CONNECTIONS]) <= MOST for t in later)
    of_search = [
        t
        for t in searched.state.trials
        if CONNECTIONS in t.clamped_parameters and t.source_trial is None
    ]
    assert [t.phase for t in of_search] == ["recommended"]


def test_the_search_learns_what_took_effect(searched: StudyStore) -> None:
    with open_sqlite(searched.directory / "study.db") as storage:
        told = optuna.load_study(study_name="s", storage=storage).trials
    complete = [t for t in told if t.state.is_finished() and "trial" in t.user_attrs]
    assert len(complete) >= 8
    for each in complete:
        trial = searched.state.find_trial(each.user_attrs["trial"])
        differing = {n for n, v in each.params.items() if v != trial.effective_settings[n]}
        assert not differing & {CONNECTIONS, CHILDREN}, trial


def test_a_session_that_resumes_knows_the_limits(searched: StudyStore) -> None:
    again = StudyStore(searched.directory)
    assert again.state.clamps == searched.state.clamps
    assert again.state.trials == searched.state.trials
    again.close()


def test_a_limit_caps_the_candidates_of_every_stack_of_a_study(tmp_path: Path) -> None:
    store = StudyStore(tmp_path)
    here = context(store, lambda _: 1.0, FormulaFleet(), seed=1, pace=0.0)
    there = replace(here, bed="other")
    asked = {**space().baseline, CONNECTIONS: 8000}
    first = begin_trial(MeasureStep(Phase.SEARCH, asked), here)
    store.record_deployment(first, ClampingFleet().deploy(first.settings))
    second = begin_trial(MeasureStep(Phase.SEARCH, {**asked, CONNECTIONS: 4000}), there)
    assert second.settings[CONNECTIONS] == MOST
    assert second.capped_parameters == (CONNECTIONS,)
    assert any("is the largest effective value" in line for line in second.bindings)
    store.record_deployment(second, ClampingFleet().deploy(second.settings))
    assert (
        store.state.find_configuration_number(store.state.find_trial(second.number)) == first.number
    )
    store.close()


@pytest.mark.parametrize(
    ("asked", "effective", "shown"),
    [
        (23_170, 4096, Clamp(maximum=4096)),
        (32, 64.0, Clamp(minimum=64)),
        (5000, 4096, Clamp()),  # a value may have been rounded
        (100, 128, Clamp()),
        (0, 65_536, Clamp()),  # 0 stands for a default
        (-1, 64, Clamp()),
        ("on", "off", Clamp()),
        (False, True, Clamp()),
    ],
)
def test_only_what_cannot_be_rounding_is_a_limit(
    asked: Value, effective: Value, shown: Clamp
) -> None:
    assert infer_clamp(asked, effective) == shown


NAMES = ("a", "b")
VALUES = st.sampled_from([1, 4, 16, 64, 256])
PEAK = Peak.from_estimate(Estimate.from_value(100.0, 0.05))


@st.composite
def records(draw: st.DrawFn) -> Trial:
    asked = {name: draw(VALUES) for name in NAMES}
    effective = {"a": min(asked["a"], draw(st.sampled_from([4, 16, 1000]))), "b": asked["b"]}
    differing = find_mismatches(asked, effective, frozenset(NAMES))
    phase = draw(st.sampled_from([Phase.BASELINE, Phase.RECOMMENDED, Phase.SEARCH]))
    peak = draw(st.sampled_from([None, PEAK, replace(PEAK, verdict="screened")]))
    return Trial(0, phase, asked, effective=effective, differences=tuple(map(str, differing)),
                 peak=peak, failure=None if peak else "it does not start")  # fmt: skip


@given(st.lists(records(), max_size=12))
@settings(max_examples=100)
def test_trials_with_the_same_clamped_effect_are_one_candidate(some: list[Trial]) -> None:
    trials = tuple(replace(trial, number=number) for number, trial in enumerate(some))
    state = State(trials=trials)
    groups: dict[frozenset[Any], list[Trial]] = {}
    for trial in trials:
        groups.setdefault(frozenset(trial.effective_settings.items()), []).append(trial)
    for group in groups.values():
        numbers = {state.find_configuration_number(trial) for trial in group}
        clamped = any(trial.clamped_parameters for trial in group)
        assert (
            numbers == {next((t for t in group if t.is_feasible), group[0]).number} or not clamped
        )
        assert clamped or numbers == {trial.number for trial in group}
    listed = [
        frozenset(state.find_trial(n).effective_settings.items())
        for n in estimate_candidate_peaks(state)
    ]
    assert all(
        listed.count(one) == 1 for one in listed if any(t.clamped_parameters for t in groups[one])
    )


def test_a_limit_that_other_settings_move_is_none_of_the_parameter() -> None:
    def trial(number: int, asked: int, effective: int) -> Trial:
        values: Mapping[str, Value] = {"a": asked}
        return Trial(number, Phase.SEARCH, values, effective={"a": effective},
                     differences=(f"a: requested {asked}, effective {effective}",))  # fmt: skip

    first, same, other = trial(0, 9000, 1024), trial(1, 5000, 1024), trial(2, 9000, 4096)
    assert clamps.find_common_clamps([first, same]) == {"a": Clamp(maximum=1024)}
    assert clamps.find_common_clamps([first, same, other]) == {}


def test_readings_of_one_configuration_are_pooled(tmp_path: Path) -> None:
    first, second = Estimate.from_value(100.0, 0.05), Estimate.from_value(120.0, 0.05)
    asked = [{"a": 9000}, {"a": 4000}]
    trials = tuple(
        Trial(number, Phase.SEARCH, values, effective={"a": 1024}, peak=Peak.from_estimate(peak),
              differences=("a: requested, effective 1024",))
        for number, (values, peak) in enumerate(zip(asked, (first, second), strict=True))
    )  # fmt: skip
    (estimate,) = estimate_candidate_peaks(State(trials=trials)).values()
    assert estimate == Estimate.pool([first, second])


def test_the_search_learns_from_settings_that_a_rule_changed() -> None:
    trial = Trial(0, Phase.SEARCH, {"a": 3, "b": 1}, suggested={"a": 7})
    assert trial.learned_settings == {"a": 3}


def _one(number: int, asked: int, effective: int, **more: Any) -> Trial:
    differing = (f"a: requested {asked}, effective {effective}",) if asked != effective else ()
    values: Mapping[str, Value] = {"a": asked}
    return Trial(number, Phase.SEARCH, values, effective={"a": effective}, differences=differing,
                 **more)  # fmt: skip


@pytest.mark.parametrize(
    ("tried", "limit"),
    [
        ([(65_536, 1024), (8000, 8000)], {}),
        ([(8000, 8000), (65_536, 1024)], {}),
        ([(10, 500), (65_536, 100)], {}),
        ([(10, 500), (20, 20)], {}),
        ([(65_536, 1024), (2000, 2048)], {}),
        ([(65_536, 1024), (900, 900), (0, 0)], {"a": Clamp(maximum=1024)}),
    ],
)
def test_a_value_in_effect_beyond_a_limit_refutes_it(
    tried: list[tuple[int, int]], limit: Mapping[str, Clamp]
) -> None:
    trials = [_one(number, *values) for number, values in enumerate(tried)]
    assert clamps.find_common_clamps(trials) == limit


def test_references_count_whichever_trial_stands_for_their_configuration() -> None:
    def trials(first: Peak | None) -> tuple[Trial, ...]:
        preset = [replace(_one(n, asked, 1024, peak=peak), phase=Phase.PUBLISHED)
                  for n, asked, peak in ((0, 9000, first), (1, 4000, PEAK))]  # fmt: skip
        peaks = [Peak.from_estimate(Estimate.from_value(100.0 * 0.8**n, 0.01)) for n in range(6)]
        again = [Trial(2 + n, Phase.REFERENCE, {"a": 4000}, source_trial=1, peak=peak)
                 for n, peak in enumerate(peaks)]  # fmt: skip
        return (*preset, *again)

    # Another test bed ended the earlier trial later.
    before, after = (
        estimate_bed_drifts(State(trials=trials(first)))[None] for first in (None, PEAK)
    )
    assert before.is_significant
    assert before == after


@pytest.mark.parametrize("asked", [5, 10**400])
def test_a_number_of_a_record_that_nothing_can_use_is_refused(asked: int) -> None:
    records = [
        {"event": "trial", "trial": 0, "phase": "search", "of": None, "asked": None,
         "settings": {"a": asked}, "suggested": {}, "bindings": []},
        {"event": "deployed", "trial": 0, "effective": {"a": 10**400},
         "differences": ["a: requested 5, effective 1"]},
    ]  # fmt: skip
    with pytest.raises(AutotuneError, match="invalid record of kind"):
        assert replay_records(records).clamps


@pytest.mark.parametrize(
    ("asked", "measured"),
    [
        ([4000, 5000, 900], [MOST, 900]),
        ([900, 4000, 800, 5000, 700], [900, MOST, 800, 700]),
        ([500, 600], [500, 600]),
    ],
)
def test_a_configuration_of_the_user_is_not_measured_again_for_a_value_without_effect(
    tmp_path: Path, asked: list[int], measured: list[int]
) -> None:
    store = StudyStore(tmp_path)
    whole = replace(space(), try_first=tuple({CONNECTIONS: value} for value in asked))
    here = replace(context(store, lambda _: 1.0, FormulaFleet(), seed=1, pace=0.0), space=whole)
    budget = Budget(trials=60, time="30m")  # type: ignore[arg-type]  # parsed
    while step := plan_opening(store.state, whole, budget, 0.0, None):
        assert isinstance(step, MeasureStep)
        trial = begin_trial(step, here)
        store.record_deployment(trial, ClampingFleet().deploy(trial.settings))
        _finish_trial(here, trial, FailedEvaluation("nothing is measured"))
        assert len(store.state.trials) < 30
    own = [t.settings[CONNECTIONS] for t in store.state.list_started_trials(Phase.TRY_FIRST)]
    assert own == measured
    store.close()


@pytest.mark.parametrize(
    ("measured", "asked", "left"),
    [
        ([600, 500], [500, 600, 700], [700]),  # beds may start them in another order
        ([500], [700, 500], [700]),  # the user changed the list before the study was resumed
        ([500], [700], [700]),
        ([500, 500], [500, 600], [600]),  # measured again, because its benchmark had failed
    ],
)
def test_every_configuration_of_the_user_is_measured(
    tmp_path: Path, measured: list[int], asked: list[int], left: list[int]
) -> None:
    store = StudyStore(tmp_path)
    here = context(store, lambda _: 1.0, FormulaFleet(), seed=1, pace=0.0)
    budget = Budget(trials=60, time="30m")  # type: ignore[arg-type]  # parsed
    whole = replace(space(), try_first=())

    def measure(step: MeasureStep) -> None:
        trial = begin_trial(step, replace(here, space=whole))
        _finish_trial(here, trial, FailedEvaluation("nothing is measured"))

    while step := plan_opening(store.state, whole, budget, 0.0, None):
        assert isinstance(step, MeasureStep)
        measure(step)
    requests = [{**whole.baseline, CONNECTIONS: value} for value in measured]
    for request in requests:
        measure(MeasureStep(Phase.TRY_FIRST, {**request, CONNECTIONS: 450}, requested=request))
    whole = replace(space(), try_first=tuple({CONNECTIONS: value} for value in asked))
    count = len(store.state.trials)
    while step := plan_opening(store.state, whole, budget, 0.0, None):
        assert isinstance(step, MeasureStep)
        measure(step)
        assert len(store.state.trials) < 30
    own = [t.settings[CONNECTIONS] for t in store.state.trials[count:]]
    assert own == left
    store.close()
