"""Which file of a unit is edited to set a variable of its environment."""

from __future__ import annotations

import pytest

from autotune.services.config_files import FileTree
from autotune.services.unit_environment import (
    EnvironmentSetting,
    read_environment,
    tune_variables,
)

UNIT = "shop-api.service"
ETC = "/etc/systemd/system"
POOL = EnvironmentSetting("uv_threadpool_size", "UV_THREADPOOL_SIZE", 4)
DROP_IN = f"{ETC}/{UNIT}.d/zz-autotune.conf"


@pytest.mark.parametrize(
    ("path", "edited"),
    [
        (f"{ETC}/{UNIT}", f"{ETC}/{UNIT}"),
        (f"{ETC}/{UNIT}.d/pool.conf", f"{ETC}/{UNIT}.d/pool.conf"),
        ("/usr/lib/systemd/system/shop-api.service", DROP_IN),
        # These apply to other units as well, and their names do not show which units must restart.
        (f"{ETC}/shop-.service.d/pool.conf", DROP_IN),
        (f"{ETC}/service.d/pool.conf", DROP_IN),
    ],
)
def test_only_files_of_a_single_unit_are_edited_in_place(path: str, edited: str) -> None:
    own = {f"/usr/lib/systemd/system/{UNIT}": b"[Service]\nExecStart=/usr/bin/node app.js\n"}
    variable = b"[Service]\nExecStart=/usr/bin/node app.js\nEnvironment=UV_THREADPOOL_SIZE=8\n"
    environment = read_environment(FileTree({**own, path: variable}), UNIT)
    result = tune_variables(environment, [POOL], lambda *_: True)
    assert (result.values, result.skipped) == ({"uv_threadpool_size": 8}, {})
    assert [edit.path for edit in result.edits] == [edited]
