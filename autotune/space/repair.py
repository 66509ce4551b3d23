"""Repair of a suggestion that breaks rules, changing as little of it as possible. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from autotune.errors import AutotuneError
from autotune.services.base import Settings, Value
from autotune.space.dimension import Dimension
from autotune.space.rules import Rule, base_units


@dataclass(frozen=True)
class Binding:
    """A rule that changed a parameter, with its arithmetic at that moment."""

    rule: str
    parameter: str
    asked: Value
    repaired: Value

    def __str__(self) -> str:
        return f"{self.parameter}: {self.asked} → {self.repaired} ({self.rule})"


class Infeasible(AutotuneError):
    """``rule`` cannot be kept by changing anything; the message is the rule with its arithmetic."""

    def __init__(self, arithmetic: str, rule: Rule) -> None:
        super().__init__(arithmetic, hint="relax the rule, or widen the ranges of what is in it")
        self.rule = rule


def repaired(
    asked: Settings,
    dimensions: Sequence[Dimension],
    rules: Sequence[Rule],
    facts: Mapping[str, float],
    keep: Container[str] = (),
) -> tuple[dict[str, Value], tuple[Binding, ...]]:
    """Settings that keep every rule, and each change that this took.

    A rule is repaired by lowering the parameter on its smaller side that is furthest above its
    lowest value; where none alone suffices, that one goes to its lowest and the next has its turn;
    where all are at their lowest, parameters on the larger side are raised. Parameters to ``keep`` have
    their turn last, unless the rule is one of memory: more of one thing needs more of what it uses.
    Raises Infeasible.
    """
    repair = _Repair(asked, dimensions, facts, keep)
    for _ in range(4 * (len(rules) + len(dimensions))):
        broken = next((rule for rule in rules if not rule.holds(repair.names)), None)
        if broken is None:
            return repair.settings, repair.bindings()
        repair.make(broken)
    raise Infeasible(f"no values keep the rules: {rules[0].arithmetic(repair.names)}", rules[0])


class _Repair:
    """``names`` are the facts and the settings so far, in base units."""

    def __init__(
        self, asked: Settings, dimensions: Iterable[Dimension], facts: Mapping[str, float],
        keep: Container[str],
    ) -> None:  # fmt: skip
        self.settings = dict(asked)
        self._keep = keep
        self._asked = asked
        self._dimensions = {d.name: d for d in dimensions}
        self._changed: dict[str, str] = {}  # parameter → the last rule that changed it
        self.names = {**facts, **base_units(asked, self._dimensions.values())}

    def bindings(self) -> tuple[Binding, ...]:
        return tuple(
            Binding(rule, name, self._asked[name], self.settings[name])
            for name, rule in self._changed.items()
            if self.settings[name] != self._asked[name]
        )

    def make(self, rule: Rule) -> None:
        """Change one parameter so that ``rule`` holds, or comes nearer to it."""
        arithmetic = rule.arithmetic(self.names)
        sides = (rule.comparison.left, rule.comparison.right)
        small, large = sides if rule.symbol in ("<=", "<", "==") else reversed(sides)
        ends = [*self._ends(small.names(), 0), *self._ends(large.names(), 1)]
        if not rule.size:
            ends.sort(key=lambda each: each[0].name in self._keep)
        for dimension, end in ends:
            if rule.holds(self._at(dimension, end)):
                self._set(dimension, self._nearest(rule, dimension, end), arithmetic)
                return
        for dimension, end in ends:
            if rule.excess(self._at(dimension, end)) < rule.excess(self.names):
                self._set(dimension, end, arithmetic)
                return
        raise Infeasible(arithmetic, rule)

    def _ends(self, names: Iterable[str], which: int) -> list[tuple[Dimension, float]]:
        """Numbers that are not at their lowest (0) or highest (1) value yet, with that value: the
        one furthest from it first, by the ratio of the two."""

        def ratio(pair: tuple[Dimension, float]) -> float:
            small, large = sorted((float(self.settings[pair[0].name]), float(pair[1])))
            return large / max(small, 1e-9)

        numbers = [self._dimensions[n] for n in dict.fromkeys(names) if n in self._dimensions]
        ends = [(d, d.bounds[which]) for d in numbers if not d.choices]
        return sorted(
            (e for e in ends if self.settings[e[0].name] != e[1]), key=ratio, reverse=True
        )

    def _at(self, dimension: Dimension, value: Value) -> dict[str, float]:
        return {**self.names, dimension.name: float(value) * dimension.unit}

    def _nearest(self, rule: Rule, dimension: Dimension, end: float) -> Value:
        """The value nearest to the one asked for that keeps the rule, by bisection.

        (Both sides of a rule are monotone in each of its parameters.)
        """
        good, bad = float(end), float(self.settings[dimension.name])
        while abs(bad - good) > (0.5 if dimension.integer else 1e-6 * max(1.0, abs(bad))):
            middle = (good + bad) / 2
            if rule.holds(self._at(dimension, dimension.towards(end, middle))):
                good = middle
            else:
                bad = middle
        return dimension.towards(end, good)

    def _set(self, dimension: Dimension, value: Value, rule: str) -> None:
        self.settings[dimension.name] = value
        self.names = self._at(dimension, value)
        self._changed[dimension.name] = rule
