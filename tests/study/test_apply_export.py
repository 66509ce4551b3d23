"""An export brings with it what its study knew of memory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from autotune.cli import app
from autotune.deploy.deploy_result import DeployFailed
from autotune.environments.preparation import prepare
from autotune.errors import AutotuneError
from autotune.services.base import Settings
from autotune.study.apply_export import (
    apply_settings,
    read_applicable_settings,
    read_compatible_settings,
    read_exported_rss,
)
from autotune.study.measure_capacity import (
    build_comparison_configuration,
    build_measurement_request,
)
from autotune.study.trial_context import open_locked_store
from autotune.target.read_target import read_target
from tests.modelled import noisy
from tests.space.targets import GB, ROOMY, fleet
from tests.study.simulated import Silent


def test_what_was_measured_then_keeps_the_rules_now(tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps({"parameters": {}, "rss": {"web.php_fpm": 20 * 2**20}}))
    small = ROOMY.__class__(cpus=4, memory=GB, nofile=ROOMY.nofile)
    space = fleet(tmp_path, "", web1=small)
    asked = {"web.php_fpm.max_children": 28}
    assert space.build_candidate(asked).settings["web.php_fpm.max_children"] == 20
    known = space.with_measured_memory(read_exported_rss(manifest)).build_candidate(asked)
    assert known.settings["web.php_fpm.max_children"] == 28
    assert known.repairs == ()


def test_sizes_that_no_process_has_do_not_disable_the_memory_rule(tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps({"parameters": {}, "rss": {"web.php_fpm": 0}}))
    space = fleet(tmp_path, "", web1=replace(ROOMY, memory=GB))
    known = space.with_measured_memory(read_exported_rss(manifest))
    candidate = known.build_candidate({"web.php_fpm.max_children": 900})
    # 30 MB are assumed for each child, and at least a tenth counts.
    most = int(0.8 * GB / (3 * 2**20))
    assert 20 < candidate.settings["web.php_fpm.max_children"] <= most


def test_memory_that_no_host_has_is_a_mistake_with_a_way_out(tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps({"parameters": {}, "rss": {"web.php_fpm": 2**50}}))
    with pytest.raises(AutotuneError, match="80% of memory") as caught:
        fleet(tmp_path, "").with_measured_memory(read_exported_rss(manifest)).build_candidate({})
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "found"), [("{}", {}), ('{"rss": {"lb.nginx": 5}}', {"lb.nginx": 5})]
)
def test_older_exports_know_nothing(tmp_path: Path, text: str, found: dict[str, int]) -> None:
    (tmp_path / "manifest.json").write_text(text)
    assert read_exported_rss(tmp_path) == found


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "no JSON",
        '{"rss": 5}',
        '{"rss": ' + 9999 * "[" + 9999 * "]" + "}",
        '{"rss": {"lb.nginx": "5"}}',
        '{"rss": {"lb.nginx": [5]}}',
        '{"rss": {"lb.nginx": 1e400}}',
        '{"rss": {"lb.nginx": -5}}',
        '{"rss": {"lb.nginx": 1' + 400 * "0" + "}}",
    ],
)
def test_what_is_no_manifest_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(AutotuneError, match="is not the manifest of an export"):
        read_exported_rss(tmp_path)


@pytest.mark.parametrize("left", [[], ["lab"]], ids=["restored", "not restored"])
def test_one_that_failed_leaves_a_study_only_for_hosts_to_be_restored(
    tmp_path: Path, left: list[str]
) -> None:
    (target := tmp_path / "modelled.yaml").write_text(noisy("budget: {trials: 5, time: 30m}\n"))
    environment, directory = prepare(read_target(target)), tmp_path / "studies" / "shop-applied"
    for host in left:
        (directory / "originals").mkdir(parents=True)
        (directory / "originals" / f"{host}.json").touch()
    refused: Settings = {"lb.nginx.use": "select", "lb.nginx.worker_connections": 4096}
    with pytest.raises(DeployFailed, match="select"):
        apply_settings(environment, refused, directory, Silent())
    assert directory.exists() == bool(left)


@pytest.mark.parametrize("before", [False, True], ids=["made by it", "there before"])
def test_nor_does_a_session_that_never_began(tmp_path: Path, before: bool) -> None:
    (target := tmp_path / "modelled.yaml").write_text(noisy("budget: {trials: 5, time: 30m}\n"))
    directory = tmp_path / "studies" / "shop"
    if before:
        directory.mkdir(parents=True)
        (directory / "notes.txt").write_text("an SRE's own")
    locked = AutotuneError("the hosts of this study are another's")
    with (
        pytest.raises(AutotuneError),
        open_locked_store(prepare(read_target(target)), directory, Silent()),
    ):
        raise locked
    assert directory.exists() == (directory / "notes.txt").exists() == before


def test_a_path_that_no_record_can_contain_is_refused(tmp_path: Path) -> None:
    (tmp_path / "jos\udce9").mkdir()
    for target, directory in (
        (tmp_path / "jos\udce9" / "modelled.yaml", tmp_path / "studies" / "shop"),
        (tmp_path / "modelled.yaml", tmp_path / "jos\udce9" / "shop"),
    ):
        target.write_text(noisy("budget: {trials: 5, time: 30m}\n"))
        with (
            pytest.raises(AutotuneError, match=r"jos\\xe9.* is not UTF-8"),
            open_locked_store(prepare(read_target(target)), directory, Silent()),
        ):
            pass
        assert not directory.exists()


def written(directory: Path, document: dict[str, object]) -> Path:
    (path := directory / "export.json").write_text(json.dumps(document))
    return path


REFUSED = [
    (
        {"parameters": {"web.php_fpm.max_children": 3200}},
        "web.php_fpm.max_children = 3200 would be",
    ),
    ({"parameters": {"web.php_fpm.nonsense": 1}}, "web.php_fpm.nonsense"),
    ({"parameters": {"web.apache.ServerLimit": 9}}, "web.apache.ServerLimit"),
    # Spare servers of a pool have no effect while all of its children always run.
    (
        {"parameters": {"web.php_fpm.pm": "static", "web.php_fpm.max_spare_servers": 4}},
        "have no effect in this target: web.php_fpm.max_spare_servers",
    ),
]


@pytest.mark.parametrize(("document", "why"), REFUSED)
def test_measuring_refuses_what_applying_refuses(
    tmp_path: Path, document: dict[str, object], why: str
) -> None:
    (tmp_path / "target").mkdir()
    space = fleet(
        tmp_path / "target", "", web1=ROOMY.__class__(cpus=4, memory=GB, nofile=ROOMY.nofile)
    )
    environment = SimpleNamespace(space=space)
    export = written(tmp_path, document)
    for refuse in (
        lambda: read_applicable_settings(environment, export),  # type: ignore[arg-type]
        lambda: build_measurement_request(environment, export, None, 1),  # type: ignore[arg-type]
        lambda: build_comparison_configuration(space, str(export), {}),
    ):
        with pytest.raises(AutotuneError) as raised:
            refuse()
        assert why in raised.value.message
        assert raised.value.hint


def test_settings_that_had_no_effect_in_their_study_are_no_reason(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    space = fleet(tmp_path / "target", "")
    parameters = {"web.php_fpm.pm": "static", "web.php_fpm.max_spare_servers": 4}
    changes = [{"parameter": "web.php_fpm.pm"}]
    export = written(tmp_path, {"parameters": parameters, "changes": changes})
    assert read_compatible_settings(space, export) == parameters


def test_a_value_that_a_program_computed_is_no_reason(tmp_path: Path) -> None:
    """The target does not tune the parameter, so its value in effect need not keep the rules."""
    (tmp_path / "target").mkdir()
    name = "web.php_fpm.max_children"
    space = fleet(
        tmp_path / "target",
        f"parameters:\n  {name}: {{drop: true}}\n",
        web1=replace(ROOMY, memory=GB),
    )
    requested = {name: space.baseline[name]}
    export = written(tmp_path, {"parameters": {name: 3200}, "requested": requested})
    assert read_compatible_settings(space, export) == requested
    export = written(tmp_path, {"parameters": {name: 3200}, "requested": {name: 3000}})
    with pytest.raises(AutotuneError, match=f"{name} = 3200 would be"):
        read_compatible_settings(space, export)


def test_what_a_model_won_is_applied_to_no_host(tmp_path: Path) -> None:
    export = tmp_path / "winner"
    export.mkdir()
    (export / "manifest.json").write_text('{"simulated": true, "parameters": {}}')
    target = Path(__file__).parents[2] / "targets" / "lab.yaml"
    done = CliRunner().invoke(app, ["apply", str(export), str(target), "--yes"])
    assert done.exit_code == 1
    assert "comes from a model" in str(done.exception)
