"""The shipped targets of the published chain: what they may search is what was published."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autotune.environments.simulated import SimulatedEnvironment, prepare
from autotune.services.base import Value
from autotune.simulate.chain import build_chain
from autotune.simulate.topology import MODELLED_PARAMETERS, is_modelled
from autotune.target.read_target import read_target
from autotune.target.slo import Slo
from bench.variants import VARIANTS

TARGETS = Path(__file__).parents[2] / "targets"
BEST = {"paper": "nginx, apache+mod_php", "paper-3x3": "nginx, nginx+php-fpm"}


def environment(name: str) -> SimulatedEnvironment:
    return prepare(read_target(TARGETS / f"{name}.yaml"))


def peak(modelled: SimulatedEnvironment, settings: dict[str, Value]) -> float:
    settings = modelled.space.build_candidate(settings).settings
    return build_chain(modelled.topology, settings).compute_peak(modelled.file.target.slo.objective)


@pytest.mark.parametrize("name", BEST)
def test_the_best_deployment_is_the_published_one(name: str) -> None:
    modelled = environment(name)
    peaks = {
        ", ".join(map(str, deployment.values())): peak(
            modelled, modelled.space.preset_settings("published", deployment)
        )
        for deployment in modelled.space.deployments
    }
    assert len(peaks) == 4
    assert max(peaks, key=lambda deployment: peaks[deployment]) == BEST[name]


@pytest.mark.parametrize("name", BEST)
def test_only_what_was_published_is_searched(name: str) -> None:
    searched = {dimension.name for dimension in environment(name).space.tunable_dimensions}
    assert searched == {
        "lb.service", "lb.apache.ServerLimit", "lb.apache.ThreadsPerChild",
        "lb.nginx.worker_connections", "lb.nginx.use", "web.service",
        "web.apache.MaxRequestWorkers", "web.nginx.worker_connections", "web.nginx.use",
        "web.php_fpm.max_children",
    }  # fmt: skip


@pytest.mark.parametrize("name", BEST)
def test_there_is_much_to_gain_over_the_baseline(name: str) -> None:
    modelled = environment(name)
    assert (
        1000
        < peak(modelled, modelled.space.baseline)
        < 0.6
        * max(
            peak(modelled, modelled.space.preset_settings("published", d))
            for d in modelled.space.deployments
        )
    )


SPACE = VARIANTS["published"].space
# Not in the variants' space: two values that must differ, under settings that make them matter.
MORE: dict[str, tuple[Value, Value]] = {
    "lb.nginx.accept_mutex": (False, True),
    "lb.nginx.reuseport": (False, True),
    "lb.nginx.access_log_buffer": (0, 64),
    "lb.nginx.backlog": (8, 511),
    "lb.apache.MaxRequestWorkers": (200, 3600),
    "lb.apache.ListenBacklog": (8, 511),
    "web.nginx.worker_processes": (1, 4),
    "web.apache.MaxConnectionsPerChild": (0, 1000),
}


def values(name: str) -> tuple[Value, Value]:
    if name in MORE:
        return MORE[name]
    dimension = next(d for d in SPACE.dimensions if d.name == name)
    if dimension.choices:
        return dimension.choices[0], dimension.choices[1]
    assert dimension.low is not None
    assert isinstance(dimension.recommended, int | float)
    return dimension.low, dimension.recommended


def choice(name: str) -> dict[str, Value]:
    """The deployments under which a parameter matters."""
    lb = "apache" if name.startswith("lb.apache") else "nginx"
    web = "apache+mod_php" if name.startswith("web.apache") else "nginx+php-fpm"
    return {"lb.service": lb, "web.service": web}


@pytest.mark.parametrize(
    "name", [f"{t}.{n}" for t, names in MODELLED_PARAMETERS.items() for n in sorted(names)]
)
def test_what_the_model_answers_to_changes_its_peak(name: str) -> None:
    good = {
        **SPACE.preset_settings("recommended"),
        **choice(name),
        "lb.apache.ServerLimit": 240,
        "web.php_fpm.max_children": 75,
        "cache.memcached.memory": 4096,
    }
    topology = VARIANTS["published"].topology
    peaks = [
        build_chain(topology, {**good, name: value}).compute_peak(Slo()) for value in values(name)
    ]
    assert is_modelled(topology, name)
    assert not np.isclose(peaks[0], peaks[1], rtol=1e-4)


def test_what_it_does_not_is_known_too() -> None:
    topology = VARIANTS["published"].topology
    assert not is_modelled(topology, "lb.nginx.keepalive_timeout")
    assert not is_modelled(topology, "elsewhere.nginx.worker_connections")
