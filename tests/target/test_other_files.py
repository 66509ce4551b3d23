"""Files of other kinds are told from targets, and none of the shipped targets is taken for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.errors import TargetError
from autotune.target.other_files import reject_other_file
from autotune.target.read_target import load_document, read_target
from autotune.target.shipped_files import list_examples

ROOT = Path(__file__).parents[2]
SWEEPS = sorted((ROOT / "targets" / "sweeps").glob("*figure*.yaml"))


@pytest.mark.parametrize("path", list_examples().values(), ids=lambda path: path.stem)
def test_a_shipped_target_is_a_target(path: Path) -> None:
    reject_other_file(load_document(path))


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_a_shipped_sweep_is_not_a_target(path: Path) -> None:
    with pytest.raises(TargetError, match="this is a sweep file"):
        read_target(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("requests: [{path: /}]", "a list of requests"),
        ("{kind: autotune-export, study: a, parameters: {}}", "the manifest of an export"),
        ("parameters: {lb.nginx.use: {fixed: poll}}", "a file of settings"),
        ("{simulated: true, parameters: {}}", "a file of settings"),
        ("services: {web: {build: .}}", "a Compose file"),
        ("{role: web, unit: shop.service}", "the declaration of a service"),
    ],
)
def test_a_file_of_another_kind_is_named(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "other.yaml"
    path.write_text(text)
    with pytest.raises(TargetError) as caught:
        read_target(path)
    assert caught.value.message == f"{path}:1:1: this is {said}, not a target"
    assert caught.value.hint


@pytest.mark.parametrize(
    "text", ["services: {web: {role: web}}", "name: shop\nparameters: {}", "load: {requests: r}"]
)
def test_an_incomplete_target_is_still_a_target(text: str, tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(text)
    with pytest.raises(TargetError) as caught:
        read_target(path)
    assert "not a target" not in caught.value.message
