"""A target's lab, by the functions and by the command line."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from paramiko import SSHConfig
from typer.testing import CliRunner

from autotune.cli import app
from autotune.cli import lab as commands
from autotune.errors import AutotuneError
from autotune.lab import keys, plan, prerequisites, target_labs
from autotune.lab.plan import LabHost
from autotune.target.read_target import read_target
from autotune.transports.parallel_hosts import run_on_all
from autotune.transports.target_hosts import build_ssh_host, create_transports
from tests.printed import printed

Described = Callable[..., list[LabHost]]
Traces = Callable[[Path], list[str]]

SHIPPED = Path(__file__).parents[2] / "targets/lab.yaml"
TARGET = """\
name: tried
slo: {{p99: 50ms}}
ssh: {{config: lab/ssh_config}}
hosts:
  lb1: {{address: {0}, cpus: 0.5, memory: 256MB}}
  web1: {{address: {1}}}
  here: {{transport: local}}
tiers:
  lb: {{hosts: lb1, service: nginx, forwards_to: web}}
  web: {{hosts: web1, service: nginx+php-fpm}}
"""


@pytest.fixture
def target(tmp_path: Path, described: Described) -> Path:
    path = tmp_path / "tried.yaml"
    path.write_text(TARGET.format(*(host.address for host in described(2))))
    return path


def autotune(*words: object) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "autotune", "lab", *map(str, words)]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def test_hosts_are_those_of_the_target_but_this_machine(target: Path) -> None:
    (lb1, web1) = target_labs.build_lab_hosts(read_target(target).target)
    assert (lb1.name, lb1.cpus, lb1.memory) == ("lb1", 0.5, 256 << 20)
    assert (web1.name, web1.cpus, web1.memory) == ("web1", None, None)


def test_the_shipped_lab_can_be_made_and_is_reached_where_it_is_kept() -> None:
    file = read_target(SHIPPED)
    made = plan.build_plan(
        target_labs.build_lab_hosts(file.target), target_labs.LABS_DIRECTORY / file.target.name
    )
    assert {host.name for host in made.hosts} == set(file.target.hosts)
    assert build_ssh_host(file, "web1").config_file == str(made.names.ssh_config)


def test_what_ssh_is_told_of_a_host() -> None:
    made = plan.build_plan(
        [LabHost("lb1", "198.18.0.10"), LabHost("web1", "198.18.0.12")], Path("/lab")
    )
    config = SSHConfig.from_text(keys.format_ssh_config(made))
    for pattern in ("web1", "198.18.0.12"):
        found = config.lookup(pattern)
        assert (found["hostname"], found["user"]) == ("198.18.0.12", "root")
        assert found["identityfile"] == ["/lab/key"]
        assert found["userknownhostsfile"] == "/lab/known_hosts"
        assert found["stricthostkeychecking"] == "yes"
    assert "identityfile" not in config.lookup("elsewhere")


@pytest.mark.parametrize("command", [c.callback.__name__ for c in commands.app.registered_commands])  # type: ignore[union-attr]
def test_every_command_and_option_says_what_it_is(command: str) -> None:
    done = CliRunner().invoke(app, ["lab", command, "--help"])
    assert done.exit_code == 0
    assert done.output.partition("\n\n")[2].strip()
    for line in done.output.splitlines():
        if line.strip().startswith("-"):
            assert len(line.strip().split("  ")) > 1, line


@pytest.mark.parametrize("command", ["up", "down", "status", "ssh"])
def test_whoever_is_not_root_is_told_so(
    command: str, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    done = CliRunner().invoke(app, ["lab", command, str(target)])
    assert isinstance(done.exception, AutotuneError)
    assert "root" in str(done.exception)
    assert done.exception.hint
    assert "sudo" in done.exception.hint


@pytest.mark.parametrize(
    ("labs", "hint"),
    [
        ([], "write `autotune lab ssh TARGET web1`, after `autotune lab up TARGET`"),
        (["b", "a"], "write `autotune lab ssh LAB web1` with an existing lab: a, b"),
    ],
)
def test_a_host_is_no_lab(
    labs: list[str], hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(target_labs, "LABS_DIRECTORY", tmp_path)
    for name in labs:
        (tmp_path / name).mkdir()
    with pytest.raises(AutotuneError, match="no lab is called web1") as caught:
        target_labs.build_ssh_command("web1", None)
    assert caught.value.hint == hint


def test_what_is_missing_is_said_with_the_command_that_brings_it(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(prerequisites, "list_missing_packages", lambda: ("systemd-container",))
    with pytest.raises(AutotuneError, match="systemd-container") as raised:
        target_labs.start_target_lab(target)
    assert raised.value.hint == "apt-get install --no-install-recommends systemd-container"


@pytest.mark.lab
def test_a_lab_by_the_command_line(target: Path, lab_dir: Path, traces: Traces) -> None:
    at = (target, "--dir", lab_dir, "--json")
    made = printed("lab", autotune("up", *at).stdout)
    assert made["started"] == ["lb1", "web1"]
    assert made["named_by_target"] is True
    assert [(host["name"], host["ssh"]) for host in made["hosts"]] == [
        ("lb1", True),
        ("web1", True),
    ]
    again = autotune("up", *at[:-1])
    assert again.stdout.count("is already running") == 2
    assert [
        host["running"] for host in printed("lab", autotune("status", *at).stdout)["hosts"]
    ] == [
        True,
        True,
    ]
    assert autotune("ssh", *at[:-1], "web1", "hostname").stdout == "web1\n"
    asked = autotune("ssh", *at[:-1])
    assert (asked.returncode, "lb1, web1" in asked.stderr) == (1, True)
    target.unlink()
    removed = printed("lab", autotune("down", "tried", *at[1:]).stdout)
    assert len(removed["hosts"]) == 2
    assert traces(lab_dir) == []


@pytest.mark.lab
def test_a_target_reaches_its_lab(target: Path, lab_dir: Path) -> None:
    target_labs.start_target_lab(target, lab_dir)
    reached = create_transports(read_target(target))
    try:
        names = run_on_all(
            reached.values(), lambda transport: transport.run(["hostname"]).stdout.strip()
        ).unwrap()
        assert (names["lb1"], names["web1"]) == ("lb1", "web1")
        assert names["here"] == Path("/proc/sys/kernel/hostname").read_text().strip()
    finally:
        for transport in reached.values():
            transport.close()


@pytest.mark.lab
def test_a_killed_up_is_taken_down(target: Path, lab_dir: Path, traces: Traces) -> None:
    argv = [sys.executable, "-m", "autotune", "lab", "up", str(target), "--dir", str(lab_dir)]
    with subprocess.Popen(argv) as process:
        while not (lab_dir / "lab.json").exists():
            time.sleep(0.01)
        process.kill()
    assert autotune("down", target, "--dir", lab_dir).returncode == 0
    assert traces(lab_dir) == []
