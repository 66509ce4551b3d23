from __future__ import annotations

import stat
from pathlib import Path

import pytest

from autotune.lab.keys import make_keys
from autotune.lab.plan import LabHost, build_plan


@pytest.mark.stack
def test_only_its_owner_reaches_the_disks_of_a_lab(tmp_path: Path) -> None:
    """A directory that existed before the lab may be open to other accounts."""
    tmp_path.chmod(0o755)
    plan = build_plan([LabHost("web", "198.18.0.10")], tmp_path)
    make_keys(plan)
    disks = plan.names.machines_directory
    assert plan.names.get_machine_directory("web").parent == disks
    assert stat.S_IMODE(disks.stat().st_mode) == 0o700
