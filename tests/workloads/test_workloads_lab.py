"""Each workload on lab hosts: the site answers, and its decisive setting decides, crudely."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scripts.workloads import catalogue, hosts, smoke
from scripts.workloads.catalogue import Workload

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]
ORDINARY = "php-waits"  # the one that `make test` boots
CASES = [
    pytest.param(name, marks=() if name == ORDINARY else pytest.mark.soak)
    for name in catalogue.list_names()
]


@pytest.fixture
def workload(request: pytest.FixtureRequest) -> Iterator[Workload]:
    workload = catalogue.read_workload(request.param)
    with hosts.running_hosts(workload):
        yield workload


@pytest.mark.parametrize("workload", CASES, indirect=True)
def test_its_decisive_setting_decides(workload: Workload) -> None:
    result = smoke.check_workload(workload)
    print(result)
    assert result.missing == ()
    assert result.stock > 0
    # Other processes may take the CPU during one of the two measurements.
    for _ in range(3):
        if result.changed >= workload.smoke.ratio * result.stock:
            break
        result = smoke.check_workload(workload)
        print(result)
    assert result.changed >= workload.smoke.ratio * result.stock
