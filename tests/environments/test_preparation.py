"""What is refused before any host is inspected."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.environments.preparation import prepare
from autotune.errors import TargetError
from autotune.target.read_target import read_target

LOCAL = (Path(__file__).parents[2] / "targets" / "local.yaml").read_text()


def test_tiers_with_different_runtimes_are_refused(tmp_path: Path) -> None:
    path, store = tmp_path / "t.yaml", "runtime: embedded, service: redis"
    assert store in LOCAL
    path.write_text(LOCAL.replace(store, "runtime: systemd, service: redis"))
    with pytest.raises(
        TargetError, match=r"tier store: all tiers .* the same `runtime:`"
    ) as refused:
        prepare(read_target(path))
    assert "write `runtime: systemd` in all tiers" in (refused.value.hint or "")
