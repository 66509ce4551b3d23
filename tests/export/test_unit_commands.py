"""Edits of units that an export may repeat: limits, and numbers of known variables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from autotune.deploy.stack import ServiceInstance
from autotune.errors import AutotuneError
from autotune.export.unit_commands import check_commands
from autotune.report.studies import open_study
from autotune.services.registry import SHIPPED
from autotune.unified_diff import Hunk
from tests.deploy.test_desired_state import wanted

STUDY = Path(__file__).parents[1] / "report" / "studies" / "improved"
UNIT = "/etc/systemd/system/app.service"
VARIABLES = "/etc/default/app"
MASKED = "autotune-masked-1-of-2"
EDITS = {
    "limit": (UNIT, ["LimitNOFILE=1024"], ["LimitNOFILE=65536:65536"], True),
    "variable": (UNIT, ['Environment="WEB_CONCURRENCY=2"'], ['Environment="WEB_CONCURRENCY=8"'], True),
    "variable of a file": (VARIABLES, ["UV_THREADPOOL_SIZE=4"], ["UV_THREADPOOL_SIZE=16"], True),
    "option": (
        UNIT,
        ['Environment="NODE_OPTIONS=--enable-source-maps"'],
        ['Environment="NODE_OPTIONS=--enable-source-maps --max-semi-space-size=32"'],
        True,
    ),
    "another option": (UNIT, [], ['Environment="NODE_OPTIONS=--inspect=9229"'], False),
    "module": (UNIT, [], ['Environment="NODE_OPTIONS=--require=evil.js"'], False),
    "unknown variable": (UNIT, [], ['Environment="BASH_ENV=1"'], False),
    "second variable": (UNIT, [], ["Environment=WORKERS=1 LD_PRELOAD=evil.so"], False),
    "command": (UNIT, ["ExecStart=/usr/bin/node a"], ["ExecStart=/usr/bin/node b"], False),
    "account goes": (UNIT, ["User=www-data"], [], False),
    "account": (UNIT, ["User=1000"], ["User=0"], False),
    "line that goes on": (UNIT, [], ["LimitNOFILE=1024\\"], False),
    "section": (UNIT, [], ["[Service]"], False),
    "empty line goes": (UNIT, [""], [], False),
    "numbers next to masked values": (
        UNIT,
        [f'Environment="NODE_OPTIONS={MASKED} --max-semi-space-size=16"'],
        [f'Environment="NODE_OPTIONS={MASKED} --max-semi-space-size=32"'],
        True,
    ),
    "option behind masked values": (
        UNIT,
        [f'Environment="NODE_OPTIONS={MASKED}"'],
        [f'Environment="NODE_OPTIONS={MASKED} --max-semi-space-size=32"'],
        True,
    ),
    "option in front of masked values": (
        UNIT,
        [f'Environment="NODE_OPTIONS=--require {MASKED}"'],
        [f'Environment="NODE_OPTIONS=--require --max-semi-space-size=32 {MASKED}"'],
        False,
    ),
    "masked values of another variable": (
        UNIT,
        [f'Environment="NODE_OPTIONS={MASKED}"'],
        [f'Environment="UV_THREADPOOL_SIZE={MASKED}"'],
        False,
    ),
    "masked values without quotes": (
        UNIT, [f'Environment="NODE_OPTIONS={MASKED}"'], [f"Environment=NODE_OPTIONS={MASKED}"], False,
    ),
    "masked values go": (UNIT, [f'Environment="NODE_OPTIONS={MASKED}"'], [], False),
    "masked values come": (UNIT, [], [f'Environment="NODE_OPTIONS={MASKED}"'], False),
    "masked values in place of others": (
        UNIT, [f'Environment="NODE_OPTIONS={MASKED}"'],
        [f'Environment="NODE_OPTIONS={MASKED.replace("1", "2", 1)}"'], False,
    ),
    "another kind of file": ("/etc/app/app.conf", ["ExecStart=a"], ["ExecStart=b"], True),
}  # fmt: skip


@pytest.fixture(scope="module")
def part(tmp_path_factory: pytest.TempPathFactory) -> ServiceInstance:
    (service,) = SHIPPED.list_by_name("nodejs")
    return replace(wanted(tmp_path_factory.mktemp("target")).instances[0], service=service)


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_of_a_unit(part: ServiceInstance, name: str) -> None:
    path, removed, added, allowed = EDITS[name]
    hunk = Hunk(2, tuple(f"{line}\n" for line in removed), tuple(f"{line}\n" for line in added))

    def check() -> None:
        desired = cast(Any, None)  # an edit is compared with nothing
        check_commands(open_study(STUDY), desired, part, path, b"", (hunk,))

    if allowed:
        check()
        return
    with pytest.raises(
        AutotuneError, match="changes unit settings other than resource limits and numeric values"
    ) as raised:
        check()
    assert "autotune apply" in (raised.value.hint or "")
