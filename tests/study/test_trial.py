"""What the record of a trial contains."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.diagnose.bottleneck import Bottleneck
from autotune.environments.peak import Peak
from autotune.errors import AutotuneError
from autotune.services.diagnosis import Resource
from autotune.study.schedule import select_next_step
from autotune.study.schedule_steps import MeasureStep
from autotune.study.study_state import Phase, Trial
from autotune.study.study_store import StudyStore
from autotune.study.trial import begin_trial, check_repeated_faults
from autotune.study.trial_context import TrialContext
from autotune.target.model import Budget
from tests.space.targets import GB, ROOMY, fleet
from tests.study.simulated import Silent

CHILDREN = "web.php_fpm.max_children"


def test_a_repeated_trial_names_the_rules_that_limited_its_settings(tmp_path: Path) -> None:
    """The settings in the record of a killed trial already satisfy the rules."""
    space = fleet(tmp_path, web2=replace(ROOMY, memory=GB))
    with closing(StudyStore(tmp_path / "study")) as store:
        unused: Any = Silent()
        context = TrialContext(space, unused, store, unused)
        killed = begin_trial(MeasureStep(Phase.SEARCH, {CHILDREN: 250}), context)
        step = select_next_step(
            store.state, space, Budget.model_construct(trials=40, time=2700.0), 0.0
        )
        assert isinstance(step, MeasureStep)
        repeated = begin_trial(step, context)
    assert any(CHILDREN in binding for binding in killed.bindings)
    assert (repeated.settings, repeated.bindings) == (killed.settings, killed.bindings)


def test_a_configuration_that_divides_by_zero_fails(tmp_path: Path) -> None:
    """No repair changes the divisor, because it is a choice, and no record can contain infinity."""
    buffer = "lb.nginx.access_log_buffer"
    rules = (
        f"{buffer}: {{choices: [0, 64], default: 64}}",
        f"cache.memcached.connections: {{derive: 64 MB / {buffer}}}",
    )
    space = fleet(tmp_path, "parameters:\n" + "".join(f"  {rule}\n" for rule in rules))
    assert space.baseline["cache.memcached.connections"] == 1024
    unused: Any = Silent()
    with closing(StudyStore(tmp_path / "study")) as store:
        context = TrialContext(space, unused, store, unused)
        trial = begin_trial(MeasureStep(Phase.SEARCH, {buffer: 0}), context)
    assert "no values satisfy the rule" in (trial.failure or "")
    assert trial.settings[buffer] == 0


def test_a_fault_of_one_bed_removes_no_other_bed(tmp_path: Path) -> None:
    space = fleet(tmp_path)
    with closing(StudyStore(tmp_path / "study")) as store:
        first, second = (
            store.begin_trial(Phase.BASELINE, space.build_candidate({}), bed=bed)
            for bed in ("b2", "b1")
        )
        store.record_failure(second, "the generator is broken", is_fault=True)
        with pytest.raises(AutotuneError, match="the baseline could not be measured"):
            check_repeated_faults(store, store.state.find_trial(second.number))
        store.record_peak(
            first, Peak(90.0, 80.0, 100.0, 0.03, "measured"), reading_count=3, load_seconds=9.0
        )
        check_repeated_faults(store, store.state.find_trial(first.number))
        for bed in ("b1", "b1", "b2"):
            trial = store.begin_trial(Phase.SEARCH, space.build_candidate({}), bed=bed)
            store.record_failure(trial, "the generator is broken", is_fault=True)
        check_repeated_faults(store, store.state.find_trial(trial.number))
        with pytest.raises(AutotuneError, match="3 trials in a row"):
            check_repeated_faults(store, store.state.find_trial(trial.number - 1))


@contextmanager
def oversized_baseline(directory: Path) -> Iterator[tuple[TrialContext, Trial]]:
    """A study whose running baseline has more children than its hosts have memory for."""
    children = f"parameters:\n  {CHILDREN}: {{default: 30}}\n"
    space = fleet(directory, children, web2=replace(ROOMY, memory=GB))
    unused: Any = Silent()
    with closing(StudyStore(directory / "study")) as store:
        context = TrialContext(space, unused, store, unused)
        yield context, begin_trial(MeasureStep(Phase.BASELINE, space.baseline), context)


@pytest.mark.parametrize(("is_fault", "is_kept"), [(False, True), (True, False)])
def test_presets_keep_to_the_memory_of_the_hosts_if_the_baseline_failed(
    tmp_path: Path, is_fault: bool, is_kept: bool
) -> None:
    """A host without memory sends no samples, so nothing shows what it lacked."""
    with oversized_baseline(tmp_path) as (context, baseline):
        context.store.record_failure(
            baseline, "the stack does not respond correctly", is_fault=is_fault
        )
        preset = begin_trial(MeasureStep(Phase.RECOMMENDED, {CHILDREN: 250}), context)
    assert (preset.settings[CHILDREN] < 30) is is_kept


def test_presets_keep_to_the_memory_that_the_baseline_exhausted(tmp_path: Path) -> None:
    with oversized_baseline(tmp_path) as (context, baseline):
        allowed = begin_trial(MeasureStep(Phase.RECOMMENDED, {CHILDREN: 250}), context)
        context.store.record_bottleneck(
            baseline, Bottleneck("web", "php_fpm", "web2", Resource.MEMORY, "99% in use", 0.9)
        )
        context.store.record_peak(
            baseline, Peak(9.0, 8.0, 10.0, 0.03, "measured"), reading_count=3, load_seconds=9.0
        )
        kept = begin_trial(MeasureStep(Phase.RECOMMENDED, {CHILDREN: 250}), context)
        searched = begin_trial(MeasureStep(Phase.SEARCH, {CHILDREN: 250}), context)
    assert allowed.settings[CHILDREN] == searched.settings[CHILDREN] == 30
    assert kept.settings[CHILDREN] < 30
