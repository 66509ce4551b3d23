"""One parameter of one tier, with its bounds worked out for the hosts at hand."""

from __future__ import annotations

import math
from dataclasses import dataclass

from autotune.services.base import Conditions, Parameter, Value
from autotune.space.expression import Expression
from autotune.target.messages import format_value, same
from autotune.target.units import DURATION, SIZE

BASELINE = "baseline"
# Settings that are known by a name in any target, each an attribute of a dimension: `Space.preset`.
PRESETS = ("recommended", "published")
NAMED = (BASELINE, *PRESETS)
LARGEST = 2.0**63  # nothing that is tuned counts further
UNITS = {name: float(size) for name, size in {**SIZE, **DURATION}.items()}


@dataclass(frozen=True)
class Dimension:
    """``name`` is ``tier.service.parameter``; ``baseline`` is its value unless told otherwise.

    Either ``low`` and ``high`` are numbers (inclusive) or ``choices`` is not empty. ``when`` holds
    the settings under which it has any effect. A value that follows from others is ``derived``, an
    expression over full names in base units.
    """

    name: str
    parameter: Parameter
    baseline: Value
    low: int | float | None = None
    high: int | float | None = None
    log: bool = False
    choices: tuple[Value, ...] = ()
    recommended: Value | None = None
    published: Value | None = None
    when: Conditions = ()
    derived: Expression | None = None

    @property
    def integer(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    def typed(self, value: object) -> Value:
        """``value`` in this parameter's kind, within its bounds or not. Raises ValueError.

        A choice is one of the catalogue's, or of those that the host itself has.
        """
        if self.choices:
            choices = (*self.choices, *self.parameter.choices)
            choice = next((choice for choice in choices if same(choice, value)), None)
            if choice is None:
                raise ValueError(f"{self.name} cannot be {format_value(value)}")
            return choice
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{self.name}: {format_value(value)} is not a number")  # noqa: TRY004  # of what a user wrote
        if not abs(value) < LARGEST:
            raise ValueError(f"{self.name}: {format_value(value)} is not a number that can be used")
        if self.integer and value != int(value):
            raise ValueError(f"{self.name}: {value} is not a whole number")
        return value if self.low is None else self.number(value)

    def number(self, value: Value) -> int | float:
        """``value`` as a number of this dimension's kind."""
        return int(value) if self.integer else float(value)

    @property
    def fixed(self) -> bool:
        """Whether there is nothing to choose."""
        return len(self.choices) == 1 if self.choices else self.low == self.high

    @property
    def unit(self) -> float:
        """What one of its values is in base units: 1 for a bare number, 1048576 for MB."""
        return UNITS.get(self.parameter.unit, 1.0)

    def clip(self, value: Value) -> Value:
        """The nearest value that is allowed: bounds for a number, the baseline for a choice."""
        if self.choices:
            return value if value in self.choices else self.baseline
        assert self.low is not None
        assert self.high is not None
        number = min(max(float(value), self.low), self.high)
        return round(number) if self.integer else number

    def towards(self, end: float, number: float) -> Value:
        """``number`` as a value of this kind, rounded towards ``end`` where it is a whole one."""
        if not self.integer:
            return number
        return math.floor(number) if end <= number else math.ceil(number)
