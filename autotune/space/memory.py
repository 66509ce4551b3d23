"""The memory of hosts as a limit: values in a target that need more memory are rejected, and ranges are
cut to values that fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from autotune.errors import TargetErrorCollector
from autotune.services.base import Settings, Value
from autotune.space.dimension import Dimension
from autotune.space.quantity_text import format_bytes
from autotune.space.rules import Rule
from autotune.target.read_target import TargetFile

# The keys of a parameter rule that set a value, in order of precedence.
VALUE_KEYS = ("fixed", "range", "choices", "default")

# Lowest credible measurement as a share of a service's estimate. Measured workers, which share most of
# their memory, used 0.13 of the estimate in nginx and 0.27 in PHP-FPM.
MIN_MEASURED_SHARE = 0.1


@dataclass(frozen=True)
class HostMemory:
    """The memory rule of a ``host`` under some settings, in bytes.

    ``needed`` is the maximum use, ``allowed`` the limit, and ``memory`` the host's total memory.
    ``of_baseline`` is true if the baseline exceeds the host's share, so that ``allowed`` is the
    baseline's use.
    """

    host: str
    rule: str
    needed: float
    allowed: float
    memory: float
    of_baseline: bool


def find_rule_host(rule: Rule) -> str | None:
    """Return the host whose memory a built-in rule limits, or ``None``."""
    memory_facts = [name for name in rule.comparison.right.names() if name.startswith("memory(")]
    return (
        memory_facts[0].removeprefix("memory(").removesuffix(")")
        if rule.is_built_in and memory_facts
        else None
    )


def limit_measured_size(estimate: float, measured: float) -> float:
    """Return the measured size of a process in bytes, but at least a tenth of the service's estimate.

    Sizes may come from an export, and a size near zero would disable the memory rule.
    """
    return max(measured, MIN_MEASURED_SHARE * estimate)


def has_plausible_sizes(rule: Rule, facts: Mapping[str, float]) -> bool:
    """True if each process that a rule counts would by itself fit into its host's memory."""
    if (host := find_rule_host(rule)) is None:
        return True
    process_sizes = (
        facts[size_name]
        for size_name in rule.comparison.left.names()
        if size_name.startswith("rss(")
    )
    return max(process_sizes, default=0.0) <= facts[f"memory({host})"]


def compute_memory_use(
    rules: Iterable[Rule], settings: Settings, values_by_name: Mapping[str, float]
) -> Iterator[HostMemory]:
    """Yield the memory use of each host, for the rules that apply to ``settings``. ``values_by_name``
    contains the settings and all facts.
    """
    for rule in rules:
        if (host := find_rule_host(rule)) is not None and rule.applies(settings):
            share_bytes, baseline_excess = (
                rule.comparison.right.evaluate(values_by_name),
                rule.compute_allowed_excess(values_by_name),
            )
            yield HostMemory(
                host,
                rule.text,
                rule.comparison.left.evaluate(values_by_name),
                share_bytes + baseline_excess,
                values_by_name[f"memory({host})"],
                baseline_excess > 0,
            )


@dataclass(frozen=True)
class MemoryCheck:
    """A target's values, with the memory rules of its hosts."""

    file: TargetFile
    dimensions: Mapping[str, Dimension]
    rules: Sequence[Rule]
    facts: Mapping[str, float]

    def check_values(self) -> None:
        """Raise TargetError if the target's values cannot fit into a host's memory.

        For parameters without a value in the target, the lowest value is assumed.
        """
        given_names = self.file.target.parameters.keys() & self.dimensions.keys()
        given_values = {
            name: self._compute_lowest_target_value(name)
            for name in given_names
            if self._find_value_key(name)
        }
        values_by_name = self._compute_lowest_values() | given_values
        mistakes = TargetErrorCollector()
        for rule in self.rules:
            memory_expression, host = rule.comparison.left, find_rule_host(rule)
            concerned_names = sorted(given_values.keys() & set(memory_expression.names()))
            host_memory = self.facts[f"memory({host})"]
            if (
                not concerned_names
                or (needed_bytes := memory_expression.evaluate(values_by_name)) <= host_memory
            ):
                continue
            parameter = min(
                concerned_names,
                key=lambda name: memory_expression.evaluate({**values_by_name, name: 0.0}),
            )
            with mistakes.collect():
                raise self.file.document.build_error(
                    ["parameters", parameter, self._find_value_key(parameter) or ""],
                    f"{parameter}: {host} needs {format_bytes(needed_bytes)} of memory for this value, "
                    f"but has only {format_bytes(host_memory)}",
                    hint=f"lower the value, or give {host} more memory",
                )
        mistakes.raise_all()

    def find_range_limits(self) -> dict[str, int | float]:
        """For each range in the target that exceeds a host's memory, return the highest fitting value."""
        lowest_values, limit_by_parameter = self._compute_lowest_values(), dict[str, int | float]()
        for name, dimension in self.dimensions.items():
            rule = self.file.target.parameters.get(name)
            if rule is None or rule.range is None or dimension.choices or dimension.is_fixed:
                continue
            low, high = dimension.bounds
            for memory_rule in self.rules:
                if name in memory_rule.comparison.left.names():
                    high = _find_highest_value(memory_rule, dimension, lowest_values, low, high)
            high = max(high, dimension.to_number(dimension.baseline))
            if high != dimension.high:
                limit_by_parameter[name] = high
        return limit_by_parameter

    def _find_value_key(self, parameter_name: str) -> str | None:
        """Return the key with which the target sets a parameter's value; ``None`` if there is none."""
        rule = self.file.target.parameters[parameter_name]
        return next((key for key in VALUE_KEYS if getattr(rule, key) is not None), None)

    def _compute_lowest_target_value(self, parameter_name: str) -> float:
        """Return the default, or else the lowest value that the target allows for a parameter, in base
        units.
        """
        dimension = self.dimensions[parameter_name]
        has_default = self.file.target.parameters[parameter_name].default is not None
        number = dimension.baseline if has_default else _compute_lowest_value(dimension)
        return 0.0 if isinstance(number, str) else float(number) * dimension.unit_factor

    def _compute_lowest_values(self) -> dict[str, float]:
        """Return all facts, and each parameter at its lowest allowed value."""
        values_by_name = {
            d.name: _compute_lowest_value(d) * d.unit_factor for d in self.dimensions.values()
        }
        return {**self.facts, **values_by_name}


def _compute_lowest_value(dimension: Dimension) -> float:
    """Return the lowest numeric value; a special value such as -1 counts only if it is the only one."""
    values: list[Value] = list(dimension.choices or (dimension.ordinary_bounds[0],))
    special_values = dimension.parameter.special_values
    values = [value for value in values if value not in special_values] or values
    return min((float(value) for value in values if not isinstance(value, str)), default=0.0)


def _find_highest_value(
    rule: Rule,
    dimension: Dimension,
    values_by_name: Mapping[str, float],
    low_value: float,
    high_value: float,
) -> int | float:
    """Return the highest value that satisfies the rule while all other parameters have the values in
    ``values_by_name``, by bisection.
    """

    def satisfies_rule(value: float) -> bool:
        return rule.is_kept({**values_by_name, dimension.name: value * dimension.unit_factor})

    if satisfies_rule(high_value) or not satisfies_rule(low_value):
        return dimension.to_number(high_value)
    highest_kept_value, lowest_broken_value = float(low_value), float(high_value)
    while lowest_broken_value - highest_kept_value > (
        0.5 if dimension.is_integer else 1e-6 * max(1.0, lowest_broken_value)
    ):
        middle_value = (highest_kept_value + lowest_broken_value) / 2
        highest_kept_value, lowest_broken_value = (
            (middle_value, lowest_broken_value)
            if satisfies_rule(middle_value)
            else (highest_kept_value, middle_value)
        )
    return dimension.to_number(highest_kept_value)
