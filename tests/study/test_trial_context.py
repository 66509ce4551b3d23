"""The lock and the store of a study, opened for a session."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.environments.preparation import prepare
from autotune.environments.simulated import SimulatedEnvironment
from autotune.study.trial_context import open_locked_store
from autotune.target.read_target import read_target
from tests.modelled import noisy
from tests.study.test_bed_workers import Noting


def test_parameters_without_an_effect_are_reported_before_the_first_trial(tmp_path: Path) -> None:
    (tmp_path / "modelled.yaml").write_text(noisy(""))
    environment = prepare(read_target(tmp_path / "modelled.yaml"))
    assert isinstance(environment, SimulatedEnvironment)
    excluded = ("kept at the baseline because the model ignores them: web.nginx.gzip",)
    progress: Any = Noting()
    with open_locked_store(
        replace(environment, excluded=excluded), tmp_path / "study", progress
    ) as store:
        assert tuple(progress.notes) == excluded
        assert not store.state.trials
