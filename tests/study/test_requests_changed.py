"""Resuming a study whose requests are others by now."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from autotune.errors import TargetError
from autotune.loads.registry import compute_request_digests
from autotune.study import start
from autotune.study.study_store import StudyStore
from autotune.target.read_target import read_target

TARGET = """\
name: shop
slo: {p99: 50ms, errors: 0.1%}
hosts: {web1: {address: 127.0.0.1}}
tiers: {web: {hosts: web1, service: nginx, runtime: embedded}}
load: {KEY: asked.yaml}
"""


@pytest.mark.parametrize("key", ["requests", "uris", "sessions"])
def test_readings_do_not_speak_of_other_requests(tmp_path: Path, key: str) -> None:
    target, asked, study = tmp_path / "shop.yaml", tmp_path / "asked.yaml", tmp_path / "study"
    target.write_text(TARGET.replace("KEY", key))
    asked.write_text("requests: [{path: /a}]\n")
    study.mkdir()
    store = StudyStore(study)
    file = read_target(target)
    store.record_study_start("study", TARGET.replace("KEY", key), source=str(target), facts={},
                     asked=compute_request_digests(file))  # fmt: skip
    store.close()
    assert start._read_current_target(study).target == file.target
    for change in (lambda: asked.write_text("requests: [{path: /b}]\n"), asked.unlink):
        change()
        with pytest.raises(TargetError, match=r"(?s)has changed.*asked\.yaml") as error:
            start._read_current_target(study)
        assert "undo the change" in str(error.value.hint)


def test_files_of_a_renamed_target_are_still_found_beside_it(tmp_path: Path) -> None:
    target, asked, study = tmp_path / "shop.yaml", tmp_path / "asked.yaml", tmp_path / "study"
    target.write_text(TARGET.replace("KEY", "requests"))
    asked.write_text("requests: [{path: /a}]\n")
    study.mkdir()
    file = read_target(target)
    with closing(StudyStore(study)) as store:
        store.record_study_start("study", file.document.text, source=str(target), facts={},
                         asked=compute_request_digests(file))  # fmt: skip
    target.rename(tmp_path / "old.yaml")
    continued = start._read_current_target(study)
    assert continued.target == file.target
    assert compute_request_digests(continued) == compute_request_digests(file)
    asked.write_text("requests: [{path: /b}]\n")
    with pytest.raises(TargetError, match=r"(?s)has changed.*asked\.yaml"):
        start._read_current_target(study)


@pytest.mark.parametrize("changed", ["lib/site.js", "pages.json"])
def test_readings_do_not_speak_of_a_script_that_imports_another_file(
    tmp_path: Path, changed: str
) -> None:
    target, study = tmp_path / "shop.yaml", tmp_path / "study"
    text = TARGET.replace("KEY: asked.yaml", "generator: k6, script: ./k6/shop.js")
    target.write_text(text)
    for name, content in {
        "k6/shop.js": "import './lib/site.js'; open('./pages.json'); export default () => {}",
        "k6/lib/site.js": "export const SITE = '/a';",
        "k6/pages.json": "[]",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    study.mkdir()
    with closing(StudyStore(study)) as store:
        store.record_study_start("study", text, source=str(target), facts={},
                                 asked=compute_request_digests(read_target(target)))  # fmt: skip
    start._read_current_target(study)
    (tmp_path / "k6" / changed).write_text("[1]")
    with pytest.raises(TargetError, match=rf"(?s)has changed since.*  k6/{changed}: "):
        start._read_current_target(study)
    (tmp_path / "k6" / changed).unlink()
    with pytest.raises(TargetError, match=rf"cannot read {Path(changed).name}: No such file"):
        start._read_current_target(study)
