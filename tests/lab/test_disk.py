"""What a host's root has of its own, and what of the machine's it does not see."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autotune.errors import AutotuneError
from autotune.lab import disk
from autotune.lab.disk import AbsentPath, DiskEntry, DiskFile, DiskLink, EmptyDirectory, HostKeys
from autotune.lab.plan import LabHost, build_plan

WEB1 = LabHost("web1", "198.18.0.12")
LAB = build_plan([LabHost("lb1", "198.18.0.11"), WEB1], Path("/var/lib/lab"))
KEYS = HostKeys("PRIVATE", "ssh-ed25519 HOST", "ssh-ed25519 LAB")
MACHINE = [
    "etc/ssh/ssh_host_rsa_key",
    "etc/systemd/system/multi-user.target.wants/nginx.service",
    "etc/nginx/nginx.conf",
    "root/.ssh/id_ed25519",
    "usr/lib/systemd/system/ssh.service",
    "var/log/nginx/access.log",
    "var/log/journal/1/system.journal",
    "var/lib/redis/dump.rdb",
    "work/secret",
    "secret",
]


@pytest.fixture
def lower(tmp_path: Path) -> Path:
    for name in MACHINE:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("the machine's")
    (tmp_path / "bin").symlink_to("usr/bin")
    (tmp_path / "var/log/nginx").chmod(0o2755)
    return tmp_path


@pytest.fixture
def laid(lower: Path) -> dict[str, DiskEntry]:
    return {entry.path: entry for entry in disk.list_root_entries(LAB, WEB1, KEYS, lower)}


def test_what_is_not_the_systems_is_not_seen(laid: dict[str, DiskEntry]) -> None:
    assert laid["work"] == AbsentPath("work")
    assert laid["secret"] == AbsentPath("secret")
    assert laid["var/lib/autotune"] == AbsentPath("var/lib/autotune")
    assert laid["root"] == EmptyDirectory("root", 0o700)
    assert laid["tmp"] == EmptyDirectory("tmp", 0o1777)
    for emptied in ("etc/ssh", "etc/systemd", "var/log", "var/lib/redis"):
        assert isinstance(laid[emptied], EmptyDirectory)
    assert not any(path.startswith(("usr", "bin", "etc/nginx")) for path in laid)


def test_directories_of_logs_are_there_empty(laid: dict[str, DiskEntry]) -> None:
    logs = laid["var/log/nginx"]
    assert isinstance(logs, EmptyDirectory)
    assert logs.mode == 0o2755
    assert "var/log/journal" not in laid


def test_a_host_boots_sshd_and_nothing_of_the_machines(laid: dict[str, DiskEntry]) -> None:
    units = "etc/systemd/system"
    wanted = f"{units}/multi-user.target.wants/ssh.service"
    assert laid[wanted] == DiskLink(wanted, "/usr/lib/systemd/system/ssh.service")
    assert [path for path in laid if path.startswith(f"{units}/multi-user.target.wants/")] == [
        wanted
    ]
    assert laid[f"{units}/systemd-logind.service"] == DiskLink(
        f"{units}/systemd-logind.service", "/dev/null"
    )
    generators = "etc/systemd/system-generators"
    assert isinstance(laid[generators], EmptyDirectory)
    assert laid[f"{generators}/systemd-fstab-generator"] == DiskLink(
        f"{generators}/systemd-fstab-generator", "/dev/null"
    )
    assert f"{generators}/systemd-sysv-generator" not in laid  # init scripts of packages are units


def test_a_host_has_the_keys_and_names_of_the_lab(laid: dict[str, DiskEntry]) -> None:
    assert laid["root/.ssh/authorized_keys"] == DiskFile(
        "root/.ssh/authorized_keys", "ssh-ed25519 LAB\n", 0o600
    )
    key = "etc/ssh/ssh_host_ed25519_key"
    assert laid[key] == DiskFile(key, "PRIVATE", 0o600)
    assert laid["etc/hosts"] == DiskFile(
        "etc/hosts",
        "127.0.0.1 localhost\n"
        "::1 localhost ip6-localhost ip6-loopback\n"
        "198.18.0.11 lb1\n"
        "198.18.0.12 web1\n"
        "198.18.0.1 controller\n",
    )
    other = disk.derive_machine_id(LAB, LAB.hosts[0])
    mine = disk.derive_machine_id(LAB, WEB1)
    assert len(mine) == 32
    assert mine != other


def test_parents_come_before_children(lower: Path) -> None:
    paths = [entry.path for entry in disk.list_root_entries(LAB, WEB1, KEYS, lower)]
    assert len(paths) == len(set(paths))
    for path in paths:
        later = paths[paths.index(path) :]
        assert str(Path(path).parent) not in later


@pytest.mark.parametrize(
    ("directory", "seen"),
    [
        ("/var/lib/autotune/labs/shop", False),
        ("/var/lib/lab", True),
        ("/var/tmp/lab", True),
        ("/work/lab", False),
    ],
)
def test_a_lab_is_hidden_from_its_hosts_wherever_it_is(
    lower: Path, tmp_path_factory: pytest.TempPathFactory, directory: str, seen: bool
) -> None:
    upper = tmp_path_factory.mktemp("upper")
    lab = build_plan([WEB1], Path(directory))
    disk.write_disk_entries(upper, disk.list_root_entries(lab, WEB1, KEYS, lower), lower)
    inside = upper / directory[1:]
    assert inside.is_dir() == seen
    if seen:
        assert not [*inside.iterdir()]
        assert os.getxattr(inside, "trusted.overlay.opaque") == b"y"


@pytest.mark.parametrize("module", ["pam_systemd.so", "pam_motd.so  motd=/run/motd.dynamic"])
def test_modules_that_a_lab_has_no_use_for_are_left_out(module: str) -> None:
    pam = f"session required pam_unix.so\nsession optional\t{module}\nsession optional x.so\n"
    assert disk.adapt_pam_service(pam) == "session required pam_unix.so\nsession optional x.so\n"


@pytest.mark.parametrize(
    ("mounted", "fine"), [("/home", True), ("/usr", False), ("/var", False), ("/usr/local", True)]
)
def test_a_system_spread_over_filesystems_is_refused(mounted: str, fine: bool) -> None:
    text = f"22 1 254:0 / / rw - ext4 /dev/a rw\n23 22 254:1 / {mounted} rw - ext4 /dev/b rw\n"
    if fine:
        disk.require_single_filesystem(text)
    else:
        with pytest.raises(AutotuneError, match=f"{mounted} must be on the filesystem of /"):
            disk.require_single_filesystem(text)
