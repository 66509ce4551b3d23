"""What holds for every parameter of every service."""

from __future__ import annotations

import re

import pytest

from autotune.services.base import Bound, Parameter, Role, Service, Value
from autotune.services.limits.service import Limits
from autotune.services.registry import SHIPPED
from autotune.services.sysctl.service import Sysctl
from autotune.space.expression import parse_expression
from autotune.target.quantities import DURATION_UNITS, SIZE_UNITS

ALL: dict[str, Service] = {
    **SHIPPED.deployable,
    **SHIPPED.applications,
    "sysctl": Sysctl(),
    "limits": Limits(),
}
# Names that bounds may use, as the facts of a host have them.
FACTS = {"cpus", "memory", "nofile", "min", "max"}


EACH = pytest.mark.parametrize("service", ALL.values(), ids=lambda service: service.name)


def values(parameter: Parameter) -> dict[str, Value]:
    """The values it is said to have somewhere, by where."""
    found: dict[str, Value | None] = {
        "stock": parameter.stock,
        "recommended": parameter.recommended,
        **{f"published for {role}": value for role, value in parameter.published.items()},
    }
    return {where: value for where, value in found.items() if value is not None}


def is_expression(parameter: Parameter, value: Bound | Value | None) -> bool:
    return isinstance(value, str) and not parameter.choices


@EACH
def test_it_is_explained(service: Service) -> None:
    for parameter in service.parameters:
        assert re.fullmatch(r"[A-Z].{10,110}\.", parameter.meaning)
        assert parameter.source
        pattern = r"[a-z][a-z0-9_.-]*" if service.name == "sysctl" else r"[A-Za-z][A-Za-z0-9_]*"
        assert re.fullmatch(pattern, parameter.name)
        assert parameter.unit in {"", *DURATION_UNITS, *SIZE_UNITS}


@EACH
def test_it_has_either_bounds_or_choices(service: Service) -> None:
    for parameter in service.parameters:
        if parameter.choices:
            assert parameter.low is parameter.high is None
            assert not parameter.log
            assert len(set(map(repr, parameter.choices))) == len(parameter.choices) > 1
        else:
            assert parameter.low is not None
            assert parameter.high is not None


@EACH
def test_its_bounds_are_bounds(service: Service) -> None:
    for parameter in service.parameters:
        low, high = parameter.low, parameter.high
        if isinstance(low, int | float) and isinstance(high, int | float):
            assert low < high
            assert type(low) is type(high)
        if parameter.log and isinstance(low, int | float):
            assert low > 0


@EACH
def test_its_values_are_within_its_bounds(service: Service) -> None:
    for parameter in service.parameters:
        for where, value in values(parameter).items():
            if parameter.choices:
                assert any(value is c or (value == c and type(value) is type(c))
                           for c in parameter.choices), where  # fmt: skip
                continue
            if is_expression(parameter, value):
                continue
            assert not isinstance(value, bool | str), where
            if isinstance(parameter.low, int | float):
                assert value >= parameter.low, where
            if isinstance(parameter.high, int | float):
                assert value <= parameter.high, where
            if isinstance(parameter.low, int):
                assert isinstance(value, int), where


@EACH
def test_expressions_name_only_facts_of_a_host(service: Service) -> None:
    for parameter in service.parameters:
        for value in (parameter.low, parameter.high, *values(parameter).values()):
            if is_expression(parameter, value):
                assert set(re.findall(r"[A-Za-z_]\w*", str(value))) <= FACTS


@EACH
def test_its_conditions_name_siblings_and_their_choices(service: Service) -> None:
    for parameter in service.parameters:
        siblings = {sibling.name: sibling for sibling in service.parameters}
        for name, wanted in parameter.when:
            assert name != parameter.name
            assert set(wanted) < set(siblings[name].choices)
            # A parameter is only ever missing together with what it depends on.
            roles = siblings[name].roles
            assert roles is None or (parameter.roles is not None and parameter.roles <= roles)


@EACH
def test_roles_are_those_the_service_plays(service: Service) -> None:
    for parameter in service.parameters:
        played = {role for deployment in SHIPPED.deployments
                  for part, role in SHIPPED.services_of(deployment)
                  if part.name == service.name}  # fmt: skip
        assert set(parameter.roles or ()) <= played
        assert set(parameter.published) <= (parameter.roles or played)


@EACH
def test_names_are_unique(service: Service) -> None:
    names = [parameter.name for parameter in service.parameters]
    assert len(set(names)) == len(names)


@EACH
def test_what_it_is_derived_from_are_siblings_and_gives_its_stock(service: Service) -> None:
    for parameter in service.parameters:
        if parameter.derive:
            assert parameter.stock == parse_expression(parameter.derive).evaluate(stock(service))


@EACH
def test_special_values_are_allowed_and_stand_for_values_of_siblings(service: Service) -> None:
    names = {parameter.name for parameter in service.parameters}
    for parameter in service.parameters:
        for value, text in parameter.special_values.items():
            assert value in (*parameter.choices, parameter.low, parameter.stock)
            assert {*parse_expression(text).names()} <= names - {parameter.name}


@EACH
def test_orders_hold_between_its_own_numbers(service: Service) -> None:
    for small, large in service.ordering_rules:
        assert parse_expression(small).evaluate(stock(service)) <= parse_expression(large).evaluate(
            stock(service)
        )


def stock(service: Service) -> dict[str, float]:
    """The stock values of its numbers on a machine with one CPU."""
    facts = {"cpus": 1.0, "memory": 2.0**30, "nofile": 1024.0}
    return {
        p.name: parse_expression(p.stock).evaluate(facts)
        if isinstance(p.stock, str)
        else float(p.stock)
        for p in service.parameters
        if not p.choices
    }


def test_every_deployment_has_services_and_roles() -> None:
    for deployment, services in SHIPPED.deployments.items():
        assert deployment
        assert {name for name, _ in services} <= set(SHIPPED.deployable)
        assert {type(role) for _, role in services} == {Role}
    assert {name for services in SHIPPED.deployments.values() for name, _ in services} == set(
        SHIPPED.deployable
    )
