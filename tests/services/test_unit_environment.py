"""Which file of a unit is edited to set a variable of its environment."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.deploy.templates import render_text
from autotune.services.base import AdoptedConfig, Endpoint, Placement, Role
from autotune.services.config_files import FileTree
from autotune.services.directives import render_edits
from autotune.services.unit_environment import (
    EnvironmentSetting,
    build_environment_prefix,
    expand_command,
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
        ("sudo -u shop A=1 env B=2 node app.js", {"A": "1", "B": "2"}),
        ("/usr/bin/sudo -Hu shop -- env A=1 node app.js", {"A": "1"}),
        ("sudo --user=shop --group www env A=1 node app.js", {"A": "1"}),
        ("nohup timeout -k 5 --signal TERM 1h env A=1 node app.js", {"A": "1"}),
        ("setsid -w stdbuf -o L runuser -u shop -- env A=1 node app.js", {"A": "1"}),
        ("taskset ff nice env A=1 node app.js", {"A": "1"}),
        # arguments of the program itself
        ("/usr/bin/nohup node env A=1", {}),
        ("sudo -u env node A=1", {}),
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


@pytest.mark.parametrize(
    ("lines", "unread"),
    [
        ("Environment=UV_THREADPOOL_SIZE=8\nEnvironmentFile=/root/shop.env\n", "/root/shop.env"),
        ("Environment=UV_THREADPOOL_SIZE=8\nEnvironmentFile=-/root/*.env\n", "/root/*.env"),
        ("Environment=UV_THREADPOOL_SIZE=8\nEnvironmentFile=-/root/shop.env\n", ""),
    ],
)
def test_a_file_that_was_not_read_may_set_the_variable_again(lines: str, unread: str) -> None:
    unit = f"[Service]\n{lines}ExecStart=/usr/bin/node app.js\n".encode()
    environment = read_environment(FileTree({f"{ETC}/{UNIT}": unit}), UNIT)
    result = tune_variables(environment, [POOL], lambda *_: True)
    assert result.values == ({} if unread else {"uv_threadpool_size": 8})
    assert [*result.skipped.values()] == (
        [f"{unread} was not read, but may set `UV_THREADPOOL_SIZE`"] if unread else []
    )


def test_sudo_removes_variables_and_its_policy_is_not_read() -> None:
    lines = "[Service]\nEnvironment=UV_THREADPOOL_SIZE=8\nExecStart=sudo -u shop node app.js\n"
    environment = read_environment(FileTree({f"{ETC}/{UNIT}": lines.encode()}), UNIT)
    result = tune_variables(environment, [POOL], lambda *_: True)
    assert (result.edits, result.values) == ((), {})
    assert "/etc/sudoers was not read" in result.skipped["uv_threadpool_size"]


FLAGS = EnvironmentSetting("semi", "NODE_OPTIONS", 16, "--max-semi-space-size")


@pytest.mark.parametrize(
    ("written", "changed"),
    [
        # A blank would end the value, and systemd would ignore the option behind it.
        (
            "NODE_OPTIONS=--inspect PORT=80",
            '"NODE_OPTIONS=--inspect --max-semi-space-size=32" PORT=80',
        ),
        (
            "PORT=80 NODE_OPTIONS=--inspect",
            'PORT=80 "NODE_OPTIONS=--inspect --max-semi-space-size=32"',
        ),
        ('"NODE_OPTIONS=--inspect"', '"NODE_OPTIONS=--inspect --max-semi-space-size=32"'),
        ("NODE_OPTIONS='--inspect'", "NODE_OPTIONS='--inspect --max-semi-space-size=32'"),
        ("NODE_OPTIONS=", "NODE_OPTIONS=--max-semi-space-size=32"),
        ("NODE_OPTIONS=--max-semi-space-size=16", "NODE_OPTIONS=--max-semi-space-size=32"),
    ],
)
def test_a_value_with_an_added_option_is_in_quotes(written: str, changed: str) -> None:
    text = f"[Service]\nEnvironment={written}\nExecStart=/usr/bin/node app.js\n"
    environment = read_environment(FileTree({f"{ETC}/{UNIT}": text.encode()}), UNIT)
    result = tune_variables(environment, [FLAGS], lambda *_: True)
    assert (result.values, result.skipped) == ({"semi": 16}, {})
    assert {edit.path for edit in result.edits} == {f"{ETC}/{UNIT}"}
    template = render_edits(text, [(edit.start, edit.end, edit.text) for edit in result.edits])
    assert render_text(template, {"semi": 16}) == text
    assert render_text(template, {"semi": 32}) == text.replace(written, changed)


@pytest.mark.parametrize(
    "command",
    [
        "/usr/sbin/server -c /srv/a.conf $MORE",
        "ionice -c2 -n0 /usr/sbin/server -c '/srv/a.conf' $MORE",
        '"taskset" -c 0,1 nice -n 5 /usr/sbin/server "-c" /srv/a.conf ${MORE}',
        "env -u X -C /srv LANG=C /usr/sbin/server -c /srv/a.conf $MORE",
    ],
)
def test_options_of_other_programs_are_none_of_the_server(command: str) -> None:
    unit = f"[Service]\nEnvironment=MORE=-v\nExecStart={command}\n".encode()
    words = expand_command(FileTree({f"{ETC}/{UNIT}": unit}), UNIT)
    assert words == ("/usr/sbin/server", "-c", "/srv/a.conf", "-v")


SITE = Placement(
    tier="lb", host="h", role=Role.PROXY, directory="/run/t", listen=Endpoint("10.0.0.1", 80),
    installed=True, adopted=AdoptedConfig(),
)  # fmt: skip
# `systemd-run` stands for a unit with variables, of which the check prints one.
PROGRAMS = {
    "systemctl": 'case "$*" in *User*) echo "$UNIT_USER" ;; *Environment*) echo "$VARIABLES" ;; esac',
    "systemd-run": "printf 'LIMIT=9 $0\\0a.b=1\\0SECRET=hush\\0'",
}


def run_check(place: Path, **unit: str) -> str:
    """Return what a check with the variables of a unit prints: a variable, and its command line."""
    for name, text in PROGRAMS.items():
        (place / name).write_text(f"#!/bin/sh\n{text}\n")
        (place / name).chmod(0o755)
    check = ("sh", "-c", 'printf "%s\\n" "$LIMIT" "$@"; cat /proc/$$/cmdline; exit 3', "sh", "a b")
    done = subprocess.run(
        [*build_environment_prefix(SITE, "haproxy.service"), *check],
        env={"PATH": f"{place}:{os.environ['PATH']}", "UNIT_USER": "", "VARIABLES": "A=1"} | unit,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert done.stderr == ""
    assert "hush" not in done.stdout
    return done.stdout.splitlines()[0] + done.stdout.splitlines()[1]


def test_a_check_has_the_variables_of_the_unit(tmp_path: Path) -> None:
    assert run_check(tmp_path) == "9 $0a b"
    assert run_check(tmp_path, UNIT_USER="root") == "9 $0a b"


@pytest.mark.parametrize("unit", [{"UNIT_USER": "shop"}, {"VARIABLES": ""}])
def test_another_account_cannot_set_variables_of_root(unit: dict[str, str], tmp_path: Path) -> None:
    assert run_check(tmp_path, **unit) == "a b"


@pytest.mark.parametrize(
    "site", [replace(SITE, unit="shop:lb"), replace(SITE, adopted=None, installed=False)]
)
def test_only_checks_of_the_hosts_own_files_need_variables(site: Placement) -> None:
    assert build_environment_prefix(site, "haproxy.service") == ()
