"""The choice between the deployments of a tier, as one more dimension of the search."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from autotune.services.base import Action, Parameter, Value
from autotune.services.placement import choice_of
from autotune.space.dimension import Dimension
from autotune.target.model import Tier


def choice(name: str, tier: Tier) -> Dimension | None:
    """Which deployment a tier has; ``None`` where there is only one. Its first is the baseline."""
    if len(tier.service) < 2:
        return None
    parameter = Parameter(
        name="service", choices=tier.service, stock=tier.service[0], action=Action.RESTART,
        source="the target", meaning="Which software does the job of this tier.",
    )  # fmt: skip
    return Dimension(choice_of(name), parameter, tier.service[0], choices=tier.service)


def is_choice(dimension: Dimension) -> bool:
    return dimension.name == choice_of(dimension.name.partition(".")[0])


def combinations(dimensions: Iterable[Dimension]) -> tuple[dict[str, Value], ...]:
    """Every way to choose the deployments of all tiers, the baseline's own first."""
    chosen = [d for d in dimensions if is_choice(d)]
    ordered = [sorted(d.choices, key=lambda c, d=d: c != d.baseline) for d in chosen]  # type: ignore[misc]
    return tuple(
        {d.name: value for d, value in zip(chosen, values, strict=True)}
        for values in product(*ordered)
    )
