"""What is seen of Node.js' processes, and when they compute all they can."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.services.base import Role
from autotune.services.diagnosis import InstanceActivity, InstanceReading, Resource
from autotune.services.nodejs.service import DIAGNOSIS, parse_effective

RECORDED = (Path(__file__).parent / "fixtures" / "nodejs.txt").read_text()


def test_its_processes_show_their_number_and_their_environment() -> None:
    assert parse_effective(RECORDED) == {
        "workers": 3, "uv_threadpool_size": 8, "max_semi_space_size": 32, "max_old_space_size": 512,
    }  # fmt: skip


def test_what_is_not_in_the_environment_is_node_s_own() -> None:
    assert parse_effective("process\n") == {
        "workers": 1, "uv_threadpool_size": 4, "max_semi_space_size": 16,
    }  # fmt: skip


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
