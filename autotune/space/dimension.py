"""One parameter of one tier, with its bounds computed for the target's hosts."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product

from autotune.parameter_name import ParameterName
from autotune.services.base import Action, Conditions, Effect, Parameter, Value
from autotune.services.registry import choice_name
from autotune.space.expression import (
    UNIT_FACTORS,
    EffectiveValue,
    Expression,
    parse_expression,
    qualify_names,
)
from autotune.target.messages import format_value, is_same_value
from autotune.target.model import Tier

BASELINE_NAME = "baseline"
# Named settings of every target. Each name is an attribute of a dimension: see
# `SearchSpace.preset_settings`.
PRESET_NAMES = ("recommended", "advised", "published")
NAMED_SETTINGS = (BASELINE_NAME, *PRESET_NAMES)
MAX_VALUE = 2.0**63  # no parameter has values this large
# The parameter that selects a tier's deployment, without the fields that differ between tiers.
DEPLOYMENT_PARAMETER = Parameter(
    "service",
    "Software that this tier runs.",
    stock="",
    action=Action.RESTART,
    source="the target",
)


@dataclass(frozen=True)
class Dimension:
    """A parameter of the space: ``name`` is ``tier.service.parameter``.

    ``baseline`` is the parameter's value in the baseline configuration. Either ``low`` and ``high``
    are numbers (inclusive) or ``choices`` is not empty. The parameter has no effect unless
    ``conditions`` are met.
    ``advised`` is the value that a published tuning tool computes for these hosts, or else
    ``recommended``. ``expression`` computes a derived value from full names in base units.
    ``safe_range`` is the part of the range that guides do not warn against.
    """

    name: str
    parameter: Parameter
    baseline: Value
    low: int | float | None = None
    high: int | float | None = None
    is_logarithmic: bool = False
    choices: tuple[Value, ...] = ()
    recommended: Value | None = None
    advised: Value | None = None
    published: Value | None = None
    conditions: Conditions = ()
    expression: Expression | None = None
    safe_range: tuple[float, float] | None = None

    @property
    def is_core(self) -> bool:
        """True if the parameter is known to matter. The search starts with such parameters."""
        return self.parameter.effect is Effect.CAPACITY

    @property
    def is_count(self) -> bool:
        """True if a service declares the parameter without a unit. A command may count in any unit."""
        return bool(self.parameter.name) and not self.parameter.unit

    @property
    def is_integer(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    def convert_value(self, value: object) -> Value:
        """Return ``value`` converted to this parameter's type, even if it is outside the bounds. Raises
        ValueError.

        A choice is valid if the catalogue or the host offers it.
        """
        if self.choices:
            choices = (*self.choices, *self.parameter.choices)
            choice = next((choice for choice in choices if is_same_value(choice, value)), None)
            if choice is None:
                raise ValueError(f"{self.name} cannot be {format_value(value)}")
            return choice
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{self.name}: {format_value(value)} is not a number")  # noqa: TRY004
        if not abs(value) < MAX_VALUE:
            raise ValueError(f"{self.name}: {format_value(value)} is not a usable number")
        minimum = self.parameter.low
        if (
            isinstance(minimum, int | float)
            and value < 0 <= minimum
            and value != self.parameter.stock
        ):
            raise ValueError(f"{self.name}: {format_value(value)} is below 0")
        if self.is_integer and value != int(value):
            raise ValueError(f"{self.name}: {value} is not a whole number")
        return value if self.low is None else self.to_number(value)

    def to_number(self, value: Value) -> int | float:
        """Return ``value`` as an integer or a float, as this dimension requires."""
        return int(value) if self.is_integer else float(value)

    @property
    def is_fixed(self) -> bool:
        """True if the dimension has only one value."""
        return len(self.choices) == 1 if self.choices else self.low == self.high

    def find_unmet_condition(
        self, known_values: Mapping[str, Collection[Value]]
    ) -> tuple[str, Value] | None:
        """Return the name in a condition that ``known_values`` cannot meet, with a value that would
        meet it; ``None`` if the parameter may have an effect.
        """
        for name, accepted_values in self.conditions:
            if name in known_values and not set(accepted_values) & set(known_values[name]):
                return name, accepted_values[0]
        return None

    @property
    def unit_factor(self) -> float:
        """Return the size of the parameter's unit in base units: 1048576 for MB, 1 without a unit."""
        return UNIT_FACTORS.get(self.parameter.unit, 1.0)

    @property
    def effective_value(self) -> EffectiveValue | None:
        """Return the expression of the value that the software uses instead of a special value; ``None``
        if the parameter has no special values.
        """
        name_prefix = self.name.removesuffix(self.parameter.name)
        replacements = tuple(
            (float(value) * self.unit_factor, qualify_names(parse_expression(text), name_prefix))
            for value, text in self.parameter.special_values.items()
        )
        return EffectiveValue(self.name, replacements) if replacements else None

    @property
    def bounds(self) -> tuple[int | float, int | float]:
        """Return the lowest and the highest value of a numeric dimension."""
        assert self.low is not None
        assert self.high is not None
        return self.low, self.high

    @property
    def ordinary_bounds(self) -> tuple[int | float, int | float]:
        """Return the bounds without a special lowest value, such as 0 for no limit."""
        low, high = self.bounds
        return (low + 1 if low in self.parameter.special_values and low < high else low), high

    @property
    def allowed_range(self) -> str:
        """Return the allowed values as text."""
        return ", ".join(map(str, self.choices)) if self.choices else f"[{self.low}, {self.high}]"

    def allows(self, value: Value) -> bool:
        """True if the parameter may have this value."""
        if self.choices:
            return value in self.choices
        low_bound, high_bound = self.bounds
        return low_bound <= float(value) <= high_bound

    def widen_to_include(self, value: Value) -> Dimension:
        """Return the dimension with its bounds widened to include ``value``; choices do not change."""
        if self.choices:
            return self
        low_bound, high = self.bounds
        number = float(value)
        return replace(
            self, low=self.to_number(min(low_bound, number)), high=self.to_number(max(high, number))
        )

    def fix_at_value(self, value: Value) -> Dimension:
        """Return the dimension with ``value`` as its only value."""
        if self.choices:
            return replace(self, choices=(value,), baseline=value)
        number = self.to_number(value)
        return replace(self, low=number, high=number, baseline=number, expression=None)

    def clip(self, value: Value) -> Value:
        """Return the nearest allowed value: within the bounds for a number, the baseline for an invalid
        choice.
        """
        if self.choices:
            return value if value in self.choices else self.baseline
        low_bound, high_bound = self.bounds
        number = min(max(float(value), low_bound), high_bound)
        return round(number) if self.is_integer else number

    def round_towards(self, bound: float, number: float) -> Value:
        """Return ``number`` as a value of this dimension; an integer is rounded towards ``bound``."""
        if not self.is_integer:
            return number
        return math.floor(number) if bound <= number else math.ceil(number)


@dataclass(frozen=True)
class AdoptedValues:
    """Values by full parameter name, read from host files that autotune edits in place.

    ``values`` are in effect and become the baseline. In a resumed study, they include kernel settings.
    ``skipped`` contains the parameters that are not tuned, with the reasons.
    """

    values: Mapping[str, Value] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)

    def with_adopted_baseline(self, dimension: Dimension) -> Dimension:
        """Return the dimension with the adopted value as its baseline. If the parameter is not tuned,
        the baseline is its only value.
        """
        name = dimension.name
        if dimension.expression is not None or name not in {**self.values, **self.skipped}:
            return dimension
        value = self.values.get(name, dimension.baseline)
        if name in self.skipped or dimension.parameter.on_demand:
            return dimension.fix_at_value(value)
        return replace(dimension.widen_to_include(value), baseline=value)


EMPTY_VALUES = AdoptedValues()


def build_deployment_choice(tier_name: str, tier: Tier) -> Dimension | None:
    """Return the dimension that selects a tier's deployment, with the baseline as its first choice;
    ``None`` if there is only one deployment.
    """
    if len(tier.service) < 2:
        return None
    parameter = replace(DEPLOYMENT_PARAMETER, choices=tier.service, stock=tier.service[0])
    return Dimension(choice_name(tier_name), parameter, tier.service[0], choices=tier.service)


def is_deployment_choice(parameter: str) -> bool:
    """True if ``parameter`` is the full name of a choice between deployments."""
    return parameter == choice_name(ParameterName.parse(parameter).tier)


def list_deployments(dimensions: Iterable[Dimension]) -> tuple[dict[str, Value], ...]:
    """Return every combination of the tiers' deployments, the baseline's combination first."""
    deployment_choices = [d for d in dimensions if is_deployment_choice(d.name)]
    ordered_choices = [
        (d.baseline, *(c for c in d.choices if c != d.baseline)) for d in deployment_choices
    ]
    return tuple(
        {d.name: value for d, value in zip(deployment_choices, chosen_values, strict=True)}
        for chosen_values in product(*ordered_choices)
    )
