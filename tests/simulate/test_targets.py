"""The shipped targets of the published chain: what they may search is what was published."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.environments.simulated import SimulatedEnvironment, prepare
from autotune.services.base import Value
from autotune.simulate.chain import chain
from autotune.target.read import read

TARGETS = Path(__file__).parents[2] / "targets"
BEST = {"paper": "nginx, apache+mod_php", "paper-3x3": "nginx, nginx+php-fpm"}


def bed(name: str) -> SimulatedEnvironment:
    return prepare(read(TARGETS / f"{name}.yaml"))


def peak(one: SimulatedEnvironment, settings: dict[str, Value]) -> float:
    kept = one.space.candidate(settings).settings
    return chain(one.topology, kept).peak(one.file.target.slo.slo)


@pytest.mark.parametrize("name", BEST)
def test_the_best_deployment_is_the_published_one(name: str) -> None:
    one = bed(name)
    peaks = {
        ", ".join(map(str, deployment.values())): peak(
            one, one.space.preset("published", deployment)
        )
        for deployment in one.space.deployments
    }
    assert len(peaks) == 4
    assert max(peaks, key=lambda deployment: peaks[deployment]) == BEST[name]


@pytest.mark.parametrize("name", BEST)
def test_only_what_was_published_is_searched(name: str) -> None:
    searched = {dimension.name for dimension in bed(name).space.tunable}
    assert searched == {
        "lb.service", "lb.apache.ServerLimit", "lb.apache.ThreadsPerChild",
        "lb.nginx.worker_connections", "lb.nginx.use", "web.service",
        "web.apache.MaxRequestWorkers", "web.nginx.worker_connections", "web.nginx.use",
        "web.php_fpm.max_children",
    }  # fmt: skip


@pytest.mark.parametrize("name", BEST)
def test_there_is_much_to_gain_over_the_baseline(name: str) -> None:
    one = bed(name)
    assert (
        1000
        < peak(one, one.space.baseline)
        < 0.6 * max(peak(one, one.space.preset("published", d)) for d in one.space.deployments)
    )
