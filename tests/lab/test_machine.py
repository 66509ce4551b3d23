"""The process that becomes a host, before there is one; and what keeps a lab from being made."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from autotune.errors import AutotuneError, LockedError
from autotune.lab import lock, machine, prerequisites
from autotune.lab.cgroups import CgroupHierarchy
from autotune.lab.lifecycle import list_host_status, require_lab, start_lab
from autotune.lab.plan import LabHost, build_plan, derive_names

LAB = build_plan([LabHost("web1", "198.18.0.12")], Path("/lab"))
TREES = (
    CgroupHierarchy(Path("/sys/fs/cgroup/cpu"), 1, ("cpu",), is_mounted=True),
    CgroupHierarchy(Path("/lab/cgroup/memory"), 1, ("memory",), is_mounted=True),
)


@pytest.mark.parametrize(
    ("status", "first"),
    [
        ("Name:\tsystemd\nNSpid:\t4711\t1\nVmPeak: 1\n", True),
        ("Name:\tsystemd\nNSpid:\t1\n", False),
        ("Name:\tnginx\nNSpid:\t4712\t33\n", False),
        ("Name:\tkthread\n", False),
    ],
)
def test_the_first_process_of_a_host_is_recognised(status: str, first: bool) -> None:
    assert machine.is_namespace_init(status) == first


def test_the_processes_of_a_host_that_does_not_answer_are_named() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        ended = subprocess.Popen(["true"])
        ended.wait()
        text = machine.describe_processes([process.pid, ended.pid])
        process.kill()
    assert re.fullmatch(r"sleep \([RSD], 0\.\d s\)", text)


def test_a_host_joins_its_groups_by_name() -> None:
    words = machine.build_boot_command(LAB, LAB.hosts[0], TREES)
    group = LAB.names.cgroup
    at = words.index("/lab/hosts/web1")
    assert words[at : at + 6] == [
        *("/lab/hosts/web1", "web1", "198.18.0.12/24"),
        *("2", f"/sys/fs/cgroup/cpu/{group}/web1", f"/lab/cgroup/memory/{group}/web1"),
    ]


def test_trees_mounted_for_the_lab_are_shown_to_its_hosts() -> None:
    assert machine.list_cgroup_mounts(TREES, Path("/lab/cgroup")) == [
        *("cpu", "/sys/fs/cgroup/cpu"),
        *("memory", "/lab/cgroup/memory"),
    ]
    assert machine.list_cgroup_mounts(TREES[:1], Path("/lab/cgroup")) == []
    unified = CgroupHierarchy(Path("/lab/cgroup"), 2, ("cpu", "memory"), is_mounted=True)
    assert machine.list_cgroup_mounts([unified], Path("/lab/cgroup")) == [".", "/lab/cgroup"]


@pytest.mark.parametrize("script", [machine._JOIN_SCRIPT, machine._BOOT_SCRIPT])
def test_the_scripts_are_ones_a_shell_can_read(script: str) -> None:
    subprocess.run(["sh", "-n", "-c", script], check=True)


def test_missing_packages_are_told_with_the_command_to_get_them() -> None:
    missing = prerequisites.list_missing_packages(lambda program: program not in {"sshd", "ip"})
    assert missing == ("iproute2", "openssh-server")
    hint = prerequisites._format_install_advice(missing)
    assert "apt-get install --no-install-recommends iproute2 openssh-server" in hint


@pytest.mark.parametrize("directory", ["/run/lab", "/var/lab,2", "/var/a:b"])
def test_a_directory_that_cannot_hold_a_lab_is_refused(directory: str) -> None:
    with pytest.raises(AutotuneError, match="lab"):
        prerequisites.require_directory(Path(directory))


def test_only_root_makes_a_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(AutotuneError, match="cannot create a lab: only root"):
        start_lab(LAB.hosts, tmp_path / "lab")
    assert not (tmp_path / "lab").exists()


def test_no_lab_has_no_hosts(tmp_path: Path) -> None:
    assert list_host_status(tmp_path) == ()
    with pytest.raises(AutotuneError, match="no lab exists in"):
        require_lab(tmp_path)


def test_one_at_a_time_works_on_a_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "_WAIT_SECONDS", 0.05)
    lab = derive_names(tmp_path / "lab")
    with lock.lock_lab(lab, create=True):  # noqa: SIM117  # the second is to fail inside the first
        with pytest.raises(LockedError), lock.lock_lab(lab, create=True):
            pass
    assert not lab.directory.exists()
    with lock.lock_lab(lab, create=False):
        pass
