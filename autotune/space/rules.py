"""Rules that every trial keeps: those of the target, and those that hold for any stack.

Beside parameters and facts, a rule may name what a tier's services need together (``web.workers``: see
`Needs`). There is one such rule for each of the tier's deployments, over that deployment's own
parameters, and it applies only while that deployment runs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import reduce
from itertools import product

from autotune.parameter_name import ParameterName
from autotune.services.base import Conditions, Needs, Settings, Value, met
from autotune.services.registry import Placed, choice_of, placed, places
from autotune.space.dimension import Dimension
from autotune.space.expression import (
    Comparison,
    Expression,
    Name,
    Names,
    Number,
    Operation,
    parse,
    parse_comparison,
)
from autotune.space.facts import HostFacts
from autotune.target.model import Target, Tier
from autotune.target.units import SIZE

# The fields of `Needs` that a rule may name for a whole tier, and the bytes of memory it occupies.
OCCUPIED = "occupied"
SIZES = ({field.name for field in fields(Needs)} | {OCCUPIED}) - {"rss", "source", "memory"}
# Of a host's memory; the rest is for the kernel, its buffers and other processes.
MEMORY_SHARE = "80%"
_BARE = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Rule:
    """A comparison over searched parameters and facts, in force while ``when`` holds.

    ``text`` is how it was written; ``size`` says that its two sides are bytes, ``built_in`` that no
    target wrote it. ``beyond`` is by how much the baseline's smaller side is larger, so positive if the
    baseline breaks the rule: then candidates may break it by as much, and no more.
    """

    text: str
    comparison: Comparison
    when: Conditions = ()
    size: bool = False
    built_in: bool = False
    beyond: Expression | None = None

    @property
    def symbol(self) -> str:
        return self.comparison.symbol

    def applies(self, settings: Settings) -> bool:
        """Whether the services that it is about are those that run."""
        return met(self.when, settings)

    def holds(self, names: Names) -> bool:
        if self.comparison.holds(names):
            return True
        slack = self.slack(names)
        left, right = self.comparison.left, self.comparison.right
        return slack > 0 and left.evaluate(names) - right.evaluate(names) <= slack * (1 + 1e-12)

    def slack(self, names: Names) -> float:
        """By how much the smaller side may be larger, because it is in the baseline."""
        return max(0.0, self.beyond.evaluate(names)) if self.beyond else 0.0

    def no_worse_than(self, baseline: Names, parameters: Collection[str]) -> Expression:
        """By how much the smaller side is larger with the values of ``parameters`` in ``baseline``. Sizes
        of processes stay names: they are measured later."""

        def as_there(part: Expression) -> Expression | None:
            if isinstance(part, Name) and part.name in parameters:
                return Number(baseline[part.name])
            return None

        comparison = self.comparison.replaced(as_there)
        return Operation("-", (comparison.left, comparison.right))

    def excess(self, names: Names) -> float:
        """By how much the side that ought to be smaller is larger, relative to the other."""
        left, right = (
            side.evaluate(names) for side in (self.comparison.left, self.comparison.right)
        )
        small, large = (left, right) if self.symbol in ("<=", "<", "==") else (right, left)
        large += self.slack(names)
        return (small - large) / max(abs(small), abs(large), 1e-12)

    def arithmetic(self, names: Names) -> str:
        """The rule, its numbers, and what its two sides come to."""

        def quantity(value: float) -> str:
            # Only values as large as memory are bytes: a rule about bytes has counts, too.
            return figure(value) if self.size and value >= 2**18 else f"{value:.6g}"

        def with_numbers(side: Expression) -> str:
            total = quantity(side.evaluate(names))
            if not isinstance(side, Operation):
                return total
            return f"{side.written(lambda leaf: quantity(leaf.evaluate(names)))} = {total}"

        left, right = with_numbers(self.comparison.left), with_numbers(self.comparison.right)
        slack = self.slack(names)
        allowed = quantity(self.comparison.right.evaluate(names) + slack)
        baseline = f", or {allowed} as in the baseline" if slack else ""
        return f"{self.text}: {left} {self.symbol} {right}{baseline}"

    def names(self) -> frozenset[str]:
        return self.comparison.names()


class Vocabulary:
    """What names in a rule mean in one target: parameters, derived ones, facts, sizes of tiers."""

    def __init__(
        self, target: Target, dimensions: Iterable[Dimension], facts: Mapping[str, float]
    ) -> None:
        self._target, self._facts = target, facts
        self._dimensions = {d.name: d for d in dimensions}
        self._conditions = {place.name: place.when for place in places(target)}

    @property
    def known(self) -> frozenset[str]:
        """All names that mean something."""
        sizes = {f"{tier}.{size}" for tier in self._target.tiers for size in SIZES}
        return frozenset({*self._dimensions, *self._facts, *sizes})

    def rules(self, written: Comparison) -> tuple[Rule, ...]:
        """One rule, or one for each choice of deployments of the tiers whose sizes it names.

        Raises KeyError with a name that means nothing.
        """
        written = written.replaced(self._over_hosts)
        sized = [t for t in self._target.tiers if any(f"{t}.{s}" in written.names() for s in SIZES)]
        choices = product(*(self._target.tiers[tier].service for tier in sized))
        return tuple(
            self._rule(written, dict(zip(sized, deployments, strict=True)))
            for deployments in choices
        )

    def _rule(self, written: Comparison, deployments: Mapping[str, str]) -> Rule:
        comparison = written.replaced(lambda part: self._size(part, deployments))
        comparison = comparison.replaced(self._derived)
        names = sorted(comparison.names())
        for name in names:
            if name not in self._dimensions and name not in self._facts:
                raise KeyError(name)
        conditions: list[tuple[str, tuple[Value, ...]]] = [
            (choice_of(tier), (deployment,))
            for tier, deployment in deployments.items()
            if len(self._target.tiers[tier].service) > 1
        ]
        for name in names:
            conditions += self._conditions.get(ParameterName.parse(name).owner, ())
        size = any(n.endswith(".memory") or n.startswith("memory(") for n in names)
        return Rule(written.text, comparison, tuple(dict.fromkeys(conditions)), size)

    def _over_hosts(self, part: Expression) -> Expression | None:
        """``sum(web.memory)``: a fact of all hosts, or a setting that they share."""
        match part:
            case Operation(symbol=symbol, operands=(Name(name=name),)):
                if f"{symbol}({name})" in self._facts:
                    return Name(f"{symbol}({name})")
                count = Name(f"count({name.partition('.')[0]})")
                return Operation("*", (Name(name), count)) if symbol == "sum" else Name(name)
        return None

    def _size(self, part: Expression, deployments: Mapping[str, str]) -> Expression | None:
        """A size of a tier as the sum over the services of its deployment."""
        if not isinstance(part, Name) or part.name in self._facts:
            return None
        name, _, size = part.name.partition(".")
        if name not in deployments or size not in SIZES:
            return None
        tier = self._target.tiers[name]
        if not any(sizes(place, size) for place in placed(name, tier)):
            raise KeyError(part.name)
        settings = {choice_of(name): deployments[name]}
        terms: list[Expression] = [
            parse(qualified(text, f"{place.name}.", self._dimensions))
            for place in placed(name, tier)
            if met(tuple(c for c in place.when if c[0] in settings), settings)
            for text in sizes(place, size)
        ]
        return reduce(lambda total, term: Operation("+", (total, term)), terms or [Number(0)])

    def _derived(self, part: Expression) -> Expression | None:
        if isinstance(part, Name) and part.name in self._dimensions:
            return self._dimensions[part.name].derived
        return None


def sizes(place: Placed, size: str) -> list[str]:
    """What a service says of one of `SIZES`, over its own parameters; empty if it says nothing."""
    needs = place.service.needs
    if size != OCCUPIED:
        return [text] if (text := getattr(needs, size)) else []
    processes = f"({needs.processes}) * rss({place.name})" if needs.processes else ""
    return [text for text in (processes, needs.memory) if text]


def figure(size: float) -> str:
    """Bytes in words, to three digits."""
    for name in ("TB", "GB", "MB", "KB"):
        if size >= SIZE[name]:
            return f"{size / SIZE[name]:.3g} {name}"
    return f"{size:.0f} B"


def qualified(text: str, prefix: str, parameters: Iterable[str]) -> str:
    """An expression over a service's own parameters, with their full names."""
    names = frozenset(parameters)

    def in_full(match: re.Match[str]) -> str:
        return prefix + match[0] if prefix + match[0] in names else match[0]

    return _BARE.sub(in_full, text)


def base_units(settings: Settings, dimensions: Iterable[Dimension]) -> dict[str, float]:
    """Numbers of a configuration by name, in base units."""
    return {
        d.name: float(value) * d.unit
        for d in dimensions
        if not isinstance(value := settings[d.name], str)
    }


# -- rules that hold for any stack, whatever its target says ------------------------------------


def facts_of(target: Target, facts: Mapping[str, HostFacts]) -> dict[str, float]:
    """What rules may say of hosts: their number, memory (bytes), CPUs and descriptors.

    ``web.memory`` is the smallest host's; ``sum``, ``min`` and ``max`` go over all of them.
    ``rss(web.nginx)`` is the memory of one process, by the service's own account.
    """
    names: dict[str, float] = {}
    for name, tier in target.tiers.items():
        names[f"count({name})"] = names[f"count({name}.hosts)"] = len(tier.hosts)
        for fact in ("memory", "cpus", "nofile"):
            values = [getattr(facts[host], fact) for host in tier.hosts]
            names[f"{name}.{fact}"] = min(values)
            for function in (sum, min, max):
                names[f"{function.__name__}({name}.{fact})"] = function(values)
        names[f"nofile({name})"] = names[f"{name}.nofile"]
    for place in places(target):
        names[f"rss({place.name})"] = place.service.needs.rss
    for name, host_facts in facts.items():
        names[f"memory({name})"] = host_facts.memory
    return names


def orders(target: Target, dimensions: Iterable[Dimension]) -> Iterator[Comparison]:
    """What software demands of its own values: the order of some, the bounds of derived ones."""
    by_name = {d.name: d for d in dimensions}
    for place in places(target):
        for pair in place.service.at_most:
            small, large = (qualified(side, f"{place.name}.", by_name) for side in pair)
            order = parse_comparison(f"{small} <= {large}")
            if order.names() <= by_name.keys():
                yield order
    for dimension in by_name.values():
        if dimension.derived is not None and dimension.high is not None:
            yield parse_comparison(f"{dimension.derived} <= {dimension.high * dimension.unit:.12g}")


def limits(target: Target) -> Iterator[Comparison]:
    """What hosts and the tiers behind can bear: memory, connections, descriptors."""
    yield from map(parse_comparison, (*_memory(target), *_connections(target)))
    # The descriptors that one process opens, within its limit.
    for place in places(target):
        names = [f"{place.name}.{parameter.name}" for parameter in place.service.parameters]
        for text in sizes(place, "descriptors"):
            opened = qualified(text, f"{place.name}.", names)
            yield parse_comparison(f"{opened} <= nofile({place.tier})")


def _memory(target: Target) -> Iterator[str]:
    """The worst case of all services on a host within its memory."""
    for host in target.hosts:
        tiers = [n for n, t in target.tiers.items() if host in t.hosts and _says(n, t, OCCUPIED)]
        if tiers:
            occupied = " + ".join(f"{tier}.{OCCUPIED}" for tier in tiers)
            yield f"{occupied} <= {MEMORY_SHARE} of memory({host})"


def _connections(target: Target) -> Iterator[str]:
    """Every worker of an application holds a connection to each host of the tiers behind it: one
    memcached has workers × web hosts of them.
    """
    for behind, tier in target.tiers.items():
        users = [n for n, t in target.tiers.items() if behind in t.uses and _says(n, t, "workers")]
        if users and _says(behind, tier, "connections"):
            workers = " + ".join(f"{user}.workers * count({user}.hosts)" for user in users)
            yield f"{workers} <= {behind}.connections"


def _says(name: str, tier: Tier, size: str) -> bool:
    """Whether any deployment of a tier states this size."""
    return any(sizes(place, size) for place in placed(name, tier))
