"""Whether a site is asked for a page once its hosts are restored."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.study.entry_check import await_correct_entries
from autotune.target.read_target import read_target
from tests.space.targets import FLEET


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_no_request_is_sent_that_may_change_data(tmp_path: Path, method: str) -> None:
    path = tmp_path / "target.yaml"
    path.write_text(FLEET.replace("path: /kv.php", f"path: /kv.php, method: {method}"))
    said = await_correct_entries(read_target(path), {})
    assert said == f"no request was sent to the entry: {method} may change data"
