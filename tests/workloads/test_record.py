"""A recording from its first stage to its last, on a model that stands for the hosts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.errors import AutotuneError
from scripts.workloads import catalogue, page
from scripts.workloads.catalogue import read_workload
from scripts.workloads.record import Recording, record_workload
from tests.modelled import noisy

pytestmark = pytest.mark.long
STAGES = ("presets", "engineer", "autotune", "against_preset", "against_engineer")
WORKLOAD = """
title: A model
about: A model of the reference stack.
decisive: [web.php_fpm.max_children]
engineer:
  - service: web.php_fpm
    steps:
      - {web.php_fpm.pm: static, web.php_fpm.max_children: 40}
      - {web.php_fpm.max_children: 80}
smoke: {settings: {web.php_fpm.max_children: 16}, ratio: 1, clients: 1, seconds: 1}
"""


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recording:
    directory = tmp_path / "workloads" / "modelled"
    directory.mkdir(parents=True)
    (directory / "target.yaml").write_text(noisy("budget: {trials: 20, time: 20m}\n"))
    (directory / "workload.yaml").write_text(WORKLOAD)
    monkeypatch.setattr(catalogue, "WORKLOADS_DIRECTORY", directory.parent)
    monkeypatch.setattr(catalogue, "RESULTS_DIRECTORY", tmp_path)
    return Recording(read_workload("modelled"), 8, tmp_path / "studies")


def test_all_stages_are_recorded_once_and_shown(recording: Recording) -> None:
    record = record_workload(recording)
    assert [name for name in record if name in STAGES] == [*STAGES]
    assert "tpe" not in record
    baseline = record["presets"]["baseline"]
    assert baseline["settings"] == {}
    assert baseline["capacity"] > 0
    assert len(baseline["repeats"]) == 2
    assert len(record["presets"]) >= 2
    attempts = record["engineer"]["attempts"]
    assert attempts[0]["settings"] == {}
    assert attempts[1]["settings"] == {"web.php_fpm.pm": "static", "web.php_fpm.max_children": 40}
    assert record["engineer"]["seconds"] <= 8 * 60
    assert len(record["autotune"]["trials"]) >= 3
    for stage in ("against_preset", "against_engineer"):
        assert record[stage].get("same") or record[stage]["gain"]["pairs"] >= 3

    directories = sorted(recording.directory.iterdir())
    assert record_workload(recording) == record
    assert sorted(recording.directory.iterdir()) == directories

    (catalogue.RESULTS_DIRECTORY / "modelled.json").write_text(json.dumps(record))
    stored = page.read_record("modelled", catalogue.RESULTS_DIRECTORY)
    assert stored is not None
    assert page._format_row(recording.workload, stored)[1] == f"{baseline['capacity']:.0f}"


@pytest.mark.parametrize("changes", [{"minutes": 20}, {"files": "digest of an earlier recipe"}, {}])
def test_another_recording_is_not_continued(
    recording: Recording, changes: dict[str, object]
) -> None:
    recording.directory.mkdir()
    record = {"schema": 1, "workload": "modelled", "minutes": 8, **changes}
    recording.file.write_text(json.dumps(record))
    with pytest.raises(AutotuneError, match="part of another recording"):
        record_workload(recording)


@pytest.mark.parametrize("name", ["target.yaml", "workload.yaml"])
def test_a_changed_file_changes_the_digest(recording: Recording, name: str) -> None:
    earlier_digest = recording.workload.compute_digest()
    assert recording.workload.compute_digest() == earlier_digest
    file = recording.workload.target.with_name(name)
    file.write_text(file.read_text() + "# changed\n")
    assert recording.workload.compute_digest() != earlier_digest
