"""Files of services that keep their data in memory alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.environments.data_loss import list_editable_files
from autotune.services.base import AdoptedConfig, ConfigFile
from autotune.target.read_target import read_target

PAPER = Path(__file__).parents[2] / "targets" / "paper.yaml"
FILES = (ConfigFile("/etc/memcached.conf", "memcached.conf"),)


@pytest.mark.parametrize(
    ("loses", "allowed", "expected"),
    [
        (
            "items are only in memory",
            False,
            AdoptedConfig((), "", loses="items are only in memory"),
        ),
        ("items are only in memory", True, AdoptedConfig(FILES, "")),
        ("", False, AdoptedConfig(FILES, "")),
    ],
)
def test_files_are_edited_where_no_data_is_lost_or_the_tier_allows_it(
    tmp_path: Path, loses: str, allowed: bool, expected: AdoptedConfig
) -> None:
    text = PAPER.read_text()
    changed = text.replace("service: memcached", "service: memcached, allow_data_loss: true")
    assert changed != text
    target = tmp_path / "target.yaml"
    target.write_text(changed if allowed else text)
    own = {"cache.mc1.memcached": AdoptedConfig(FILES, "", loses=loses)}
    assert list_editable_files(read_target(target).target, own) == {"cache.mc1.memcached": expected}
