"""One parameter of one tier, with its bounds worked out for the hosts at hand."""

from __future__ import annotations

import math
from dataclasses import dataclass

from autotune.services.base import Parameter, Value


@dataclass(frozen=True)
class Dimension:
    """``name`` is ``tier.service.parameter``; ``baseline`` is its value unless told otherwise.

    Either ``low`` and ``high`` are numbers (inclusive) or ``choices`` is not empty.
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
    when: tuple[tuple[str, tuple[Value, ...]], ...] = ()

    @property
    def integer(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    def number(self, value: Value) -> int | float:
        """``value`` as a number of this dimension's kind."""
        return int(value) if self.integer else float(value)

    def clip(self, value: Value) -> Value:
        """The nearest value that is allowed: bounds for a number, the baseline for a choice."""
        if self.choices:
            return value if value in self.choices else self.baseline
        assert self.low is not None
        assert self.high is not None
        number = min(max(float(value), self.low), self.high)
        return round(number) if self.integer else number

    def lowered(self, limit: float) -> Value:
        """The largest allowed number not above ``limit`` (or the lowest there is)."""
        assert self.low is not None
        number = max(float(self.low), limit)
        return math.floor(number) if self.integer else number
