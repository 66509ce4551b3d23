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


@pytest.mark.parametrize(
    ("command", "variables"),
    [
        ("/usr/bin/env A=1 B=2 node app.js", {"A": "1", "B": "2"}),
        ('"/usr/bin/env" "A=1 2" node app.js', {"A": "1 2"}),
        ("-/usr/bin/env A=1 node app.js", {"A": "1"}),
        ("@/usr/bin/env env A=1 node app.js", {"A": "1"}),
        ("/usr/bin/env -i -u B --chdir=/srv A=1 node B=2", {"A": "1"}),
        ("/usr/bin/nice -n 5 /usr/bin/env A=1 node app.js", {"A": "1"}),
        ("taskset -c 0-3 chrt -f 10 env A=1 node app.js", {"A": "1"}),
        ("setpriv --reuid www-data numactl -i all tini -- env A=1 node app.js", {"A": "1"}),
        ("env A=1 B=1 nice -5 env B=2 node app.js", {"A": "1", "B": "2"}),
        # arguments of the program itself
        ("/usr/bin/node app.js env A=1", {}),
        ("/usr/bin/node env A=1", {}),
        ("/usr/bin/node --require env A=1", {}),
        ("/usr/bin/nice node env A=1", {}),
        ("/usr/bin/nice -5 node env A=1", {}),
        ("/usr/bin/nice -n 5 node env A=1", {}),
        ("/usr/bin/env A=1 node env B=2", {"A": "1"}),
        ("", {}),
    ],
)
def test_only_env_before_the_program_sets_variables(
    command: str, variables: dict[str, str]
) -> None:
    unit = f"[Service]\nExecStart={command}\n".encode()
    environment = read_environment(FileTree({f"{ETC}/{UNIT}": unit}), UNIT)
    assert environment.values == variables
    assert all(variable.in_command for variable in environment.variables.values())
