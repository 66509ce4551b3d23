from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autotune.cli import app
from autotune.errors import AutotuneError
from autotune.export.manifest import build_manifest
from autotune.export.writer import SETTINGS_FORMATS, write_export
from autotune.report.studies import Study, open_study
from autotune.report.view import build_study_view
from autotune.target.read_target import read_target
from autotune.target.yaml_document import load_yaml

Opened = Callable[[str], Study]
ALWAYS = {"README.md", "manifest.json", "target.yaml", "changes.diff"}
COMMAND = """
name: toy
command: [sh, -c, 'echo "{\\"value\\": 1.5}"']
maximize: throughput
parameters: {x: {range: [1, 100], meaning: "Threads.\\u2028maximize: other"}}
budget: {trials: 3, time: 10m}
search: {sampler: random}
"""


def contents(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_the_winners_files_as_rendered(study: Opened, tmp_path: Path) -> None:
    opened = study("improved")
    written = write_export(opened, tmp_path / "out", include_unchanged=True)
    found = contents(tmp_path / "out")
    assert {str(path) for path in written} == set(found)
    rendered = contents(opened.directory / "configs" / "1")
    assert found.keys() == ALWAYS | {f"files/{path}" for path in rendered}
    assert all(found[f"files/{path}"] == content for path, content in rendered.items())
    assert found["target.yaml"] == (opened.directory / "target.yaml").read_bytes()


def test_the_diff_turns_the_baselines_files_into_the_exported(
    study: Opened, tmp_path: Path
) -> None:
    opened = study("improved")
    write_export(opened, tmp_path / "out", include_unchanged=True)
    stock = tmp_path / "stock"
    for path, content in contents(opened.directory / "configs" / "0").items():
        (stock / path).parent.mkdir(parents=True, exist_ok=True)
        (stock / path).write_bytes(content)
    subprocess.run(
        ["git", "apply", "-p1", str(tmp_path / "out" / "changes.diff")], cwd=stock, check=True,
        env={"GIT_CEILING_DIRECTORIES": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert contents(stock) == contents(tmp_path / "out" / "files")


def test_the_manifest_says_where_it_comes_from(study: Opened, tmp_path: Path) -> None:
    opened = study("improved")
    write_export(opened, tmp_path / "out")
    found = contents(tmp_path / "out")
    manifest = json.loads(found["manifest.json"])
    best = opened.state.find_trial(1)
    assert manifest["kind"] == "autotune-export"
    assert (manifest["schema"], manifest["study"], manifest["trial"]) == (1, "improved", 1)
    assert manifest["parameters"] == best.settings
    assert manifest["baseline"]["parameters"] == opened.state.find_trial(0).settings
    assert manifest["claim"]["verdict"] == "improved"
    assert manifest["claim"]["gain"]["low"] > 1.1
    assert manifest["started"] < manifest["concluded"]
    assert manifest["versions"]["kernel"]
    assert manifest["effective"]["web.php_fpm.max_children"] == 16
    listed = {entry["path"]: entry for entry in manifest["files"]}
    assert listed.keys() == found.keys() - {"manifest.json"}
    for path, entry in listed.items():
        assert entry["sha256"] == sha256(found[path]).hexdigest()
        assert entry["bytes"] == len(found[path])


@pytest.mark.parametrize(
    ("load", "target"),
    [
        ({}, "target.yaml"),
        ({"ca": "/etc/ca.pem"}, "target.yaml"),
        ({"requests": "visits.yaml"}, "targets/improved.yaml"),
        ({"command": ("./generator",)}, "targets/improved.yaml"),
        ({"command": ("generator",)}, "target.yaml"),
    ],
)
def test_the_gain_is_verified_with_a_target_that_finds_its_files(
    load: dict[str, object], target: str, study: Opened
) -> None:
    opened = study("improved")
    changed = opened.target.model_copy(update={"load": opened.target.load.model_copy(update=load)})
    opened = replace(opened, target=changed)
    verify = build_manifest(opened, opened.state.find_trial(1), {})["verify"]
    assert verify == f"autotune measure {target} --config . --against baseline"


def test_the_claim_comes_with_its_readings(study: Opened, tmp_path: Path) -> None:
    opened = study("improved")
    write_export(opened, tmp_path / "out")
    readings = json.loads((tmp_path / "out" / "manifest.json").read_text())["readings"]
    confirming = {t.number: t.source_trial for t in opened.state.trials if t.phase == "confirm"}
    assert {r["trial"] for r in readings} == set(confirming)
    for reading in readings:
        of = confirming[reading["trial"]]
        assert reading["side"] == ("baseline" if of == 0 else "best")
        assert reading["intended"] >= reading["violations"] >= 0
    counted = [r for r in opened.readings if r.trial in confirming and r.purpose != "warm-up"]
    assert len(readings) == len(counted)


@pytest.mark.parametrize("fmt", ["files", *SETTINGS_FORMATS])
def test_the_same_bytes_every_time(fmt: str, study: Opened, tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_export(study("improved"), tmp_path / name, fmt)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_nothing_of_this_machine_is_in_it(copied: Callable[[str], Path], tmp_path: Path) -> None:
    write_export(open_study(copied("improved")), tmp_path / "out")
    assert not any(
        str(tmp_path).encode() in content for content in contents(tmp_path / "out").values()
    )


def test_settings_as_json(study: Opened, tmp_path: Path) -> None:
    write_export(study("improved"), tmp_path / "out", "json", include_unchanged=True)
    found = contents(tmp_path / "out")
    assert found.keys() == ALWAYS | {"settings.json"}
    assert (
        json.loads(found["settings.json"])["parameters"]
        == study("improved").state.find_trial(1).settings
    )


def test_settings_as_yaml_fix_the_parameters_of_a_target(study: Opened, tmp_path: Path) -> None:
    opened = study("improved")
    write_export(opened, tmp_path / "out", "yaml", include_unchanged=True)
    settings = (tmp_path / "out" / "settings.yaml").read_text()
    assert "no effect here" in settings
    fixed = tmp_path / "fixed.yaml"
    fixed.write_text((tmp_path / "out" / "target.yaml").read_text() + settings)
    rules = read_target(fixed).target.parameters
    expected = opened.state.find_trial(1).settings
    assert {name: rule.fixed for name, rule in rules.items()} == expected
    load_yaml(tmp_path / "out" / "settings.yaml")


def test_only_what_changed_is_written(study: Opened, tmp_path: Path) -> None:
    opened = study("improved")
    before, after = (contents(opened.directory / "configs" / number) for number in "01")
    write_export(opened, tmp_path / "files")
    assert contents(tmp_path / "files").keys() == ALWAYS | {
        f"files/{path}" for path in after if after[path] != before.get(path)
    }
    write_export(opened, tmp_path / "json", "json")
    settings = json.loads((tmp_path / "json" / "settings.json").read_text())["parameters"]
    manifest = json.loads((tmp_path / "json" / "manifest.json").read_text())
    assert settings == {change["parameter"]: change["to"] for change in manifest["changes"]}


def test_a_read_me_says_what_changes_and_what_is_proven(study: Opened, tmp_path: Path) -> None:
    opened = study("improved")
    write_export(opened, tmp_path / "out")
    text = (tmp_path / "out" / "README.md").read_text()
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    for change in manifest["changes"]:
        assert f"- `{change['parameter']}`: " in text
    assert build_study_view(opened).headline.text in text
    assert {"## Apply, check, roll back"} <= set(text.splitlines())
    write_export(opened, tmp_path / "other", trial="baseline")
    assert "no gain is claimed" in (tmp_path / "other" / "README.md").read_text()


def test_a_read_me_names_private_servers(study: Opened, tmp_path: Path) -> None:
    write_export(study("improved"), tmp_path / "out")
    text = (tmp_path / "out" / "README.md").read_text()
    assert "The servers of this study were private." in text


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Return a study of a command."""
    directory = tmp_path_factory.mktemp("toy")
    target = directory / "toy.yaml"
    target.write_text(COMMAND)
    words = ["run", str(target), "--yes", "--studies", str(directory / "studies")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    return open_study(directory / "studies" / "toy")


@pytest.mark.long
def test_the_readme_of_a_command_names_no_command_that_refuses_it(
    toy: Study, tmp_path: Path
) -> None:
    for fmt in ("files", "json"):
        write_export(toy, tmp_path / fmt, fmt, trial="0")
        text = (tmp_path / fmt / "README.md").read_text()
        assert "\nautotune measure TARGET --config . --against baseline" in text
        assert "autotune apply" not in text
        assert "files/TIER" not in text


@pytest.mark.long
def test_a_meaning_stays_in_its_comment(toy: Study, tmp_path: Path) -> None:
    """YAML 1.1 ends a line at U+2028, so the text after it would be another key."""
    write_export(toy, tmp_path / "out", "yaml", trial="0", include_unchanged=True)
    text = (tmp_path / "out" / "settings.yaml").read_text(encoding="utf-8")
    assert "Threads.?maximize: other" in text
    assert "\u2028" not in text


def test_a_directory_that_is_in_use_is_left_alone(study: Opened, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    for out, said in ((tmp_path, "is not empty"), (tmp_path / "mine", "is a file")):
        with pytest.raises(AutotuneError, match=said):
            write_export(study("improved"), out)
    assert contents(tmp_path) == {"mine": b"precious"}


def test_an_empty_directory_is_good(study: Opened, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    out.mkdir(parents=True)
    write_export(study("improved"), out)
    assert (out / "manifest.json").exists()
    assert out.stat().st_mode & 0o777 == 0o755
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_an_unknown_format(study: Opened, tmp_path: Path) -> None:
    with pytest.raises(AutotuneError) as caught:
        write_export(study("improved"), tmp_path / "out", "toml")
    assert caught.value.hint == "expected one of: files, ansible, shell, patch, yaml, json"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["aa", "killed", "unmeetable"])
def test_nothing_is_exported_as_a_winner_without_proof(
    name: str, study: Opened, tmp_path: Path
) -> None:
    with pytest.raises(AutotuneError, match="no proven winner"):
        write_export(study(name), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_named_trial_is_exported_without_a_claim(study: Opened, tmp_path: Path) -> None:
    write_export(study("improved"), tmp_path / "out", trial="baseline")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["trial"] == 0
    assert manifest["claim"] is None
    assert manifest["changes"] == []
    assert manifest["readings"] == []
    assert (tmp_path / "out" / "changes.diff").read_bytes() == b""
