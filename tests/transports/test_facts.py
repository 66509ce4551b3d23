"""What hosts said of themselves, on machines of several kinds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autotune.errors import AutotuneError
from autotune.services.sysctl.service import KERNEL_KEYS
from autotune.space.facts import HostFacts
from autotune.target.model import Target
from autotune.transports.base import CommandResult
from autotune.transports.facts import (
    parse_facts,
    parse_kernel_values,
    read_facts,
    read_host_facts,
    read_kernel_values,
)
from autotune.transports.local import LocalTransport

# Debian 12 in a systemd-nspawn machine of a host with version 1, half a CPU and 384 MB.
V1 = """\
cpus 2
files 20000
unit_files 1048576
memory 24682416
cpu.max
memory.max
cpu.cfs
memory.limit 402653184
cpu.max
memory.max
cpu.cfs 5000 10000
memory.limit
"""
# A unit of Debian 13 with version 2 within a slice: the slice's CPUs, the unit's memory.
V2 = """\
cpus 8
files 524288
unit_files 1048576
memory 16316412
cpu.max max 100000
memory.max 1073741824
cpu.cfs
memory.limit
cpu.max 250000 100000
memory.max max
cpu.cfs
memory.limit
cpu.max
memory.max
cpu.cfs
memory.limit
"""
# Version 1 without limits: a quota of -1, and the largest number of pages there is.
FREE = """\
cpus 4
files unlimited
unit_files 1073741816
memory 8000000
cpu.cfs -1 100000
memory.limit 9223372036854771712
"""


@pytest.mark.parametrize(
    ("said", "units", "expected"),
    [
        (V1, False, HostFacts(0.5, 402653184, 20000)),
        (V1, True, HostFacts(0.5, 402653184, 1048576)),
        (V2, False, HostFacts(2.5, 1073741824, 524288)),
        (FREE, False, HostFacts(4.0, 8000000 * 1024, 1048576)),
        (FREE, True, HostFacts(4.0, 8000000 * 1024, 1073741816)),
        ("cpus 2\nmemory 1000\n", False, HostFacts(2.0, 1024000, 1048576)),
        ("cpus 2\nmemory 1000\ncpu.max 0 0\n", False, HostFacts(2.0, 1024000, 1048576)),
    ],
    ids=["v1", "v1 unit", "v2", "free", "free unit", "little said", "nonsense"],
)
def test_the_tightest_limit_counts(said: str, units: bool, expected: HostFacts) -> None:
    assert parse_facts(said, units=units) == expected


@pytest.mark.parametrize("said", ["", "sh: 1: Syntax error\n", "cpus \nmemory 5\n", "cpus 2\n"])
def test_a_host_that_says_nothing_of_use(said: str) -> None:
    assert parse_facts(said) is None


class Silent(LocalTransport):
    def run(self, argv, **options):  # type: ignore[no-untyped-def]
        return CommandResult(tuple(argv), 127, "", "sh: not found")


def test_this_machine_says() -> None:
    found = read_host_facts(LocalTransport())
    total = Path("/proc/meminfo").read_text().split()[1]
    assert 0 < found.cpus <= len(os.sched_getaffinity(0))
    assert 0 < found.memory <= int(total) * 1024
    assert read_host_facts(LocalTransport(), units=True).nofile >= found.nofile


@pytest.mark.parametrize("threads", ["1", "997"])
def test_threads_in_the_environment_of_an_account_are_no_cpus(
    monkeypatch: pytest.MonkeyPatch, threads: str
) -> None:
    """Profiles of accounts that compute limit the threads of their programs."""
    cpus = read_host_facts(LocalTransport()).cpus
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    assert read_host_facts(LocalTransport()).cpus == cpus


def target(hosts: dict[str, dict[str, object]]) -> Target:
    tier = {"hosts": list(hosts), "service": "nginx"}
    return Target.model_validate(
        {"name": "asked", "slo": {"p99": "50ms"}, "hosts": hosts, "tiers": {"lb": tier}}
    )


def test_the_target_narrows_what_a_host_has() -> None:
    limits = {"transport": "local", "cpus": 0.25, "memory": "64MB"}
    found = read_facts(target({"here": limits}), {"here": LocalTransport("here")})
    assert (found["here"].cpus, found["here"].memory) == (0.25, 64 << 20)


def test_every_host_that_does_not_say_is_named() -> None:
    hosts: dict[str, dict[str, object]] = {name: {"transport": "local"} for name in ("a", "b", "c")}
    transports = {"a": Silent("a"), "b": LocalTransport("b"), "c": Silent("c")}
    with pytest.raises(
        AutotuneError, match=r"(?s)a returned no CPU count .*c returned no CPU count"
    ):
        read_facts(target(hosts), transports)


KERNEL_SAID = """\
writable /proc/sys/net/core/somaxconn 4096
writable /proc/sys/net/ipv4/ip_local_port_range 32768\t60999
absent /proc/sys/net/ipv4/tcp_tw_recycle
fixed /proc/sys/fs/file-max 2465610
hidden /proc/sys/net/ipv4/tcp_fastopen_key
grep: /proc/sys/x: Permission denied
"""


def test_what_a_host_says() -> None:
    found = parse_kernel_values(KERNEL_SAID)
    assert found.values == {
        "net.core.somaxconn": "4096",
        "net.ipv4.ip_local_port_range": "32768 60999",
        "fs.file-max": "2465610",
    }
    assert found.unsettable == {
        "net.ipv4.tcp_tw_recycle": "this kernel does not support it",
        "fs.file-max": "it cannot be written on this host",
        "net.ipv4.tcp_fastopen_key": "it cannot be read on this host",
    }


def test_this_host_says_every_key_and_names_are_no_scripts(tmp_path: Path) -> None:
    trap = f"x$(touch {tmp_path}/trapped)"
    found = read_kernel_values(LocalTransport(), (*KERNEL_KEYS, trap))
    assert found.values.keys() | found.unsettable.keys() >= set(KERNEL_KEYS)
    somaxconn = Path("/proc/sys/net/core/somaxconn").read_text().strip()
    assert found.values["net.core.somaxconn"] == somaxconn
    assert not (tmp_path / "trapped").exists()
