from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from optuna.storages import RDBStorage

from autotune.errors import AutotuneError
from autotune.optimize.base import SamplerTask
from autotune.optimize.gp.surrogate import FEASIBLE_KEY
from autotune.optimize.samplers import choose_sampler
from autotune.optimize.searcher import Outcome, Searcher
from autotune.optimize.storage import open_sqlite
from autotune.services.base import Action, Effect, Parameter
from autotune.space.dimension import Dimension
from autotune.space.parameter_caps import Clamp, ParameterCap
from autotune.space.space import SearchSpace


def dimension(name: str, **kind: object) -> Dimension:
    parameter = Parameter(name=name, stock=0, action=Action.RELOAD, meaning="-", source="-")
    return Dimension(name, parameter, **kind)  # type: ignore[arg-type]


SPACE = (
    dimension("web.php_fpm.max_children", baseline=5, low=2, high=256, is_logarithmic=True),
    dimension("web.php_fpm.pm", baseline="dynamic", choices=("static", "dynamic")),
    dimension("cache.memcached.growth_factor", baseline=1.25, low=1.05, high=2.0),
    dimension("lb.nginx.upstream_keepalive", baseline=0, low=0, high=512, is_logarithmic=True),
)


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[RDBStorage]:
    with open_sqlite(tmp_path / "study.db") as opened:
        yield opened


def searcher(storage: RDBStorage) -> Searcher:
    return Searcher(storage, "s", SearchSpace(SPACE, (), {}), "tpe", 1)


def trials(storage: RDBStorage) -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(study_name="s", storage=storage).trials


def told(trial: int, peak: float | None) -> Outcome:
    return Outcome(peak, {"trial": trial})


def test_suggestions_lie_in_the_space_and_are_plain_values(storage: RDBStorage) -> None:
    values = searcher(storage).suggest().values
    assert set(values) == {d.name for d in SPACE}
    for d in SPACE:
        assert d.clip(values[d.name]) == values[d.name]
        assert type(values[d.name]) in (int, float, str)


def test_measured_configurations_that_nobody_suggested_are_learned_from(
    storage: RDBStorage,
) -> None:
    baseline = {d.name: d.baseline for d in SPACE} | {"not.searched.x": 3}
    searcher(storage).record_outcome(None, baseline, told(0, 1000.0))
    assert [t.value for t in trials(storage)] == [1000.0]
    assert "not.searched.x" not in trials(storage)[0].params


def test_telling_twice_changes_nothing(storage: RDBStorage) -> None:
    search = searcher(storage)
    asked = search.suggest()
    for _ in range(2):
        search.record_outcome(asked.number, asked.values, told(4, 900.0))
    assert [(t.value, t.user_attrs["trial"]) for t in trials(storage)] == [(900.0, 4)]


def test_an_infeasible_one_lies_below_the_worst_and_breaks_the_constraint(
    storage: RDBStorage,
) -> None:
    search = searcher(storage)
    for number, peak in enumerate((1000.0, 800.0, None)):
        asked = search.suggest()
        search.record_outcome(asked.number, asked.values, told(number, peak))
    last = trials(storage)[-1]
    assert last.value == pytest.approx(640.0)
    assert last.constraints[FEASIBLE_KEY] > 0
    assert trials(storage)[0].constraints[FEASIBLE_KEY] <= 0


def test_a_kill_between_notes_and_value_does_not_hide_the_value(storage: RDBStorage) -> None:
    asked = searcher(storage).suggest()
    study = optuna.load_study(study_name="s", storage=storage)
    optuna.trial.Trial(study, study.trials[asked.number]._trial_id).set_user_attr("trial", 3)
    again = searcher(storage)
    again.record_outcome(asked.number, asked.values, told(3, 800.0))
    again.discard_pending_suggestions()
    assert [(t.value, t.state.name) for t in trials(storage)] == [(800.0, "COMPLETE")]


def test_a_kill_between_constraint_and_value_does_not_hide_the_value(storage: RDBStorage) -> None:
    one = searcher(storage)
    asked = one.suggest()
    study = optuna.load_study(study_name="s", storage=storage)
    begun = optuna.trial.Trial(study, study.trials[asked.number]._trial_id)
    begun.set_constraint(FEASIBLE_KEY, -1.0)
    searcher(storage).record_outcome(asked.number, asked.values, Outcome(123.0, {"trial": 4}))
    assert trials(storage)[asked.number].value == 123.0


def test_a_suggestion_lost_to_a_kill_is_taken_back_and_can_be_repeated(storage: RDBStorage) -> None:
    lost = searcher(storage).suggest()
    again = searcher(storage)
    again.discard_pending_suggestions()
    assert trials(storage)[lost.number].state is optuna.trial.TrialState.FAIL
    again.record_outcome(lost.number, lost.values, told(3, 700.0))
    complete = [t for t in trials(storage) if t.state is optuna.trial.TrialState.COMPLETE]
    assert [(t.value, t.params) for t in complete] == [(700.0, dict(lost.values))]


def test_what_others_measure_is_believed_until_they_have(storage: RDBStorage) -> None:
    search = searcher(storage)
    values = {d.name: d.baseline for d in SPACE}
    search.add_pending_suggestions({7: values, 8: values})
    search.add_pending_suggestions({8: values})
    states = [(t.state.name, t.params) for t in trials(storage)]
    assert states == [("FAIL", values), ("RUNNING", values)]
    search.record_outcome(None, values, told(8, 500.0))
    search.add_pending_suggestions({})
    assert [t.state.name for t in trials(storage)] == ["FAIL", "FAIL", "COMPLETE"]
    assert search.list_recorded_trials() == {8}


def test_condensed_are_kept_what_is_known_to_matter_and_what_differs_from_the_baseline(
    storage: RDBStorage,
) -> None:
    pm, *others = (
        replace(d, parameter=replace(d.parameter, effect=Effect.SMALL)) for d in SPACE[1:]
    )
    space = SearchSpace((SPACE[0], pm, *others), (), {})
    search = Searcher(storage, "s", space, "random", 1, is_condensed=True)
    search.record_outcome(None, space.baseline, told(0, 500.0))
    search.record_outcome(None, {**space.baseline, pm.name: "static"}, told(1, 600.0))
    assert [t.params for t in trials(storage)] == [
        {SPACE[0].name: 5}, {SPACE[0].name: 5, pm.name: "static"}
    ]  # fmt: skip


def test_a_new_search_knows_what_an_earlier_one_has_recorded(storage: RDBStorage) -> None:
    values = {d.name: d.baseline for d in SPACE}
    for number, peak in ((3, 900.0), (4, 700.0), (5, 800.0)):
        searcher(storage).record_outcome(None, values, told(number, peak))
    again = searcher(storage)
    again.record_outcome(None, values, told(4, 800.0))
    again.record_outcome(None, values, told(6, None))
    assert [t.value for t in trials(storage)] == [900.0, 700.0, 800.0, pytest.approx(560.0)]
    assert again.list_recorded_trials() == searcher(storage).list_recorded_trials() == {3, 4, 5, 6}


def test_an_unknown_sampler_names_the_nearest() -> None:
    with pytest.raises(AutotuneError) as caught:
        choose_sampler("tpee", SamplerTask(SearchSpace(SPACE, (), {})))
    assert "tpe" in (caught.value.hint or "")


@pytest.mark.parametrize("kind", ["tpe", "gp", "hill-climb"])
def test_values_that_proved_to_take_no_effect_are_not_suggested(
    storage: RDBStorage, kind: str
) -> None:
    name, whole = "web.php_fpm.max_children", SearchSpace(SPACE, (), {})
    search = Searcher(storage, "s", whole, kind, 1)
    for number in range(6):
        suggestion = search.suggest()
        search.record_outcome(suggestion.number, suggestion.values, told(number, 100.0 + number))
    search.narrow_space(whole.with_clamps({name: Clamp(maximum=20)}))
    for number in range(6, 14):
        suggestion = search.suggest()
        assert float(suggestion.values[name]) <= 20
        search.record_outcome(suggestion.number, suggestion.values, told(number, 100.0))
    assert search.list_recorded_trials() == frozenset(range(14))


def test_a_suggestion_is_told_as_it_took_effect(storage: RDBStorage) -> None:
    search, name = searcher(storage), "web.php_fpm.max_children"
    suggestion = search.suggest()
    search.record_outcome(suggestion.number, {**suggestion.values, name: 7}, told(3, 100.0))
    search.record_outcome(suggestion.number, {**suggestion.values, name: 7}, told(3, 100.0))
    suggested, *learned = trials(storage)
    assert suggested.state is optuna.trial.TrialState.FAIL
    assert [(t.params[name], t.value, t.user_attrs["trial"]) for t in learned] == [(7, 100.0, 3)]
    other = search.suggest()
    search.record_outcome(other.number, other.values, told(4, 90.0))
    assert trials(storage)[-1].number == other.number  # as suggested: no trial of its own


def test_a_pending_suggestion_has_the_values_that_take_effect(storage: RDBStorage) -> None:
    """Limits that depend on another setting do not narrow the range, but they cap each suggestion."""
    children, keepalive = "web.php_fpm.max_children", "lb.nginx.upstream_keepalive"
    space = SearchSpace(SPACE, (), {}, caps={children: ParameterCap(tuned_by=(keepalive,))})
    search = Searcher(storage, "s", space, "random", 1)
    replaced = 0
    for number in range(12):
        suggestion = search.suggest()
        pending = trials(storage)[suggestion.number]
        assert pending.state is optuna.trial.TrialState.RUNNING
        assert (
            pending.params == suggestion.values == space.get_effective_settings(suggestion.values)
        )
        replaced += suggestion.number > number + replaced
        search.record_outcome(suggestion.number, suggestion.values, told(number, 100.0))
    assert replaced


def test_values_with_the_same_effect_are_one_point() -> None:
    """A deployment reports the value that the cap leaves. The sampler must recognize its suggestion."""
    children, keepalive = "web.php_fpm.max_children", "lb.nginx.upstream_keepalive"
    dimensions = tuple(replace(d, baseline=200) if d.name == children else d for d in SPACE)
    space = SearchSpace(dimensions, (), {}, caps={children: ParameterCap(tuned_by=(keepalive,))})
    task = SamplerTask(space)
    suggested, reported, lower = (
        task.grid.encode({keepalive: 20, children: value}).tolist() for value in (200, 20, 10)
    )
    assert suggested == reported != lower
    without_caps = task.with_space(replace(space, caps={})).grid
    assert without_caps.encode({keepalive: 20, children: 20}).tolist() != suggested


@pytest.mark.parametrize("kind", ["random", "gp", "tpe", "hill-climb"])
def test_a_range_from_zero_keeps_its_scale_when_it_is_narrowed(
    storage: RDBStorage, kind: str
) -> None:
    name = "lb.nginx.upstream_keepalive"
    whole = SearchSpace(
        tuple(replace(d, baseline=100) if d.name == name else d for d in SPACE), (), {}
    )
    search = Searcher(storage, "s", whole, kind, 1)
    for number in range(3):
        suggestion = search.suggest()
        search.record_outcome(suggestion.number, suggestion.values, told(number, 100.0 + number))
    search.narrow_space(whole.with_clamps({name: Clamp(minimum=64, maximum=256)}))
    for number in range(3, 6):
        suggestion = search.suggest()
        assert 64 <= float(suggestion.values[name]) <= 256
        search.record_outcome(suggestion.number, suggestion.values, told(number, 100.0))


@pytest.mark.parametrize(
    "changed",
    [
        {"baseline": "dynamic", "choices": ("dynamic", "static")},
        {"baseline": "dynamic", "choices": ("dynamic", "ondemand", "static")},
        {"baseline": 1, "low": 1, "high": 9},
    ],
)
def test_a_parameter_with_other_choices_is_named(
    storage: RDBStorage, changed: dict[str, object]
) -> None:
    """Another version of autotune, or other software on the hosts, may offer other choices."""
    number = searcher(storage).suggest().number
    searcher(storage).check_trials()
    space = (SPACE[0], dimension(SPACE[1].name, **changed), *SPACE[2:])
    resumed = Searcher(storage, "s", SearchSpace(space, (), {}), "tpe", 1)
    resumed.discard_trial(number)
    with pytest.raises(ValueError, match=f"the possible values of {SPACE[1].name} have changed"):
        resumed.check_trials()
