"""Repair a suggestion that breaks rules, with as few changes as possible."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from autotune.errors import AutotuneError
from autotune.services.base import Settings, Value
from autotune.space.dimension import Dimension
from autotune.space.expression import Expression, NameValues
from autotune.space.rules import Rule, convert_to_base_units

# A limit of connections keeps room for this many times the demand of the stack's own tiers, because
# other clients may need connections, too.
SPARE_FACTOR = 2.0


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
    kept_names: Collection[str] = (),
) -> tuple[dict[str, Value], tuple[RepairedValue, ...]]:
    """Return settings that satisfy every rule, and each change that was made.

    On the side of the rule that should be smaller, the repair lowers the parameter that is furthest
    above its lowest value. If one parameter does not suffice, that parameter gets its lowest value, and
    the next parameter is lowered. If all parameters are at their lowest values, parameters on the other
    side are raised. If no such change helps, parameters are changed in the opposite direction, because
    a rule may divide by a parameter or subtract it. Parameters in ``kept_names`` are changed last,
    except for rules about memory.

    If there are kept parameters, a rule about memory first lowers limits of connections that exceed the
    demand. An example is `max_connections` of a database with few clients. Raises InfeasibleRule.
    """
    values_by_name = {**facts, **convert_to_base_units(requested_settings, dimensions.values())}
    repair_state = _RepairState(
        requested_settings, dimensions, rules, kept_names, values_by_name, {**requested_settings}
    )
    # If two rules undo each other's repairs, earlier settings occur again.
    seen_states: set[tuple[Value, ...]] = set()
    repaired_rules: list[Rule] = []
    while (broken_rule := repair_state.find_broken_rule()) is not None:
        current_values = tuple(repair_state.settings.values())
        is_too_long = len(repaired_rules) == 4 * (len(rules) + len(dimensions))
        if current_values in seen_states or is_too_long:
            raise _build_conflict(broken_rule, repaired_rules[-1], repair_state.names)
        seen_states.add(current_values)
        repaired_rules.append(broken_rule)
        repair_state.satisfy_rule(broken_rule)
    return repair_state.settings, repair_state.list_repairs()


def _build_conflict(rule: Rule, other_rule: Rule, names: NameValues) -> InfeasibleRule:
    """Return the error for a ``rule`` that a repair of ``other_rule`` breaks."""
    other_text = "" if other_rule.text == rule.text else f", together with {other_rule.text}"
    return InfeasibleRule(f"{rule.format_arithmetic(names)}{other_text}", rule)


@dataclass
class _RepairState:
    """The state of a repair of ``requested`` under ``rules``. Parameters in ``kept_names`` are changed
    last.

    ``names`` are the facts and the current ``settings``, in base units. ``rule_by_parameter`` contains
    the last rule that changed each parameter.
    """

    requested: Settings
    dimensions: Mapping[str, Dimension]
    rules: Sequence[Rule]
    kept_names: Collection[str]
    names: dict[str, float]
    settings: dict[str, Value]
    rule_by_parameter: dict[str, str] = field(default_factory=dict)

    def find_broken_rule(self) -> Rule | None:
        return next((rule for rule in self.rules if not rule.is_kept(self.names)), None)

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
        smaller_side, larger_side = _order_sides(rule)
        if rule.is_size and (
            spare_limit := self._find_spare_limit(frozenset(smaller_side.names()))
        ):
            self._lower_towards(*spare_limit, rule, arithmetic_text)
            return
        # A divisor, or a term with a minus sign, needs the opposite bound.
        for bound_index in (0, 1):
            movable_pairs = [
                *self._list_movable_parameters(smaller_side.names(), bound_index),
                *self._list_movable_parameters(larger_side.names(), 1 - bound_index),
            ]
            if not rule.is_size:
                movable_pairs.sort(key=lambda pair: pair[0].name in self.kept_names)
            if self._move_parameter(movable_pairs, rule, arithmetic_text):
                return
        raise InfeasibleRule(arithmetic_text, requested_rule)

    def _move_parameter(
        self,
        movable_pairs: Sequence[tuple[Dimension, float]],
        rule: Rule,
        arithmetic_text: str,
    ) -> bool:
        """Move one parameter towards its bound, until ``rule`` is satisfied or broken by a smaller
        amount. Return false if no parameter helps.
        """
        for dimension, bound in movable_pairs:
            if rule.is_kept(self._build_names_with(dimension, bound)):
                self._lower_towards(dimension, bound, rule, arithmetic_text)
                return True
        for dimension, bound in movable_pairs:
            if rule.compute_relative_excess(
                self._build_names_with(dimension, bound)
            ) < rule.compute_relative_excess(self.names):
                self._set_value(dimension, bound, arithmetic_text)
                return True
        return False

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

    def _find_spare_limit(self, side_names: Container[str]) -> tuple[Dimension, float] | None:
        """Return a limit of connections that exceeds the demand, and its lowest sufficient value.

        Return ``None`` if there is no such limit, or if no parameter is kept.
        """
        if not self.kept_names:
            return None
        for name, demands in self._group_demands().items():
            dimension = self.dimensions[name]
            if name not in side_names or name in self.kept_names or dimension.choices:
                continue
            sufficient_value = self._find_sufficient_value(dimension, demands)
            if sufficient_value < float(self.settings[name]):
                return dimension, sufficient_value
        return None

    def _group_demands(self) -> dict[str, list[Rule]]:
        """Return the rules about connections by the parameter that limits the connections."""
        demands_by_limit: dict[str, list[Rule]] = {}
        for rule in self.rules:
            if limit_name := _find_connection_limit(rule, self.dimensions):
                demands_by_limit.setdefault(limit_name, []).append(rule)
        return demands_by_limit

    def _find_sufficient_value(self, dimension: Dimension, demands: Sequence[Rule]) -> float:
        """Return the lowest value of a limit that leaves room for ``SPARE_FACTOR`` times the demand, or
        else the current value.
        """

        def suffices(value: Value) -> bool:
            names = self._build_names_with(dimension, float(value) / SPARE_FACTOR)
            return all(rule.is_kept(names) for rule in demands)

        lowest_value = float(dimension.ordinary_bounds[0])
        current_value = float(self.settings[dimension.name])
        if not suffices(current_value):
            return current_value
        if suffices(lowest_value):
            return lowest_value
        return float(_bisect(dimension, current_value, lowest_value, suffices))

    def _lower_towards(
        self, dimension: Dimension, bound: float, rule: Rule, arithmetic_text: str
    ) -> None:
        """Set the value nearest to the current value that satisfies the rule, or else ``bound``."""

        def satisfies(value: Value) -> bool:
            return rule.is_kept(self._build_names_with(dimension, value))

        current_value = float(self.settings[dimension.name])
        value = _bisect(dimension, bound, current_value, satisfies) if satisfies(bound) else bound
        self._set_value(dimension, value, arithmetic_text)

    def _build_names_with(self, dimension: Dimension, value: Value) -> dict[str, float]:
        return {**self.names, dimension.name: float(value) * dimension.unit_factor}

    def _set_value(self, dimension: Dimension, value: Value, arithmetic_text: str) -> None:
        self.settings[dimension.name] = value
        self.names = self._build_names_with(dimension, value)
        self.rule_by_parameter[dimension.name] = arithmetic_text


def _bisect(
    dimension: Dimension,
    satisfying_value: float,
    breaking_value: float,
    is_satisfied: Callable[[Value], bool],
) -> Value:
    """Return the value nearest to ``breaking_value`` that satisfies a condition.

    Both sides of a rule are monotone in each of its parameters. An integer is rounded towards
    ``satisfying_value``.
    """
    bound = satisfying_value
    while abs(breaking_value - satisfying_value) > (
        0.5 if dimension.is_integer else 1e-6 * max(1.0, abs(breaking_value))
    ):
        middle_value = (satisfying_value + breaking_value) / 2
        if is_satisfied(dimension.round_towards(bound, middle_value)):
            satisfying_value = middle_value
        else:
            breaking_value = middle_value
    return dimension.round_towards(bound, satisfying_value)


def _order_sides(rule: Rule) -> tuple[Expression, Expression]:
    """Return the side of a rule that should be smaller, and the other side."""
    left_side, right_side = rule.comparison.left, rule.comparison.right
    return (left_side, right_side) if rule.symbol in ("<=", "<") else (right_side, left_side)


def _find_connection_limit(rule: Rule, dimensions: Container[str]) -> str:
    """Return the only parameter that limits the connections in a rule about connections, or an empty
    string.
    """
    if not rule.limits_connections:
        return ""
    limits = [name for name in _order_sides(rule)[1].names() if name in dimensions]
    return limits[0] if len(limits) == 1 else ""
