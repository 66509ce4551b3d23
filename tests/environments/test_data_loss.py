"""Files of services that keep their data in memory alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.environments.data_loss import editable_files
from autotune.services.base import ConfigFile, Own
from autotune.target.read import read

PAPER = Path(__file__).parents[2] / "targets" / "paper.yaml"
FILES = (ConfigFile("/etc/memcached.conf", "memcached.conf"),)


@pytest.mark.parametrize(
    ("loses", "allowed", "expected"),
    [
        ("items are only in memory", False, Own((), "", loses="items are only in memory")),
        ("items are only in memory", True, Own(FILES, "")),
        ("", False, Own(FILES, "")),
    ],
)
def test_files_are_edited_where_no_data_is_lost_or_the_tier_allows_it(
    tmp_path: Path, loses: str, allowed: bool, expected: Own
) -> None:
    text = PAPER.read_text()
    changed = text.replace("service: memcached", "service: memcached, allow_data_loss: true")
    assert changed != text
    target = tmp_path / "target.yaml"
    target.write_text(changed if allowed else text)
    own = {"cache.mc1.memcached": Own(FILES, "", loses=loses)}
    assert editable_files(read(target).target, own) == {"cache.mc1.memcached": expected}
