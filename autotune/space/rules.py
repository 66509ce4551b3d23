"""Rules that every trial keeps: those of the target, and those that hold for any stack.

Beside parameters and facts, a rule may name what a tier's services come to (``web.workers``: see
`services.needs`); such a rule is there once for each of the tier's deployments, over that
deployment's own parameters, and holds only while it runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import product
from typing import Literal

from autotune.services.base import Conditions, Needs, Settings, met
from autotune.services.registry import choice_of, placed
from autotune.space.dimension import Dimension
from autotune.space.expression import (
    Comparison,
    Expression,
    Name,
    Names,
    Number,
    Operation,
    parse,
)
from autotune.target.model import Target
from autotune.target.units import SIZE

# What of `Needs` a rule may name for a whole tier, and the bytes it all comes to.
OCCUPIED = "occupied"
SIZES = ({field.name for field in fields(Needs)} | {OCCUPIED}) - {"rss", "source", "memory"}
_BARE = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Rule:
    """A comparison over searched parameters and facts, in force while ``when`` holds.

    ``text`` is how it was written; ``size`` says that its two sides are bytes, ``built_in`` that no
    target wrote it.
    """

    text: str
    comparison: Comparison
    when: Conditions = ()
    size: bool = False
    built_in: bool = False

    @property
    def symbol(self) -> str:
        return self.comparison.symbol

    def applies(self, settings: Settings) -> bool:
        """Whether the services that it speaks of are the ones that run."""
        return met(self.when, settings)

    def holds(self, names: Names) -> bool:
        return self.comparison.holds(names)

    def excess(self, names: Names) -> float:
        """By how much the side that ought to be smaller is larger, relative to the other."""
        left, right = (
            side.evaluate(names) for side in (self.comparison.left, self.comparison.right)
        )
        small, large = (left, right) if self.symbol in ("<=", "<", "==") else (right, left)
        return (small - large) / max(abs(small), abs(large), 1e-12)

    def arithmetic(self, names: Names) -> str:
        """The rule, its numbers, and what its two sides come to."""
        return (
            f"{self.text}: {self._side('left', names)} {self.symbol} {self._side('right', names)}"
        )

    def _side(self, which: Literal["left", "right"], names: Names) -> str:
        side = getattr(self.comparison, which)
        total = self._quantity(side.evaluate(names))
        if not isinstance(side, Operation):
            return total
        return f"{side.written(lambda leaf: self._quantity(leaf.evaluate(names)))} = {total}"

    def _quantity(self, value: float) -> str:
        # Only what is as large as memory is: in a rule about bytes there are counts too.
        return figure(value) if self.size and value >= 2**18 else f"{value:.6g}"

    def names(self) -> frozenset[str]:
        return self.comparison.names()


class Vocabulary:
    """What names in a rule mean in one target: parameters, derived ones, facts, sizes of tiers."""

    def __init__(
        self, target: Target, dimensions: Iterable[Dimension], facts: Mapping[str, float]
    ) -> None:
        self._target, self._facts = target, facts
        self._dimensions = {d.name: d for d in dimensions}
        self._services = {
            f"{name}.{place.service.name}": place.when
            for name, tier in target.tiers.items()
            for place in placed(name, tier)
        }

    @property
    def known(self) -> frozenset[str]:
        """All names that mean something."""
        sizes = {f"{tier}.{size}" for tier in self._target.tiers for size in SIZES}
        return frozenset({*self._dimensions, *self._facts, *sizes})

    def rules(self, written: Comparison) -> tuple[Rule, ...]:
        """One rule, or one for each way to deploy the tiers whose sizes it names.

        Raises KeyError with a name that means nothing.
        """
        written = written.replaced(self._over_hosts)
        sized = [t for t in self._target.tiers if any(f"{t}.{s}" in written.names() for s in SIZES)]
        ways = product(*(self._target.tiers[tier].service for tier in sized))
        return tuple(self._rule(written, dict(zip(sized, way, strict=True))) for way in ways)

    def _rule(self, written: Comparison, way: Mapping[str, str]) -> Rule:
        chosen: Conditions = tuple(
            (choice_of(tier), (deployment,))
            for tier, deployment in way.items()
            if len(self._target.tiers[tier].service) > 1
        )
        meant = written.replaced(lambda part: self._size(part, way)).replaced(self._derived)
        for name in sorted(meant.names()):
            if name not in self._dimensions and name not in self._facts:
                raise KeyError(name)
        own = (self._services[s] for n in meant.names() if (s := _service(n)) in self._services)
        when = dict.fromkeys(
            (*chosen, *(condition for conditions in own for condition in conditions))
        )
        size = any(n.endswith(".memory") or n.startswith("memory(") for n in meant.names())
        return Rule(written.text, meant, tuple(when), size)

    def _over_hosts(self, part: Expression) -> Expression | None:
        """``sum(web.memory)``: a fact of all hosts, or a setting that they share."""
        if not isinstance(part, Operation) or len(part.operands) != 1:
            return None
        name = part.operands[0]
        if not isinstance(name, Name):
            return None
        if f"{part.symbol}({name.name})" in self._facts:
            return Name(f"{part.symbol}({name.name})")
        count = Name(f"count({name.name.partition('.')[0]})")
        return Operation("*", (name, count)) if part.symbol == "sum" else name

    def _size(self, part: Expression, way: Mapping[str, str]) -> Expression | None:
        if not isinstance(part, Name) or part.name in self._facts:
            return None
        tier, _, size = part.name.partition(".")
        if tier not in way or size not in SIZES:
            return None
        terms = [parse(text) for text in self._sizes(tier, way[tier], size)]
        if not any(any(self._sizes(tier, d, size)) for d in self._target.tiers[tier].service):
            raise KeyError(part.name)
        total = terms[0] if terms else Number(0)
        for term in terms[1:]:
            total = Operation("+", (total, term))
        return total

    def _sizes(self, tier: str, deployment: str, size: str) -> Iterator[str]:
        """What one size comes to for each service of a deployment, in full names."""
        settings = {choice_of(tier): deployment}
        for place in placed(tier, self._target.tiers[tier]):
            service = f"{tier}.{place.service.name}"
            if met(_about(place.when, settings), settings):
                yield from (
                    qualified(text, f"{service}.", self._dimensions)
                    for text in _texts(place.service.needs, size, service)
                )

    def _derived(self, part: Expression) -> Expression | None:
        if isinstance(part, Name) and part.name in self._dimensions:
            return self._dimensions[part.name].derived
        return None


def figure(size: float) -> str:
    """Bytes in words, to three digits."""
    for name in ("GB", "MB", "KB"):
        if size >= SIZE[name]:
            return f"{size / SIZE[name]:.3g} {name}"
    return f"{size:.0f} B"


def qualified(text: str, prefix: str, parameters: Iterable[str]) -> str:
    """An expression over a service's own parameters, with their full names."""
    names = frozenset(parameters)

    def in_full(match: re.Match[str]) -> str:
        return prefix + match[0] if prefix + match[0] in names else match[0]

    return _BARE.sub(in_full, text)


def _texts(takes: Needs, size: str, service: str) -> Iterator[str]:
    if size != OCCUPIED:
        if text := getattr(takes, size):
            yield text
        return
    if takes.processes:
        yield f"({takes.processes}) * rss({service})"
    if takes.memory:
        yield takes.memory


def _about(when: Conditions, settings: Settings) -> Conditions:
    return tuple(condition for condition in when if condition[0] in settings)


def _service(parameter: str) -> str:
    return ".".join(parameter.split(".")[:2])


def base_units(settings: Settings, dimensions: Iterable[Dimension]) -> dict[str, float]:
    """Numbers of a configuration by name, in base units."""
    return {
        d.name: float(value) * d.unit
        for d in dimensions
        if not isinstance(value := settings[d.name], str)
    }
