"""An export brings with it what its study knew of memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.errors import AutotuneError
from autotune.study.applying import exported_rss
from tests.space.targets import GB, ROOMY, fleet


def test_what_was_measured_then_keeps_the_rules_now(tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps({"parameters": {}, "rss": {"web.php_fpm": 20 * 2**20}}))
    small = ROOMY.__class__(cpus=4, memory=GB, nofile=ROOMY.nofile)
    space = fleet(tmp_path, "", web1=small)
    asked = {"web.php_fpm.max_children": 28}
    assert space.candidate(asked).settings["web.php_fpm.max_children"] == 20
    known = space.knowing(exported_rss(manifest)).candidate(asked)
    assert known.settings["web.php_fpm.max_children"] == 28
    assert known.bindings == ()


def test_memory_that_no_host_has_is_a_mistake_with_a_way_out(tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps({"parameters": {}, "rss": {"web.php_fpm": 2**50}}))
    with pytest.raises(AutotuneError, match="80% of memory") as caught:
        fleet(tmp_path, "").knowing(exported_rss(manifest)).candidate({})
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "found"), [("{}", {}), ('{"rss": {"lb.nginx": 5}}', {"lb.nginx": 5})]
)
def test_older_exports_know_nothing(tmp_path: Path, text: str, found: dict[str, int]) -> None:
    (tmp_path / "manifest.json").write_text(text)
    assert exported_rss(tmp_path) == found


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
        exported_rss(tmp_path)
