"""Targets with which a worker may join a study, without a database."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.errors import TargetError
from autotune.study.join_study import _adapt_target
from autotune.study.study_database import SharedStudy
from autotune.target.read_target import TargetFile, read_target
from tests.modelled import noisy
from tests.study.test_bed_workers import BEDS

STUDY_TARGET = noisy(f"budget: {{trials: 8, time: 30m}}\nbeds:\n{BEDS}")
FIRST_RECORD = {"event": "study", "started": "now", "shared": True}


def adapt(directory: Path, old: str, new: str) -> TargetFile:
    """Return the worker's target, changed and adapted to the study."""
    text = STUDY_TARGET.replace(old, new)
    assert text != STUDY_TARGET
    (directory / "worker.yaml").write_text(text)
    study = SharedStudy(1, "shop", STUDY_TARGET, FIRST_RECORD)
    return _adapt_target(read_target(directory / "worker.yaml"), study)


@pytest.mark.parametrize(
    "change",
    [
        ("capacity: 0.8", "capacity: 0.7"),
        ("  a: {", "  other: {"),
        ("trials: 8", "trials: 80"),
    ],
)
def test_a_worker_joins_with_its_own_beds_and_the_budget_of_the_study(
    tmp_path: Path, change: tuple[str, str]
) -> None:
    file = adapt(tmp_path, *change)
    assert file.target.budget.trials == 8
    assert file.target.beds == read_target(tmp_path / "worker.yaml").target.beds


@pytest.mark.parametrize(
    ("change", "path"),
    [(("p99: 50ms", "p99: 60ms"), "slo"), (("cpus: 8", "cpus: 4"), "hosts.lb1")],
)
def test_a_worker_with_another_stack_or_objective_is_refused(
    tmp_path: Path, change: tuple[str, str], path: str
) -> None:
    with pytest.raises(TargetError, match=rf"differs from the target of study shop:\n  {path}"):
        adapt(tmp_path, *change)
