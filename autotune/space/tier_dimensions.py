"""Build the dimensions of a tier from the parameters that its services declare."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil, floor
from typing import Any

from autotune.services.base import Bound, Parameter, Role
from autotune.services.registry import SHIPPED, Catalogue, TierService, catalogue_of
from autotune.space import derived_values, kernel
from autotune.space.dimension import Dimension, build_deployment_choice
from autotune.space.expression import parse_expression
from autotune.space.facts import HostFacts
from autotune.target.model import Target, Tier


def build_stack_dimensions(target: Target, facts: HostFacts) -> Iterator[Dimension]:
    """Yield every parameter of all tiers from the catalogue, with bounds for hosts that have the same
    facts.
    """
    catalogue = catalogue_of(target)
    for tier_name, tier in target.tiers.items():
        yield from build_tier_dimensions(tier_name, tier, facts, catalogue)


def build_tier_dimensions(
    tier_name: str, tier: Tier, facts: HostFacts, catalogue: Catalogue = SHIPPED
) -> Iterator[Dimension]:
    """Yield every parameter of a tier from the catalogue, with bounds computed from its hosts' facts."""
    deployment_choice = build_deployment_choice(tier_name, tier)
    if deployment_choice:
        yield deployment_choice
    for tier_service in catalogue.list_tier_services(tier_name, tier):
        for parameter in tier_service.service.parameters:
            if parameter.roles is None or tier_service.role in parameter.roles:
                dimension = _build_dimension(tier_service, parameter, facts)
                yield (
                    kernel.with_host_value(dimension, facts)
                    if tier_service.role is Role.HOST
                    else dimension
                )


def _build_dimension(
    tier_service: TierService, parameter: Parameter, facts: HostFacts
) -> Dimension:
    name_prefix = f"{tier_service.name}."
    own_conditions = ((name_prefix + name, values) for name, values in parameter.when)

    def compute_bound(bound: Bound | None, round_number: Callable[[float], int] = round) -> Any:
        """Return a bound, computed from the host's facts if it is an expression."""
        if not isinstance(bound, str) or parameter.choices:
            return bound
        number = parse_expression(bound).evaluate(facts.to_names())
        if number == int(number) or number > 100:
            return int(number)
        return round_number(number) if _is_whole(parameter) else number

    dimension = Dimension(
        name=name_prefix + parameter.name,
        parameter=parameter,
        baseline=compute_bound(parameter.stock),
        low=compute_bound(parameter.low, ceil),
        high=compute_bound(parameter.high, floor),
        is_logarithmic=parameter.log,
        choices=parameter.choices,
        recommended=compute_bound(parameter.recommended),
        advised=compute_bound(parameter.recommended),
        published=parameter.published.get(tier_service.role),
        conditions=(*tier_service.when, *own_conditions),
        expression=derived_values.build_catalogue_expression(parameter, name_prefix),
        safe_range=(compute_bound(parameter.safe[0]), compute_bound(parameter.safe[1]))
        if parameter.safe
        else None,
    )
    if parameter.on_demand:
        return dimension.fix_at_value(dimension.baseline)
    # Bounds from a small host's facts must still include the software's default.
    return dimension.widen_to_include(dimension.baseline)


def _is_whole(parameter: Parameter) -> bool:
    """True if a parameter declares whole numbers, apart from expressions of host facts."""
    numbers = [
        n for n in (parameter.stock, parameter.low, parameter.high) if not isinstance(n, str)
    ]
    return bool(numbers) and all(isinstance(n, int) for n in numbers)
