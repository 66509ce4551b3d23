"""Targets with which a worker may join a study, without a database."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.environments import multi_bed
from autotune.errors import AutotuneError, LockedError, TargetError
from autotune.loads.registry import compute_request_digests
from autotune.study import ownership
from autotune.study.directory import StudyLock
from autotune.study.join_study import (
    _adapt_target,
    join_study,
    prepare_joining_beds,
    write_study_target,
)
from autotune.study.study_database import SharedStudy
from autotune.target.beds import find_bed_directory
from autotune.target.read_target import TARGET_FILE_NAME, TargetFile, read_target
from tests.modelled import noisy
from tests.study.test_bed_workers import BEDS, Silent

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


def test_a_refused_worker_keeps_the_targets_of_the_running_worker(tmp_path: Path) -> None:
    """`restore` uses the target with which the running worker changed the hosts."""
    (tmp_path / "worker.yaml").write_text(STUDY_TARGET.replace("capacity: 0.8", "capacity: 0.7"))
    environment = multi_bed.prepare(read_target(tmp_path / "worker.yaml"), ("b",))
    study = SharedStudy(1, "shop", STUDY_TARGET, FIRST_RECORD)
    directory = tmp_path / "shop"
    unused: Any = Silent()
    write_study_target(study, directory)
    ownership.seal_bed(directory, "b", STUDY_TARGET.encode())
    with StudyLock(directory / "lock"), pytest.raises(LockedError):
        join_study(environment, directory, unused, study=study, storage=unused)
    path = find_bed_directory(directory, "b") / TARGET_FILE_NAME
    assert path.read_text() == STUDY_TARGET
    assert ownership.has_valid_bed_seal(directory, "b")


def test_files_of_a_shared_target_are_those_beside_the_target_that_the_study_read(
    tmp_path: Path,
) -> None:
    record = {**FIRST_RECORD, "source": str(tmp_path / "shop.yaml")}
    study = SharedStudy(1, "shop", STUDY_TARGET, record)
    assert write_study_target(study, tmp_path / "studies" / "shop").path == tmp_path / "shop.yaml"


def test_a_worker_with_other_requests_is_refused(tmp_path: Path) -> None:
    text = STUDY_TARGET.replace("path: /kv.php", "requests: asked.yaml")
    path, asked = tmp_path / "worker.yaml", tmp_path / "asked.yaml"
    path.write_text(text)
    asked.write_text("requests: [{path: /a}]\n")
    file = read_target(path)
    study = SharedStudy(1, "shop", text, {**FIRST_RECORD, "asked": compute_request_digests(file)})
    assert _adapt_target(file, study).target.beds == file.target.beds
    asked.write_text("requests: [{path: /b}]\n")
    with pytest.raises(TargetError, match=r"(?s)study shop:\n  asked\.yaml: the file differs"):
        _adapt_target(file, study)


def test_a_worker_of_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "worker.yaml").write_text(STUDY_TARGET)
    study = SharedStudy(1, "shop", STUDY_TARGET, {**FIRST_RECORD, "autotune": "0.0.1", "space": {}})
    database: Any = SimpleNamespace(read_records=lambda _: ())
    with pytest.raises(
        AutotuneError, match=r"study shop needs autotune 0\.0\.1; this is "
    ) as refused:
        prepare_joining_beds(study, database, read_target(tmp_path / "worker.yaml"), "a")
    assert "the same version" in (refused.value.hint or "")


@pytest.mark.parametrize("fields", [{}, {"autotune": 1, "space": {}}, {"autotune": "0.1.0"}])
def test_a_first_record_without_its_fields_is_refused(
    fields: dict[str, object], tmp_path: Path
) -> None:
    (tmp_path / "worker.yaml").write_text(STUDY_TARGET)
    study = SharedStudy(1, "shop", STUDY_TARGET, {**FIRST_RECORD, **fields})
    database: Any = SimpleNamespace(read_records=lambda _: ())
    with pytest.raises(AutotuneError, match="the first record of study shop is incomplete"):
        prepare_joining_beds(study, database, read_target(tmp_path / "worker.yaml"), "a")


def test_a_machine_without_the_directory_of_the_target_uses_the_directory_of_the_study(
    tmp_path: Path,
) -> None:
    record = {**FIRST_RECORD, "source": str(tmp_path / "on-another-machine" / "shop.yaml")}
    directory = tmp_path / "studies" / "shop"
    study = SharedStudy(1, "shop", STUDY_TARGET, record)
    assert write_study_target(study, directory).path == directory / TARGET_FILE_NAME
