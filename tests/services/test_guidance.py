"""What the catalogue says of how much a parameter matters."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.environments.simulated import DEFAULT_FACTS
from autotune.services.base import Effect, with_guidance
from autotune.services.nginx.service import PARAMETERS
from autotune.services.registry import SHIPPED
from autotune.space.space import SearchSpace
from autotune.space.target_space import build_space
from autotune.target.read_target import read_target

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.parametrize("service", SHIPPED.services, ids=lambda service: service.name)
def test_directions_and_safe_ranges_fit_the_parameter(service: object) -> None:
    for parameter in service.parameters:  # type: ignore[attr-defined]
        assert parameter.direction in ("", "+", "-")
        if parameter.choices:
            assert parameter.safe is None


def space(name: str) -> SearchSpace:
    file = read_target(REPOSITORY / "targets" / name)
    return build_space(file, dict.fromkeys(file.target.hosts, DEFAULT_FACTS))


@pytest.mark.parametrize(("name", "least", "most"), [("local.yaml", 15, 25), ("lab.yaml", 30, 40)])
def test_the_core_of_the_shipped_targets_is_small(name: str, least: int, most: int) -> None:
    found = space(name)
    assert least <= len(found.core_dimensions) <= most < len(found.tunable_dimensions)
    for dimension in found.core_dimensions:
        if dimension.safe_range is not None:
            low, high = dimension.safe_range
            assert low < high, dimension.name
            assert dimension.clip(low) < dimension.clip(high), dimension.name  # type: ignore[operator]


def test_what_the_target_gives_values_to_is_searched_first() -> None:
    assert "cache.memcached.memory" in {
        dimension.name for dimension in space("lab.yaml").core_dimensions
    }


def test_a_limit_that_a_diagnosis_raises_declares_the_value_for_no_limit() -> None:
    """A recommended increase would otherwise replace no limit by a limit."""
    raised = {
        (service.name, parameter.name): parameter.special_values
        for service in SHIPPED.services
        for changes in SHIPPED.find_diagnosis(service.name).recommended_changes.values()
        for parameter in service.parameters
        if f"{parameter.name}+" in changes and "0 means no limit" in parameter.meaning
    }
    assert raised.keys() == {("haproxy", "server_maxconn"), ("caddy", "max_conns_per_host")}
    assert all(0 in special_values for special_values in raised.values())


def test_guidance_for_what_is_not_there_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="worker_proceses"):
        with_guidance(PARAMETERS, capacity="worker_proceses+")
    effects = {
        p.name: p.effect for p in with_guidance(PARAMETERS, capacity="backlog+", small="use")
    }
    assert effects["backlog"] is Effect.CAPACITY
    assert effects["use"] is Effect.SMALL
    assert effects["keepalive_timeout"] is Effect.COSMETIC
