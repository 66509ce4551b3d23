"""Repair a suggestion that breaks rules, with as few changes as possible."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from autotune.errors import AutotuneError
from autotune.services.base import Settings, Value
from autotune.space.dimension import Dimension
from autotune.space.rules import Rule, convert_to_base_units


@dataclass(frozen=True)
class RepairedValue:
    """A parameter change that a rule required; ``rule`` is the rule's text with its arithmetic."""

    rule: str
    parameter: str
    requested: Value
    repaired: Value

    def __str__(self) -> str:
        return f"{self.parameter}: {self.requested} → {self.repaired} ({self.rule})"


class InfeasibleRule(AutotuneError):
    """Raised if no change can satisfy ``rule``; the message shows the rule with its arithmetic."""

    def __init__(self, arithmetic: str, rule: Rule) -> None:
        super().__init__(arithmetic, hint="relax the rule, or widen the ranges of its parameters")
        self.rule = rule


def repair_settings(
    requested_settings: Settings,
    dimensions: Mapping[str, Dimension],
    rules: Sequence[Rule],
    facts: Mapping[str, float],
    kept_names: Container[str] = (),
) -> tuple[dict[str, Value], tuple[RepairedValue, ...]]:
    """Return settings that satisfy every rule, and each change that was made.

    On the side of the rule that should be smaller, the repair lowers the parameter that is furthest
    above its lowest value. If one parameter does not suffice, that parameter gets its lowest value, and
    the next parameter is lowered. If all parameters are at their lowest values, parameters on the other
    side are raised. Parameters in ``kept_names`` are changed last, except for rules about memory.
    Raises InfeasibleRule.
    """
    values_by_name = {**facts, **convert_to_base_units(requested_settings, dimensions.values())}
    repair_state = _RepairState(
        requested_settings, dimensions, kept_names, values_by_name, {**requested_settings}
    )
    # If two rules undo each other's repairs, earlier settings occur again.
    seen_states: set[tuple[Value, ...]] = set()
    for _ in range(4 * (len(rules) + len(dimensions))):
        current_values = tuple(repair_state.settings.values())
        if current_values in seen_states:
            break
        broken_rule = next((rule for rule in rules if not rule.is_kept(repair_state.names)), None)
        if broken_rule is None:
            return repair_state.settings, repair_state.list_repairs()
        seen_states.add(current_values)
        repair_state.satisfy_rule(broken_rule)
    raise InfeasibleRule(
        f"no values satisfy the rules: {rules[0].format_arithmetic(repair_state.names)}", rules[0]
    )


@dataclass
class _RepairState:
    """The state of a repair of ``requested``. Parameters in ``kept_names`` are changed last.

    ``names`` are the facts and the current ``settings``, in base units. ``rule_by_parameter`` contains
    the last rule that changed each parameter.
    """

    requested: Settings
    dimensions: Mapping[str, Dimension]
    kept_names: Container[str]
    names: dict[str, float]
    settings: dict[str, Value]
    rule_by_parameter: dict[str, str] = field(default_factory=dict)

    def list_repairs(self) -> tuple[RepairedValue, ...]:
        return tuple(
            RepairedValue(rule, name, self.requested[name], self.settings[name])
            for name, rule in self.rule_by_parameter.items()
            if self.settings[name] != self.requested[name]
        )

    def satisfy_rule(self, rule: Rule) -> None:
        """Change one parameter so that ``rule`` is satisfied, or is broken by a smaller amount."""
        arithmetic_text = rule.format_arithmetic(self.names)
        requested_rule, rule = rule, rule.convert_to_bound(self.names)
        sides = (rule.comparison.left, rule.comparison.right)
        smaller_side, larger_side = sides if rule.symbol in ("<=", "<") else reversed(sides)
        movable_pairs = [
            *self._list_movable_parameters(smaller_side.names(), 0),
            *self._list_movable_parameters(larger_side.names(), 1),
        ]
        if not rule.is_size:
            movable_pairs.sort(key=lambda pair: pair[0].name in self.kept_names)
        for dimension, bound in movable_pairs:
            if rule.is_kept(self._build_names_with(dimension, bound)):
                self._set_value(
                    dimension, self._find_nearest_value(rule, dimension, bound), arithmetic_text
                )
                return
        for dimension, bound in movable_pairs:
            if rule.compute_relative_excess(
                self._build_names_with(dimension, bound)
            ) < rule.compute_relative_excess(self.names):
                self._set_value(dimension, bound, arithmetic_text)
                return
        raise InfeasibleRule(arithmetic_text, requested_rule)

    def _list_movable_parameters(
        self, side_names: Iterable[str], bound_index: int
    ) -> list[tuple[Dimension, float]]:
        """Return the numeric parameters that are not yet at bound ``bound_index``, each with that bound
        (0: lowest, 1: highest).

        The parameter with the largest ratio to its bound comes first.
        """

        def compute_bound_ratio(movable_pair: tuple[Dimension, float]) -> float:
            smaller_number, larger_number = sorted(
                (float(self.settings[movable_pair[0].name]), float(movable_pair[1]))
            )
            return larger_number / max(smaller_number, 1e-9)

        numbers = [self.dimensions[n] for n in dict.fromkeys(side_names) if n in self.dimensions]
        movable_pairs = [(d, d.ordinary_bounds[bound_index]) for d in numbers if not d.choices]
        return sorted(
            (
                candidate_pair
                for candidate_pair in movable_pairs
                if self.settings[candidate_pair[0].name] != candidate_pair[1]
            ),
            key=compute_bound_ratio,
            reverse=True,
        )

    def _build_names_with(self, dimension: Dimension, value: Value) -> dict[str, float]:
        return {**self.names, dimension.name: float(value) * dimension.unit_factor}

    def _find_nearest_value(self, rule: Rule, dimension: Dimension, bound: float) -> Value:
        """Return the value that satisfies the rule and is nearest to the requested value, by bisection.

        Both sides of a rule are monotone in each of its parameters.
        """
        satisfying_value, breaking_value = float(bound), float(self.settings[dimension.name])
        values_by_name = dict(self.names)
        while abs(breaking_value - satisfying_value) > (
            0.5 if dimension.is_integer else 1e-6 * max(1.0, abs(breaking_value))
        ):
            middle_value = (satisfying_value + breaking_value) / 2
            rounded_value = float(dimension.round_towards(bound, middle_value))
            values_by_name[dimension.name] = rounded_value * dimension.unit_factor
            if rule.is_kept(values_by_name):
                satisfying_value = middle_value
            else:
                breaking_value = middle_value
        return dimension.round_towards(bound, satisfying_value)

    def _set_value(self, dimension: Dimension, value: Value, arithmetic_text: str) -> None:
        self.settings[dimension.name] = value
        self.names = self._build_names_with(dimension, value)
        self.rule_by_parameter[dimension.name] = arithmetic_text
