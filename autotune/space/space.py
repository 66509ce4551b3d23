"""The joint space of all tiers: what may be tried, and what every trial is made to respect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from autotune.services.base import Settings, Value
from autotune.services.registry import parts
from autotune.space.catalogue import Facts, dimensions
from autotune.space.dimension import Dimension
from autotune.space.expression import Comparison, parse_comparison
from autotune.target.document import nearest
from autotune.target.read import TargetFile


@dataclass(frozen=True)
class Binding:
    """A rule that lowered a parameter, with its arithmetic."""

    rule: str
    parameter: str
    asked: Value
    given: Value

    def __str__(self) -> str:
        return f"{self.parameter}: {self.asked} → {self.given} ({self.rule})"


@dataclass(frozen=True)
class Candidate:
    """Complete settings of all tiers that keep every rule, and what had to be changed for that."""

    settings: Settings
    bindings: tuple[Binding, ...] = ()


class Infeasible(ValueError):
    """A rule cannot be kept by lowering anything; the message is the rule with its arithmetic."""


@dataclass(frozen=True)
class Space:
    """``facts`` are names constraints may use beside parameters: ``web.memory``, ``count(web)``."""

    dimensions: tuple[Dimension, ...]
    constraints: tuple[Comparison, ...]
    facts: Mapping[str, float]

    @property
    def tunable(self) -> tuple[Dimension, ...]:
        """Dimensions with more than one value."""
        return tuple(
            d for d in self.dimensions if (len(d.choices) > 1 if d.choices else d.low != d.high)
        )

    @property
    def baseline(self) -> dict[str, Value]:
        return {d.name: d.baseline for d in self.dimensions}

    def preset(self, kind: str) -> dict[str, Value]:
        """``recommended`` or ``published`` values over the baseline, inside this space's bounds."""
        chosen = {}
        for dimension in self.dimensions:
            value = getattr(dimension, kind)
            chosen[dimension.name] = dimension.baseline if value is None else dimension.clip(value)
        return chosen

    def without(self, name: str, choice: Value) -> Space:
        """The space with one choice less."""
        dimensions = tuple(
            replace(d, choices=tuple(c for c in d.choices if c != choice)) if d.name == name else d
            for d in self.dimensions
        )
        return replace(self, dimensions=dimensions)

    def active(self, settings: Settings) -> frozenset[str]:
        """Names of the parameters that have any effect under ``settings``."""
        return frozenset(
            d.name
            for d in self.dimensions
            if all(settings.get(name) in values for name, values in d.when)
        )

    def candidate(self, suggested: Settings) -> Candidate:
        """Suggested values completed from the baseline and repaired until every rule holds.

        A rule is repaired by lowering the parameter on its smaller side that is furthest above its
        lowest value. Raises Infeasible when that cannot help.
        """
        settings = {**self.baseline, **suggested}
        bindings: list[Binding] = []
        rules = self.constraints
        for _ in range(4 * len(rules) + 4):
            broken = next((rule for rule in rules if not rule.holds(self._names(settings))), None)
            if broken is None:
                return Candidate(settings, tuple(bindings))
            bindings.append(self._repair(broken, settings))
            settings[bindings[-1].parameter] = bindings[-1].given
        raise Infeasible(f"no values keep the rules: {self.arithmetic(rules[0], settings)}")

    def arithmetic(self, rule: Comparison, settings: Settings) -> str:
        """The rule and what its two sides come to."""
        names = self._names(settings)
        left, right = rule.left.evaluate(names), rule.right.evaluate(names)
        return f"{rule.text}: {left:g} {rule.symbol} {right:g}"

    def _names(self, settings: Settings) -> dict[str, float]:
        numbers = {n: float(v) for n, v in settings.items() if not isinstance(v, str)}
        return {**self.facts, **numbers}

    def _repair(self, rule: Comparison, settings: dict[str, Value]) -> Binding:
        small = rule.left if rule.symbol in ("<=", "<") else rule.right
        by_name = {d.name: d for d in self.dimensions}
        candidates = [by_name[name] for name in small.names() if name in by_name]
        candidates = [d for d in candidates if not d.choices and settings[d.name] != d.low]
        for dimension in sorted(candidates, key=lambda d: -_headroom(d, settings[d.name])):
            given = self._lowered(rule, dimension, settings)
            if given is not None:
                return Binding(
                    self.arithmetic(rule, settings), dimension.name, settings[dimension.name], given
                )
        raise Infeasible(self.arithmetic(rule, settings))

    def _lowered(
        self, rule: Comparison, dimension: Dimension, settings: dict[str, Value]
    ) -> Value | None:
        """The largest value that keeps the rule, by bisection (both sides are monotone in it)."""
        assert dimension.low is not None

        def keeps(value: Value) -> bool:
            return rule.holds(self._names({**settings, dimension.name: value}))

        low, high = float(dimension.low), float(settings[dimension.name])
        if not keeps(dimension.low):
            return None
        while high - low > (0.5 if dimension.integer else 1e-6 * max(1.0, high)):
            middle = (low + high) / 2
            low, high = (middle, high) if keeps(dimension.lowered(middle)) else (low, middle)
        return dimension.lowered(low)


def _headroom(dimension: Dimension, value: Value) -> float:
    return float(value) / max(float(dimension.low or 0), 1e-9)


def build(file: TargetFile, facts: Facts) -> Space:
    """The space of a target on hosts with these facts. Raises TargetError."""
    all_dimensions = dimensions(file, facts)
    named_facts = _fact_names(file, facts)
    rules = [*_written(file, all_dimensions, named_facts), *_built_in(file, all_dimensions)]
    space = Space(all_dimensions, tuple(rules), named_facts)
    try:
        broken = space.candidate({}).bindings
    except Infeasible as error:
        raise file.document.error(["constraints"], f"nothing can satisfy {error}") from None
    if broken:
        raise file.document.error(
            ["constraints"], f"the baseline itself breaks a constraint: {broken[0].rule}"
        )
    return space


def _fact_names(file: TargetFile, facts: Facts) -> dict[str, float]:
    names: dict[str, float] = {}
    for name, tier in file.target.tiers.items():
        smallest = min((facts[host] for host in tier.hosts), key=lambda f: f.memory)
        names[f"count({name})"] = names[f"count({name}.hosts)"] = len(tier.hosts)
        names[f"{name}.memory"] = smallest.memory
        names[f"{name}.cpus"] = min(facts[host].cpus for host in tier.hosts)
    return names


def _written(
    file: TargetFile, all_dimensions: tuple[Dimension, ...], facts: Mapping[str, float]
) -> list[Comparison]:
    known = {d.name for d in all_dimensions} | set(facts)
    rules = []
    for index, text in enumerate(file.target.constraints):
        try:
            rule = parse_comparison(text)
        except ValueError as error:
            raise file.document.error(["constraints", index], str(error)) from None
        for name in sorted(rule.names() - known):
            meant = nearest(name, known)
            raise file.document.error(
                ["constraints", index],
                f"unknown name {name!r}",
                hint=f"did you mean {meant!r}?" if meant else None,
            )
        rules.append(rule)
    return rules


def _built_in(file: TargetFile, all_dimensions: tuple[Dimension, ...]) -> list[Comparison]:
    """The order a service demands of its own values (FPM: spare servers within max_children)."""
    known = {d.name for d in all_dimensions}
    rules = []
    for tier_name, tier in file.target.tiers.items():
        for deployment in tier.service:
            for service, _ in parts(deployment):
                for small, large in service.at_most:
                    names = [f"{tier_name}.{service.name}.{name}" for name in (small, large)]
                    if known.issuperset(names):
                        rules.append(parse_comparison(f"{names[0]} <= {names[1]}"))
    return rules
