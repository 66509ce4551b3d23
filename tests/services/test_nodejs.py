"""What is seen of Node.js' processes, and when they compute all they can."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from autotune.services.base import Role
from autotune.services.diagnosis import InstanceActivity, InstanceReading, Resource
from autotune.services.nodejs.service import (
    DIAGNOSIS,
    PARAMETERS,
    find_semi_space_size,
    parse_effective,
    round_semi_space_size,
)

RECORDED = (Path(__file__).parent / "fixtures" / "nodejs.txt").read_text()
TOTAL = "MemTotal:        8048776 kB\n"
GROUP = "/sys/fs/cgroup/system.slice/shop.service"


def test_its_processes_show_their_number_and_their_environment() -> None:
    assert parse_effective(RECORDED) == {
        "workers": 3, "uv_threadpool_size": 8, "max_semi_space_size": 32, "max_old_space_size": 512,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("memory", "sizes"),
    [
        ("", {}),  # an unknown memory has no default
        (TOTAL, {"max_semi_space_size": 16}),
        ("MemTotal:        2014504 kB\n", {"max_semi_space_size": 8}),
        (f"{TOTAL}{GROUP}/memory.max:max\n{GROUP}/memory.high:max\n", {"max_semi_space_size": 16}),
        (f"{TOTAL}{GROUP}/memory.max:{2**40}\n", {"max_semi_space_size": 16}),
        # Older versions of Node.js ignore limits of the unit.
        (f"{TOTAL}{GROUP}/memory.max:536870912\n", {}),
        (f"{TOTAL}{GROUP}/memory.max:max\n{GROUP}/memory.high:1073741824\n", {}),
        (f"{GROUP}/memory.max:536870912\n", {}),
    ],
)  # fmt: skip
def test_what_is_not_in_the_environment_is_node_s_own(memory: str, sizes: dict[str, int]) -> None:
    expected = {"workers": 1, "uv_threadpool_size": 4, **sizes}
    assert parse_effective(f"{memory}process\n") == expected


@pytest.mark.parametrize(
    ("megabytes", "size"),
    [(64, 1), (512, 1), (600, 4), (1024, 4), (2048, 8), (3072, 16), (4096, 16), (65_536, 16)],
)
def test_the_default_of_a_size_follows_from_the_memory(megabytes: int, size: int) -> None:
    assert find_semi_space_size(megabytes * 2**20) == size


@pytest.mark.parametrize(("written", "used"), [(16, 16), (24, 32), (129, 256), (1, 1)])
def test_a_size_is_read_as_v8_rounds_it(written: int, used: int) -> None:
    output = f"process\nNODE_OPTIONS=--max-semi-space-size={written} --max-old-space-size=900\n"
    effective = parse_effective(output)
    assert (effective["max_semi_space_size"], effective["max_old_space_size"]) == (used, 900)


@pytest.mark.parametrize(
    ("cpu", "delay", "workers", "limits"),
    [(0.95, None, 1, True), (0.6, 0.4, 1, True), (1.2, 0.1, 2, False), (0.6, 0.1, 1, False)],
)
def test_a_process_computes_on_one_cpu(
    cpu: float, delay: float | None, workers: int, limits: bool
) -> None:
    activity = InstanceActivity(
        "app.h.nodejs", "app", "h", "nodejs", Role.APP, workers=workers, cpu=cpu, cpu_delay=delay
    )
    part = InstanceReading(activity, {}, 0, errors_dominate=False, idle_fraction=0.5)
    findings = [finding for rule in DIAGNOSIS.worker_rules if (finding := rule(part))]
    assert [finding.resource for finding in findings] == ([Resource.WORKERS] if limits else [])
    assert all("50% of the CPU was idle" in finding.evidence for finding in findings)


def semi_space_size(asked: int) -> float:
    """The size in MB with which Node.js starts. Three such spaces are part of its limit."""
    options = [f"--max-semi-space-size={asked}", "--max-old-space-size=512"]
    argv = ["node", *options, "-p", "v8.getHeapStatistics().heap_size_limit"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return (int(done.stdout) / 2**20 - 512) / 3


@pytest.mark.stack
def test_each_size_that_is_tried_takes_effect() -> None:
    (parameter,) = (p for p in PARAMETERS if p.name == "max_semi_space_size")
    tried = parameter.choices or (8, 40, 128)
    assert [semi_space_size(int(size)) for size in tried] == [*tried]


@pytest.mark.stack
@pytest.mark.parametrize("size", [24, 100, 200])
def test_v8_rounds_a_size(size: int) -> None:
    assert semi_space_size(size) == round_semi_space_size(size)
