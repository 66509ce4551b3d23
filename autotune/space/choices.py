"""The choice between the deployments of a tier, as one more dimension of the search."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import product

from autotune.services.base import Action, Parameter, Value
from autotune.services.registry import choice_of
from autotune.space.dimension import Dimension
from autotune.target.model import Tier

# What holds for the choice of any tier.
PARAMETER = Parameter(
    name="service", stock="", action=Action.RESTART, source="the target",
    meaning="Which software does the job of this tier.",
)  # fmt: skip


def choice(name: str, tier: Tier) -> Dimension | None:
    """Which deployment a tier has; ``None`` where there is only one. Its first is the baseline."""
    if len(tier.service) < 2:
        return None
    parameter = replace(PARAMETER, choices=tier.service, stock=tier.service[0])
    return Dimension(choice_of(name), parameter, tier.service[0], choices=tier.service)


def is_choice(parameter: str) -> bool:
    """Whether a parameter's full name is that of a choice."""
    return parameter == choice_of(parameter.partition(".")[0])


def combinations(dimensions: Iterable[Dimension]) -> tuple[dict[str, Value], ...]:
    """Every way to choose the deployments of all tiers, the baseline's own first."""
    chosen = [d for d in dimensions if is_choice(d.name)]
    ordered = [(d.baseline, *(c for c in d.choices if c != d.baseline)) for d in chosen]
    return tuple(
        {d.name: value for d, value in zip(chosen, values, strict=True)}
        for values in product(*ordered)
    )
