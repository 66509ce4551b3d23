"""What the record of a trial contains."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.study.schedule import select_next_step
from autotune.study.schedule_steps import MeasureStep
from autotune.study.study_state import Phase
from autotune.study.study_store import StudyStore
from autotune.study.trial import begin_trial
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
