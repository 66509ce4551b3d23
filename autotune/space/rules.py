"""Rules that every trial satisfies: the target's rules, and built-in rules for any stack.

In addition to parameters and facts, a rule may name the total resource needs of a tier's services
(``web.workers``: see `ResourceNeeds`). Such a rule becomes one rule for each deployment of the tier.
Each of these rules contains its deployment's own parameters, and applies only if that deployment runs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import reduce
from itertools import product

from autotune.parameter_name import ParameterName
from autotune.services.base import Conditions, ResourceNeeds, Settings, Value, conditions_hold
from autotune.services.registry import (
    TierService,
    catalogue_of,
    choice_name,
    list_target_services,
)
from autotune.space.dimension import Dimension
from autotune.space.expression import (
    BASE_UNITS,
    BYTES,
    FUNCTIONS,
    SECONDS,
    Comparison,
    EffectiveValue,
    Expression,
    Name,
    NameValues,
    Number,
    Operation,
    parse_comparison,
    parse_expression,
)
from autotune.space.facts import HostFacts
from autotune.space.quantity_text import UnitsByName, find_unit, format_quantity, format_terms
from autotune.target.field_types import HintedError
from autotune.target.model import Target
from autotune.target.quantities import SIZE_UNITS

# The resource needs that a rule may name for a whole tier: fields of `ResourceNeeds`, and the memory in
# bytes that the tier occupies.
OCCUPIED_MEMORY = "occupied"
SIZE_NAMES = ({field.name for field in fields(ResourceNeeds)} | {OCCUPIED_MEMORY}) - {
    "rss",
    "source",
    "memory",
}
# Share of a host's memory that services may use; the kernel, its buffers and other processes need the
# rest.
MEMORY_SHARE = "80%"
UNIT_KINDS = {BYTES: "a size", SECONDS: "a duration"}
UNIT_EXAMPLES = {BYTES: "30 MB", SECONDS: "5 s"}
_NAME_PATTERN = re.compile(r"[A-Za-z_]\w*")
_MEMORY_FACT_PATTERN = re.compile(r"^(?:memory|rss)\(|\.memory\)?$")


@dataclass(frozen=True)
class Rule:
    """A comparison over searched parameters and facts. A rule applies only while ``conditions`` are
    met.

    ``text`` is the rule as written. ``is_size`` is true if both sides are in bytes, and ``is_built_in``
    if the rule does not come from a target. ``units`` maps names to their base units. ``baseline_excess``
    is the amount by which, in the baseline, the side that should be smaller exceeds the other side.
    ``baseline_excess`` is positive if the baseline breaks the rule. Candidates may then break the rule by
    the same amount at most.
    """

    text: str
    comparison: Comparison
    conditions: Conditions = ()
    is_size: bool = False
    is_built_in: bool = False
    baseline_excess: Expression | None = None
    units: UnitsByName = field(default_factory=dict, compare=False)

    @property
    def symbol(self) -> str:
        return self.comparison.symbol

    @property
    def limits_connections(self) -> bool:
        """True for a built-in rule about the connections to a tier, such as `web.workers *
        count(web.hosts) <= db.connections`.
        """
        return self.is_built_in and self.text.endswith(".connections")

    def applies(self, settings: Settings) -> bool:
        """True if the services to which the rule applies run under these settings."""
        return conditions_hold(self.conditions, settings)

    def is_kept(self, values_by_name: NameValues) -> bool:
        if self.comparison.is_satisfied(values_by_name):
            return True
        allowed_excess = self.compute_allowed_excess(values_by_name)
        left_side, right_side = self.comparison.left, self.comparison.right
        return allowed_excess > 0 and left_side.evaluate(values_by_name) - right_side.evaluate(
            values_by_name
        ) <= allowed_excess * (1 + 1e-12)

    def compute_allowed_excess(self, values_by_name: NameValues) -> float:
        """Return the amount by which the side that should be smaller may exceed the other side, as
        in the baseline.
        """
        return (
            max(0.0, self.baseline_excess.evaluate(values_by_name)) if self.baseline_excess else 0.0
        )

    def build_baseline_excess(
        self, baseline: NameValues, parameters: Collection[str]
    ) -> Expression:
        """Return the amount by which the side that should be smaller exceeds the other side, with
        ``parameters`` as in ``baseline``.

        Process sizes stay in the expression as names, because they are measured later.
        """

        def use_baseline(part: Expression) -> Expression | None:
            if isinstance(part, Name | EffectiveValue) and part.name in parameters:
                return Number(part.evaluate(baseline))
            return None

        baseline_comparison = self.comparison.with_replacements(use_baseline)
        return Operation("-", (baseline_comparison.left, baseline_comparison.right))

    def compute_relative_excess(self, values_by_name: NameValues) -> float:
        """Return the excess of the side that should be smaller, as a fraction of the other side."""
        left, right = (
            side.evaluate(values_by_name) for side in (self.comparison.left, self.comparison.right)
        )
        if self.symbol == "==":
            return abs(left - right) / max(abs(left), abs(right), 1e-12)
        smaller_side, larger_side = (left, right) if self.symbol in ("<=", "<") else (right, left)
        larger_side += self.compute_allowed_excess(values_by_name)
        return (smaller_side - larger_side) / max(abs(smaller_side), abs(larger_side), 1e-12)

    def convert_to_bound(self, values_by_name: NameValues) -> Rule:
        """Return the broken side of an equation as a bound; other rules are returned unchanged."""
        if self.symbol != "==":
            return self
        side_difference = self.comparison.left.evaluate(
            values_by_name
        ) - self.comparison.right.evaluate(values_by_name)
        symbol = "<=" if side_difference > 0 else ">="
        return replace(self, comparison=replace(self.comparison, symbol=symbol))

    def format_arithmetic(self, names: NameValues) -> str:
        """Return the rule, its numbers with their units, and the values of its two sides as text."""
        left_side, right = self.comparison.left, self.comparison.right
        shared_unit = find_unit(left_side, self.units) or find_unit(right, self.units)

        def format_side(side: Expression) -> str:
            terms = format_terms(side, names, self.units, shared_unit)
            value_text = format_quantity(side.evaluate(names), shared_unit)
            return f"{terms} = {value_text}" if isinstance(side, Operation) else terms

        allowed_excess = self.compute_allowed_excess(names)
        allowed_text = format_quantity(right.evaluate(names) + allowed_excess, shared_unit)
        baseline_text = f", or {allowed_text} as in the baseline" if allowed_excess else ""
        return f"{self.text}: {format_side(left_side)} {self.symbol} {format_side(right)}{baseline_text}"

    def names(self) -> frozenset[str]:
        return self.comparison.names()


class RuleVocabulary:
    """The names that a target's rules may contain: parameters, derived values, facts, and resource needs
    of tiers.
    """

    def __init__(
        self, target: Target, dimensions: Mapping[str, Dimension], facts: Mapping[str, float]
    ) -> None:
        self._target, self._dimensions, self._facts = target, dimensions, facts
        self._conditions = _merge_conditions(list_target_services(target))

    @property
    def known_names(self) -> frozenset[str]:
        """Return all valid names."""
        size_names = {f"{tier}.{size}" for tier in self._target.tiers for size in SIZE_NAMES}
        return frozenset({*self._dimensions, *self._facts, *size_names})

    def names_parameter(self, rule: Rule) -> bool:
        """True if the rule contains a parameter, and not only numbers and facts about hosts."""
        return not rule.names().isdisjoint(self._dimensions)

    def find_mistake(self, rule: Rule) -> tuple[str, str] | None:
        """Return the message and the hint for a rule with wrong units, or ``None``."""
        return find_unit_mistake(rule, self._dimensions)

    def build_rules(self, target_comparison: Comparison) -> tuple[Rule, ...]:
        """Return one rule or, if the rule names the resource needs of tiers, one for each combination of
        their deployments.

        Raises KeyError with an unknown name, and ValueError for a parameter whose values are text.
        """
        target_comparison = target_comparison.with_replacements(self._sum_over_hosts)
        sized_tiers = [
            t
            for t in self._target.tiers
            if any(f"{t}.{s}" in target_comparison.names() for s in SIZE_NAMES)
        ]
        deployment_choices = product(*(self._target.tiers[tier].service for tier in sized_tiers))
        return tuple(
            self._build_rule(target_comparison, dict(zip(sized_tiers, deployments, strict=True)))
            for deployments in deployment_choices
        )

    def _build_rule(self, target_comparison: Comparison, deployments: Mapping[str, str]) -> Rule:
        comparison = target_comparison.with_replacements(
            lambda part: self._expand_size(part, deployments)
        )
        comparison = comparison.with_replacements(self._expand_derived)
        comparison = comparison.with_replacements(self._use_effective_value)
        compared_names = sorted(comparison.names())
        for name in compared_names:
            if name not in self._dimensions and name not in self._facts:
                raise KeyError(name)
            if name in self._dimensions and isinstance(self._dimensions[name].baseline, str):
                message = f"{name} is text, and constraints compare numbers"
                raise HintedError(message, "list the allowed values as `choices:` in `parameters:`")
        conditions: list[tuple[str, tuple[Value, ...]]] = [
            (choice_name(tier), (deployment,))
            for tier, deployment in deployments.items()
            if len(self._target.tiers[tier].service) > 1
        ]
        for name in compared_names:
            conditions += self._conditions.get(ParameterName.parse(name).service_prefix, ())
        is_size = any(n.endswith(".memory") or n.startswith("memory(") for n in compared_names)
        return Rule(
            target_comparison.text,
            comparison,
            tuple(dict.fromkeys(conditions)),
            is_size,
            units={name: unit for name in compared_names if (unit := self._find_unit(name))},
        )

    def _sum_over_hosts(self, operand: Expression) -> Expression | None:
        """Return the replacement of a term such as ``sum(web.memory)``: a fact of all hosts, or a
        setting that the hosts share.
        """
        match operand:
            case Operation(symbol=symbol, operands=(Name(name=name),)) if symbol in FUNCTIONS:
                if f"{symbol}({name})" in self._facts:
                    return Name(f"{symbol}({name})")
                host_count = Name(f"count({name.partition('.')[0]})")
                return Operation("*", (Name(name), host_count)) if symbol == "sum" else Name(name)
        return None

    def _expand_size(
        self, operand: Expression, deployments: Mapping[str, str]
    ) -> Expression | None:
        """Return a resource need of a tier as the sum over the services of its deployment."""
        if not isinstance(operand, Name) or operand.name in self._facts:
            return None
        tier_name, _, size_name = operand.name.partition(".")
        if tier_name not in deployments or size_name not in SIZE_NAMES:
            return None
        services = catalogue_of(self._target).list_tier_services(
            tier_name, self._target.tiers[tier_name]
        )
        if not any(find_size_expressions(tier_service, size_name) for tier_service in services):
            raise KeyError(operand.name)
        settings = {choice_name(tier_name): deployments[tier_name]}
        size_terms: list[Expression] = [
            parse_expression(
                qualify_expression(need_expression, f"{tier_service.name}.", self._dimensions)
            )
            for tier_service in services
            if conditions_hold(tuple(c for c in tier_service.when if c[0] in settings), settings)
            for need_expression in find_size_expressions(tier_service, size_name)
        ]
        return reduce(lambda total, term: Operation("+", (total, term)), size_terms or [Number(0)])

    def _expand_derived(self, operand: Expression) -> Expression | None:
        if isinstance(operand, Name) and operand.name in self._dimensions:
            return self._dimensions[operand.name].expression
        return None

    def _use_effective_value(self, operand: Expression) -> Expression | None:
        if isinstance(operand, Name) and operand.name in self._dimensions:
            return self._dimensions[operand.name].effective_value
        return None

    def _find_unit(self, name: str) -> str:
        """Return the base unit of a parameter or of a fact; empty for a count."""
        if name in self._dimensions:
            return BASE_UNITS.get(self._dimensions[name].parameter.unit, "")
        return BYTES if _MEMORY_FACT_PATTERN.search(name) else ""


def _merge_conditions(services: Iterable[TierService]) -> dict[str, Conditions]:
    """Return the conditions of each service. A service that occurs several times is active if the
    conditions of any occurrence are met.
    """
    alternatives_by_service: dict[str, list[Conditions]] = {}
    for service in services:
        alternatives_by_service.setdefault(service.name, []).append(service.when)
    return {
        service_name: _join_alternatives(conditions)
        for service_name, conditions in alternatives_by_service.items()
    }


def _join_alternatives(alternative_conditions: Iterable[Conditions]) -> Conditions:
    """Return conditions that are met if any of the alternatives is met. An alternative without
    conditions is always met, and makes the result empty.
    """
    joined_conditions: dict[str, tuple[Value, ...]] = {}
    for conditions in alternative_conditions:
        if not conditions:
            return ()
        for parameter_name, allowed_values in conditions:
            joined_conditions[parameter_name] = (
                *joined_conditions.get(parameter_name, ()),
                *allowed_values,
            )
    return tuple(joined_conditions.items())


def find_unit_mistake(rule: Rule, dimensions: Mapping[str, Dimension]) -> tuple[str, str] | None:
    """Return the message and the hint for a rule with wrong units, or ``None``.

    Such a rule compares a size with a duration, or a number without a unit with one of them.
    """
    sides = (rule.comparison.left, rule.comparison.right)
    units = [find_unit(side, rule.units) for side in sides]
    if all(units) and units[0] != units[1]:
        kinds = " and ".join(UNIT_KINDS[unit] for unit in units)
        return f"{rule.text!r} compares {kinds}", "compare values of the same kind"
    for side, compared_side, unit in zip(sides, reversed(sides), reversed(units), strict=True):
        if not unit or find_unit(side, rule.units):
            continue
        message = f"{rule.text!r} compares {UNIT_KINDS[unit]} and a number without a unit"
        if not any(side.names()):
            number_unit = _find_missing_unit(side.evaluate({}), compared_side, unit, dimensions)
            return (message, f"write `{side} {number_unit}`") if number_unit else None
        if all(name in dimensions and dimensions[name].is_count for name in side.names()):
            return message, f"give the numbers a unit, such as {UNIT_EXAMPLES[unit]}"
    return None


def _find_missing_unit(
    number: float, compared_side: Expression, unit: str, dimensions: Mapping[str, Dimension]
) -> str | None:
    """Return the unit of a number that is compared with ``compared_side``; ``None`` if the number may be
    in the base unit ``unit``.
    """
    parameter_units = {
        dimensions[name].parameter.unit
        for name in compared_side.names()
        if name in dimensions and dimensions[name].unit_factor != 1
    }
    is_tiny_size = unit == BYTES and number < SIZE_UNITS["KB"]
    if not number or not (parameter_units or is_tiny_size):
        return None
    return next(iter(sorted(parameter_units)), "MB")


def find_size_expressions(tier_service: TierService, size_name: str) -> list[str]:
    """Return a service's expressions (over its own parameters) for one of `SIZE_NAMES`; empty if the
    service declares none.
    """
    resource_needs = tier_service.service.needs
    if size_name != OCCUPIED_MEMORY:
        return [need_expression] if (need_expression := getattr(resource_needs, size_name)) else []
    process_memory = (
        f"({resource_needs.processes}) * rss({tier_service.name})"
        if resource_needs.processes
        else ""
    )
    return [
        need_expression
        for need_expression in (process_memory, resource_needs.memory)
        if need_expression
    ]


def qualify_expression(expression_text: str, prefix: str, parameters: Iterable[str]) -> str:
    """Return an expression with full names in place of the short names of a service's own parameters."""
    parameter_names = frozenset(parameters)

    def qualify_name(match: re.Match[str]) -> str:
        return prefix + match[0] if prefix + match[0] in parameter_names else match[0]

    return _NAME_PATTERN.sub(qualify_name, expression_text)


def convert_to_base_units(settings: Settings, dimensions: Iterable[Dimension]) -> dict[str, float]:
    """Return the numeric values of a configuration by name, in base units."""
    return {
        d.name: float(value) * d.unit_factor
        for d in dimensions
        if not isinstance(value := settings[d.name], str)
    }


# -- rules that hold for any stack and target -----------------------------------------------------


def collect_rule_facts(target: Target, facts: Mapping[str, HostFacts]) -> dict[str, float]:
    """Return the facts for rules: number of hosts, memory (bytes), CPUs and maximum open files.

    ``web.memory`` is the memory of the smallest host; ``sum``, ``min`` and ``max`` cover all hosts of a
    tier. ``rss(web.nginx)`` is the memory of one process, as estimated by the service.
    """
    fact_values: dict[str, float] = {}
    for tier_name, tier in target.tiers.items():
        fact_values[f"count({tier_name})"] = fact_values[f"count({tier_name}.hosts)"] = len(
            tier.hosts
        )
        for fact_name in ("memory", "cpus", "nofile"):
            host_values = [getattr(facts[host], fact_name) for host in tier.hosts]
            fact_values[f"{tier_name}.{fact_name}"] = min(host_values)
            for function in (sum, min, max):
                fact_values[f"{function.__name__}({tier_name}.{fact_name})"] = function(host_values)
        fact_values[f"nofile({tier_name})"] = fact_values[f"{tier_name}.nofile"]
    for tier_service in list_target_services(target):
        fact_values[f"rss({tier_service.name})"] = tier_service.service.needs.rss
    for host_name, host_facts in facts.items():
        fact_values[f"memory({host_name})"] = host_facts.memory
    return fact_values


def list_order_rules(target: Target, parameter_names: Collection[str]) -> Iterator[Comparison]:
    """Yield the rules about the order of values that the software itself requires, for the parameters
    in ``parameter_names``.
    """
    for tier_service in list_target_services(target):
        for name_pair in tier_service.service.ordering_rules:
            smaller_name, larger_name = (
                qualify_expression(compared_name, f"{tier_service.name}.", parameter_names)
                for compared_name in name_pair
            )
            order_rule = parse_comparison(f"{smaller_name} <= {larger_name}")
            if order_rule.names() <= {*parameter_names}:
                yield order_rule


def list_derived_bounds(dimensions: Iterable[Dimension]) -> Iterator[Comparison]:
    """Yield the rules that keep each derived value within its bounds.

    The baseline may be below the lower bound, because the software accepts it. The catalogue's own
    expressions reach no value below the catalogue's lower bounds.
    """
    for dimension in dimensions:
        if dimension.expression is None or dimension.low is None or dimension.high is None:
            continue
        bounds = [("<=", dimension.high)]
        if not dimension.parameter.derive or dimension.low != dimension.parameter.low:
            bounds.append((">=", min(dimension.low, float(dimension.baseline))))
        unit = BASE_UNITS.get(dimension.parameter.unit, "")
        for symbol, value in bounds:
            bound = Number(value * dimension.unit_factor, unit)
            text = f"{dimension.expression} {symbol} {bound}"
            yield Comparison(text, symbol, dimension.expression, bound)


def list_limit_rules(target: Target) -> Iterator[Comparison]:
    """Yield the rules about limits of hosts and of called tiers: memory, connections, descriptors."""
    yield from map(parse_comparison, (*_list_memory_rules(target), *_list_connection_rules(target)))
    # The kernel limits the descriptors that one process opens.
    for tier_service in list_target_services(target):
        qualified_names = [
            f"{tier_service.name}.{parameter.name}" for parameter in tier_service.service.parameters
        ]
        for need_expression in find_size_expressions(tier_service, "descriptors"):
            qualified_limit = qualify_expression(
                need_expression, f"{tier_service.name}.", qualified_names
            )
            yield parse_comparison(f"{qualified_limit} <= nofile({tier_service.tier})")


def _list_memory_rules(target: Target) -> Iterator[str]:
    """Yield rules that keep the worst-case memory of all services on a host within the host's memory."""
    for host in target.hosts:
        tiers = [
            n
            for n, t in target.tiers.items()
            if host in t.hosts and _declares_need(target, n, OCCUPIED_MEMORY)
        ]
        if tiers:
            occupied_sum = " + ".join(f"{tier}.{OCCUPIED_MEMORY}" for tier in tiers)
            yield f"{occupied_sum} <= {MEMORY_SHARE} of memory({host})"


def _list_connection_rules(target: Target) -> Iterator[str]:
    """Yield rules about connections: each worker of an application holds one connection to each host of
    the tiers that it calls. A memcached server therefore gets one connection per worker on all web
    hosts.
    """
    for called_tier in target.tiers:
        calling_tiers = [
            n
            for n, t in target.tiers.items()
            if called_tier in t.uses and _declares_need(target, n, "workers")
        ]
        if calling_tiers and _declares_need(target, called_tier, "connections"):
            workers = " + ".join(f"{user}.workers * count({user}.hosts)" for user in calling_tiers)
            yield f"{workers} <= {called_tier}.connections"


def _declares_need(target: Target, tier: str, size_name: str) -> bool:
    """True if any deployment of a tier declares this resource need."""
    services = catalogue_of(target).list_tier_services(tier, target.tiers[tier])
    return any(find_size_expressions(tier_service, size_name) for tier_service in services)
