"""Every deployment has its turn before the search begins."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from autotune.environments.peak import Peak
from autotune.space.space import SearchSpace
from autotune.study.schedule import select_next_step
from autotune.study.schedule_steps import MeasureStep, SuggestStep
from autotune.study.state_replay import apply_record
from autotune.study.study_state import COUNTED_PHASES, Phase, State, Trial
from autotune.study.study_store import StudyStore
from autotune.study.trial import begin_trial
from autotune.study.trial_context import TrialContext
from autotune.target.model import Budget
from tests.space.targets import GB, fleet
from tests.study.simulated import Silent

LB = ("lb1, service: nginx", "lb1, service: [nginx, apache]")
WEB = ("service: nginx+php-fpm", "service: [nginx+php-fpm, apache+mod_php]")
PEAK = Peak(peak=1000.0, low=950.0, high=1050.0, sd=0.03, verdict="measured")


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> SearchSpace:
    return fleet(tmp_path_factory.mktemp("opening"), "", LB, WEB)


def opened(
    space: SearchSpace,
    budget: Budget,
    peaks: Mapping[tuple[object, object], Peak] = MappingProxyType({}),
) -> list[Trial]:
    """What is measured before the sampler is asked for the first time; ``peaks`` by deployment."""
    state = State(seconds={"load": 1.0})
    while isinstance(
        step := select_next_step(state, space, budget, state.elapsed_seconds), MeasureStep
    ):
        settings = space.build_candidate(step.settings).settings
        trial = Trial(len(state.trials), step.phase, settings)
        trial = replace(trial, peak=peaks.get(deployment(trial), PEAK))
        state = replace(state, trials=(*state.trials, trial))
    assert isinstance(step, SuggestStep)
    # The reference against drift is measured now and then, and counts for nothing here.
    return list(state.list_finished_trials(*COUNTED_PHASES))


def deployment(trial: Trial) -> tuple[object, object]:
    return trial.settings["lb.service"], trial.settings["web.service"]


def test_all_four_deployments_are_tried_before_the_search(space: SearchSpace) -> None:
    trials = opened(space, Budget(trials=40, time="45m"))
    assert [trial.phase for trial in trials] == [
        Phase.BASELINE,
        *[Phase.RECOMMENDED] * 4,
        *[Phase.PUBLISHED] * 4,
    ]
    four = [
        ("nginx", "nginx+php-fpm"),
        ("nginx", "apache+mod_php"),
        ("apache", "nginx+php-fpm"),
        ("apache", "apache+mod_php"),
    ]
    assert [deployment(trial) for trial in trials] == [four[0], *four, *four]
    published = trials[-1].settings
    assert published["lb.apache.MaxRequestWorkers"] == 240 * 15
    assert published["web.apache.MaxRequestWorkers"] == 500


def test_what_is_published_is_tried_where_the_deployment_may_be_the_best(
    space: SearchSpace,
) -> None:
    poor = Peak(peak=700.0, low=650.0, high=760.0, sd=0.05, verdict="screened")
    near = Peak(peak=930.0, low=900.0, high=960.0, sd=0.02, verdict="screened")
    peaks = {("nginx", "apache+mod_php"): poor, ("apache", "nginx+php-fpm"): near}
    trials = opened(space, Budget(trials=40, time="45m"), peaks)
    published = [deployment(trial) for trial in trials if trial.phase is Phase.PUBLISHED]
    assert published == [
        ("nginx", "nginx+php-fpm"),
        ("apache", "nginx+php-fpm"),
        ("apache", "apache+mod_php"),
    ]


def test_the_search_keeps_its_share_of_a_small_budget(space: SearchSpace) -> None:
    trials = opened(space, Budget(trials=12, time="45m"))
    assert len(trials) == 6
    assert len({deployment(trial) for trial in trials}) == 4


def test_a_repair_does_not_make_a_deployment_new(tmp_path: Path) -> None:
    # What is measured is not what was planned: the rule holds most of it back.
    rule = "constraints: [web.workers * count(web.hosts) <= 20]\n"
    space = fleet(tmp_path, rule, LB, WEB)
    assert len(opened(space, Budget(trials=40, time="45m"))) == 9


def test_a_deployment_that_no_longer_fits_is_tried_once(tmp_path: Path) -> None:
    """A process turns out to need more memory than its host has."""
    space = fleet(tmp_path, "", LB)
    unused: Any = Silent()
    sizes, budget = {"lb.apache": 20 * GB}, Budget.model_construct(trials=40, time=2700.0)
    with closing(StudyStore(tmp_path / "study")) as store:
        context = TrialContext(space, unused, store, unused)
        while isinstance(step := select_next_step(store.state, space, budget, 0.0), MeasureStep):
            trial = begin_trial(step, context)
            if not trial.is_finished:
                store.record_memory(trial, sizes)
                store.record_peak(trial, PEAK, reading_count=1, load_seconds=1.0)
        failed = [trial for trial in store.state.trials if trial.failure]
    assert [(t.phase, t.settings["lb.service"]) for t in failed] == [(Phase.RECOMMENDED, "apache")]


LIMITED = Peak(1000.0, 1000.0, 1500.0, 0.1, "limited", limit="load.max_rate")


@pytest.mark.parametrize(
    "outcome",
    [{"peak": LIMITED}, {"peak": None, "failure": "the load broke", "is_fault": True}],
    ids=["limited", "fault"],
)
@pytest.mark.parametrize("trials", [5, 40])
def test_a_resumed_study_measures_presets_again_that_showed_nothing(
    space: SearchSpace, outcome: dict[str, Any], trials: int
) -> None:
    """The user has raised load.max_rate, or repaired the benchmark."""
    budget = Budget(trials=40, time="45m")
    known = [replace(trial, number=n) for n, trial in enumerate(opened(space, budget))]
    presets = [trial for trial in known if trial.phase is Phase.RECOMMENDED]
    state = State(
        trials=tuple(replace(t, **outcome) if t in presets else t for t in known[:5]),
        seconds={"load": 1.0},
    )
    state = apply_record(state, {"event": "session"})
    budget = Budget(trials=trials, time="45m")
    while isinstance(step := select_next_step(state, space, budget, 1.0), MeasureStep):
        trial = Trial(
            len(state.trials),
            step.phase,
            space.build_candidate(step.settings).settings,
            step.source_trial,
            replaced_trial=step.replaced_trial,
            peak=PEAK,
        )
        state = replace(state, trials=(*state.trials, trial))
    repeated = [trial.settings for trial in state.trials[5:] if trial.phase is Phase.RECOMMENDED]
    assert repeated == [trial.settings for trial in presets]
