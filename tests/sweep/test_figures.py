"""The reference figures as sweeps of the model: the optima that were published come out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.environments.preparation import prepare
from autotune.sweep import figures, request, results, runner
from autotune.sweep.plan import AxisValue, SweepAxis, SweepPlan
from autotune.sweep.results import Mean, Result, SweepResults
from autotune.target.read_target import read_target
from tests.sweep import modelled

pytestmark = pytest.mark.long


SWEEPS = Path(__file__).parents[2] / "targets" / "sweeps"
LB, WEB = "lb.nginx.worker_connections", "web.nginx.worker_connections"


def swept(number: int, directory: Path) -> SweepResults:
    """The figure, each point measured once instead of three times: the model has little noise."""
    file, wanted = request.read_sweep_file(SWEEPS / f"figure-{number}.yaml")
    assert wanted is not None
    plan = request.build_plan(file, replace(wanted, repeat=1), prepare(file).space)
    runner.run_sweep(file, plan, directory, modelled.Silent())
    return results.load_results(directory)


def times(found: SweepResults, axis: str, **fixed: object) -> dict[object, float]:
    """Mean response time (s) by the value on an axis, at the highest rate."""
    return {
        r.point.labels[axis]: r.response.value
        for r in found.results
        if r.response and not r.failure and r.rate == max(found.plan.rates)
        and all(r.point.labels[name] == value for name, value in fixed.items())
    }  # fmt: skip


def least(values: dict[object, float]) -> object:
    return min(values, key=lambda value: values[value])


@pytest.mark.parametrize(
    ("number", "wanted"),
    [
        (2, {"lb.apache.ServerLimit": 240, "lb.apache.ThreadsPerChild": 15}),
        (3, {"lb.apache.ThreadsPerChild": 15}),
        (5, {LB: 1500}),
        (6, {LB: 2100, "web.nginx.use": "epoll"}),
        (7, {WEB: 1800, "web.php_fpm.max_children": 75}),
    ],
)
def test_the_published_optimum_comes_out(
    number: int, wanted: dict[str, object], tmp_path: Path
) -> None:
    best = figures.find_best_result(swept(number, tmp_path))
    assert best is not None
    assert best.point.labels == wanted


def test_prefork_is_flat_from_500(tmp_path: Path) -> None:
    over = times(swept(4, tmp_path), "web.apache.MaxRequestWorkers")
    flat = [time for workers, time in over.items() if int(str(workers)) >= 500]
    assert max(flat) < 1.08 * min(flat)
    assert over[350] > 1.08 * over[500]
    assert over[300] > 1.3 * over[500]


@pytest.mark.parametrize(
    ("number", "deployment"), [(8, "nginx, apache+mod_php"), (10, "nginx, nginx+php-fpm")]
)
def test_the_best_deployment_flips_with_the_hosts(
    number: int, deployment: str, tmp_path: Path
) -> None:
    found = swept(number, tmp_path)
    best = figures.find_best_result(found)
    assert best is not None
    assert best.point.labels["service"] == deployment
    assert best.point.hosts["web"] == 3
    panels = figures.build_diagrams(found)
    titles = [panel.title for panel in panels]
    assert titles[:3] == ["Response time: 1 web", "Response time: 2 web", "Response time: 3 web"]
    assert "Load average, lb: 3 web" in titles
    assert [series.name for series in panels[0].series] == [
        "apache, apache+mod_php", "apache, nginx+php-fpm",
        "nginx, apache+mod_php", "nginx, nginx+php-fpm",
    ]  # fmt: skip


def test_less_is_carried_with_more_caches(tmp_path: Path) -> None:
    def most(found: SweepResults) -> float:
        best = figures.find_best_result(found)
        assert best is not None
        assert best.rate is not None
        return best.rate

    assert most(swept(9, tmp_path)) == 5000.0


def test_a_point_that_rejects_requests_is_not_the_best_one() -> None:
    axis = SweepAxis(LB, (AxisValue(10, {}), AxisValue(500, {})))
    plan = SweepPlan("A sweep", (axis,), rates=(100.0,))
    rejecting, serving = (
        Result(point, 100.0, response=Mean(seconds), violations=share, met=not share)
        for point, seconds, share in zip(plan.points, (0.001, 0.2), (0.6, 0.0), strict=True)
    )
    target = read_target(SWEEPS.parent / "paper.yaml").target
    found = SweepResults("a-sweep", plan, target, (rejecting, serving), 0)
    assert figures.find_best_result(found) is serving
    assert figures.find_best_result(replace(found, results=(rejecting,))) is rejecting
