"""Which trees of control groups there are, and what is written into them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.lab.cgroups import (
    CgroupHierarchy,
    compute_cpu_bandwidth,
    find_hierarchies,
    list_group_limits,
    parse_mounts,
)
from autotune.lab.plan import LabHost

PRIVATE = Path("/lab/cgroup")
ROOT = "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n"
UNIFIED = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
FREE = "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t0\t1\t1\nmemory\t0\t1\t1\n"
HELD = "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t1\t1\t1\nmemory\t4\t9\t1\n"


def version_1(path: str, options: str, kind: str = "cgroup") -> str:
    return f"31 30 0:27 / {path} rw,relatime - {kind} {kind} rw,{options}\n"


def at(path: str) -> str:
    return f"/sys/fs/cgroup/{path}"


HYBRID = (
    ROOT
    + "29 24 0:25 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n"
    + version_1(at("unified"), "nsdelegate", "cgroup2")
    + version_1(at("systemd"), "xattr,name=systemd")
    + version_1(at("cpu,cpuacct"), "cpu,cpuacct")
    + version_1(at("memory"), "memory")
)


def found(mountinfo: str, held: str = HELD) -> list[tuple[str, int, bool]]:
    trees = find_hierarchies(mountinfo, held, PRIVATE)
    return [(str(tree.path), tree.version, tree.is_mounted) for tree in trees]


def test_a_unified_tree_is_used_as_it_is() -> None:
    assert found(ROOT + UNIFIED, FREE) == [("/sys/fs/cgroup", 2, True)]


def test_version_1_trees_are_used_as_they_are() -> None:
    assert found(HYBRID) == [
        (at("cpu,cpuacct"), 1, True),
        (at("memory"), 1, True),
        (at("systemd"), 1, True),
        (at("unified"), 2, True),
    ]


def test_without_any_a_unified_tree_is_mounted_privately() -> None:
    assert found(ROOT, FREE) == [("/lab/cgroup", 2, False)]
    own = version_1("/lab/cgroup", "x", "cgroup2")
    assert found(ROOT + own, FREE) == [("/lab/cgroup", 2, True)]


def test_controllers_that_version_1_holds_are_mounted_as_such() -> None:
    assert found(ROOT) == [
        ("/lab/cgroup/cpu", 1, False),
        ("/lab/cgroup/memory", 1, False),
        ("/lab/cgroup/systemd", 1, False),
    ]


def test_only_what_is_missing_is_mounted() -> None:
    some = ROOT + version_1(at("cpu"), "cpu") + version_1("/lab/cgroup/memory", "memory")
    assert found(some) == [
        (at("cpu"), 1, True),
        ("/lab/cgroup/memory", 1, True),
        ("/lab/cgroup/systemd", 1, False),
    ]


def test_the_private_trees_of_another_lab_are_left_alone() -> None:
    other = version_1("/other/cgroup", "x", "cgroup2")
    assert found(ROOT + other, FREE) == [("/lab/cgroup", 2, False)]


def test_mounts_are_read_with_optional_fields_and_escaped_names() -> None:
    text = r"36 35 98:0 /mnt1 /my\040lab rw shared:1 master:2 - ext3 /dev/root rw,errors=continue"
    (mount,) = parse_mounts(text)
    assert mount.path == Path("/my lab")
    assert mount.kind == "ext3"
    assert mount.options == ("rw", "errors=continue")


HOST = LabHost("web1", "198.18.0.12", cpus=0.5, memory=256 << 20)


@pytest.mark.parametrize(
    ("version", "controllers", "written"),
    [
        (1, ("cpu",), {"cpu.cfs_period_us": "10000", "cpu.cfs_quota_us": "5000"}),
        (
            1,
            ("memory",),
            {
                "memory.limit_in_bytes": "268435456",
                "memory.memsw.limit_in_bytes": "268435456",
            },
        ),
        (1, ("name=systemd",), {}),
        (2, (), {}),
        (
            2,
            ("cpu", "memory"),
            {"cpu.max": "5000 10000", "memory.max": "268435456", "memory.swap.max": "0"},
        ),
    ],
)
def test_limits_are_written_where_their_controller_is(
    version: int, controllers: tuple[str, ...], written: dict[str, str]
) -> None:
    assert (
        list_group_limits(CgroupHierarchy(Path("/x"), version, controllers, is_mounted=True), HOST)
        == written
    )


def test_a_host_without_limits_has_none_written() -> None:
    tree = CgroupHierarchy(Path("/x"), 2, ("cpu", "memory"), is_mounted=True)
    assert list_group_limits(tree, LabHost("web1", "198.18.0.12")) == {}


@given(st.floats(0.01, 256))
def test_bandwidth_is_what_was_asked_in_what_the_kernel_takes(cpus: float) -> None:
    (quota, period) = compute_cpu_bandwidth(cpus)
    assert quota >= 1_000
    assert 10_000 <= period <= 1_000_000
    assert quota / period == pytest.approx(cpus, rel=0.01)
