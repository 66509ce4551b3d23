"""Choices that an installed program does not support are not tried, and templates are digested."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotune import foreign_files
from autotune.environments.stack_files import compute_template_digests, exclude_rejected_choices
from autotune.errors import AutotuneError
from autotune.services.base import Action, Parameter, Settings
from autotune.space.dimension import Dimension
from autotune.space.space import SearchSpace
from autotune.target.read_target import read_target
from tests.modelled import noisy

NAME = "db.server.compression"
PARAMETER = Parameter(
    "compression", "", stock="off", action=Action.RELOAD, source="", built_in=True
)
SPACE = SearchSpace(
    (Dimension(NAME, PARAMETER, "off", choices=("off", "lz4", "zstd")),
     Dimension("db.server.size", Parameter("size", "", stock=1, action=Action.RELOAD, source=""),
               1, 1, 9)),
    (), {},
)  # fmt: skip


def instance(host: str, service: str = "server") -> Any:
    placement = SimpleNamespace(host=host)
    return SimpleNamespace(parameter_prefix=f"db.{service}", placement=placement)


@pytest.mark.parametrize(
    ("unsupported", "remaining", "line"),
    [
        ({}, ("off", "lz4", "zstd"), None),
        ({"db1": ["zstd"]}, ("off", "lz4"), "zstd (db1: no zstd)"),
        # The hosts of a tier may run different versions.
        ({"db2": ["zstd"]}, ("off", "lz4"), "zstd (db2: no zstd)"),
        ({"db1": ["zstd"], "db2": ["lz4", "zstd"]}, ("off",), "zstd, lz4 (db1: no zstd)"),
    ],
)
def test_a_choice_that_a_host_does_not_support_is_not_tried(
    unsupported: dict[str, list[str]], remaining: tuple[str, ...], line: str | None
) -> None:
    asked: list[str] = []

    def find_errors(part: Any, candidates: Sequence[Settings]) -> list[str | None]:
        host = part.placement.host
        asked.append(host)
        values = [str(settings[NAME]) for settings in candidates]
        return [f"no {value}" if value in unsupported.get(host, ()) else None for value in values]

    instances = [instance("db1"), instance("db1"), instance("db1", "host"), instance("db2")]
    space, lines = exclude_rejected_choices(SPACE, instances, find_errors)
    assert asked == ["db1", "db2"]
    assert space.dimensions[0].choices == remaining
    assert lines == ((f"{NAME}: the program does not support {line}",) if line else ())


def test_a_template_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "modelled.yaml"
    path.write_text(noisy("").replace("service: redis", "service: redis, templates: own"))
    template = tmp_path / "own" / "huge.j2"
    template.parent.mkdir()
    with template.open("wb") as file:
        file.truncate(foreign_files.MAX_RECORD_BYTES + 1)
    with pytest.raises(AutotuneError, match=r"huge\.j2"):
        compute_template_digests(read_target(path))
    template.unlink()
    assert compute_template_digests(read_target(path)) == {}
