"""Making a suggestion keep the rules by changing as little of it as that takes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from autotune.services.base import Settings, Value
from autotune.space.dimension import Dimension
from autotune.space.rules import Rule, base_units


@dataclass(frozen=True)
class Binding:
    """A rule that changed a parameter, with its arithmetic as it was asked for."""

    rule: str
    parameter: str
    asked: Value
    given: Value

    def __str__(self) -> str:
        return f"{self.parameter}: {self.asked} → {self.given} ({self.rule})"


class Infeasible(ValueError):
    """A rule cannot be kept by changing anything; the message is the rule with its arithmetic."""


def repaired(
    asked: Settings,
    dimensions: Sequence[Dimension],
    rules: Sequence[Rule],
    facts: Mapping[str, float],
) -> tuple[dict[str, Value], tuple[Binding, ...]]:
    """Settings that keep every rule, and each change that this took.

    A rule is repaired by lowering the parameter on its smaller side that is furthest above its
    lowest value; where none alone suffices, that one goes to its lowest and the next has its turn;
    where all are at their lowest, parameters on the larger side are raised. Raises Infeasible.
    """
    repair = _Repair(asked, dimensions, facts)
    for _ in range(4 * (len(rules) + len(dimensions))):
        broken = next((rule for rule in rules if not rule.holds(repair.names())), None)
        if broken is None:
            return repair.settings, repair.bindings()
        repair.make(broken)
    raise Infeasible(f"no values keep the rules: {rules[0].arithmetic(repair.names())}")


class _Repair:
    def __init__(
        self, asked: Settings, dimensions: Iterable[Dimension], facts: Mapping[str, float]
    ) -> None:
        self.settings = dict(asked)
        self._asked = asked
        self._dimensions = {d.name: d for d in dimensions}
        self._changed: dict[str, str] = {}  # parameter → the last rule that changed it
        self._names = {**facts, **base_units(asked, self._dimensions.values())}

    def names(self) -> Mapping[str, float]:
        return self._names

    def bindings(self) -> tuple[Binding, ...]:
        return tuple(
            Binding(rule, name, self._asked[name], self.settings[name])
            for name, rule in self._changed.items()
            if self.settings[name] != self._asked[name]
        )

    def make(self, rule: Rule) -> None:
        """Change one parameter so that ``rule`` holds, or comes nearer to it."""
        arithmetic = rule.arithmetic(self.names())
        comparison = rule.comparison
        sides = (comparison.left, comparison.right)
        small, large = sides if rule.symbol in ("<=", "<", "==") else reversed(sides)
        down = [(d, d.low) for d in self._numeric(small.names()) if self.settings[d.name] != d.low]
        up = [(d, d.high) for d in self._numeric(large.names()) if self.settings[d.name] != d.high]
        down.sort(key=lambda way: -self._room(*way))
        up.sort(key=lambda way: -self._room(*way))
        for dimension, end in (*down, *up):
            assert end is not None
            if self._keeps(rule, dimension, end):
                self._set(dimension, self._nearest(rule, dimension, end), arithmetic)
                return
        for dimension, end in (*down, *up):
            assert end is not None
            if self._helps(rule, dimension, end):
                self._set(dimension, end, arithmetic)
                return
        raise Infeasible(arithmetic)

    def _numeric(self, names: Iterable[str]) -> list[Dimension]:
        dimensions = (self._dimensions[n] for n in dict.fromkeys(names) if n in self._dimensions)
        return [d for d in dimensions if not d.choices]

    def _room(self, dimension: Dimension, end: float | None) -> float:
        """How many times its end a value is, or its end the value."""
        pair = sorted((float(self.settings[dimension.name]), float(end or 0)))
        return pair[1] / max(pair[0], 1e-9)

    def _at(self, dimension: Dimension, value: Value) -> dict[str, float]:
        return {**self._names, dimension.name: float(value) * dimension.unit}

    def _keeps(self, rule: Rule, dimension: Dimension, value: Value) -> bool:
        return rule.holds(self._at(dimension, value))

    def _helps(self, rule: Rule, dimension: Dimension, value: Value) -> bool:
        return rule.excess(self._at(dimension, value)) < rule.excess(self.names())

    def _nearest(self, rule: Rule, dimension: Dimension, end: float) -> Value:
        """The value nearest to the one asked for that keeps the rule, by bisection.

        (Both sides of a rule are monotone in each of its parameters.)
        """
        good, bad = float(end), float(self.settings[dimension.name])
        while abs(bad - good) > (0.5 if dimension.integer else 1e-6 * max(1.0, abs(bad))):
            middle = (good + bad) / 2
            if self._keeps(rule, dimension, dimension.towards(end, middle)):
                good = middle
            else:
                bad = middle
        return dimension.towards(end, good)

    def _set(self, dimension: Dimension, value: Value, rule: str) -> None:
        self.settings[dimension.name] = value
        self._names[dimension.name] = float(value) * dimension.unit
        self._changed[dimension.name] = rule
