"""The joint space of all tiers: what may be tried, and what every trial is made to respect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from autotune.services.base import Settings, Value, met
from autotune.space import built_in, choices, declared, derived, kernel
from autotune.space.catalogue import Facts, dimensions
from autotune.space.dimension import Dimension
from autotune.space.expression import parse_comparison
from autotune.space.repair import Binding, Infeasible, repaired
from autotune.space.rules import Rule, Vocabulary, base_units
from autotune.space.values import known
from autotune.target.messages import nearest
from autotune.target.read import TargetFile

__all__ = ["Binding", "Candidate", "Infeasible", "Space", "build"]


@dataclass(frozen=True)
class Candidate:
    """Complete settings of all tiers that keep every rule, and what had to be changed for that."""

    settings: Settings
    bindings: tuple[Binding, ...] = ()


@dataclass(frozen=True)
class Space:
    """``facts`` are names constraints may use beside parameters: ``web.memory``, ``count(web)``.

    ``dropped`` says what was left out because these hosts do not have it or the baseline breaks it,
    a line each. ``known`` are configurations that the user wants tried first, as what they change.
    """

    dimensions: tuple[Dimension, ...]
    constraints: tuple[Rule, ...]
    facts: Mapping[str, float]
    dropped: tuple[str, ...] = ()
    known: tuple[Settings, ...] = ()

    @property
    def tunable(self) -> tuple[Dimension, ...]:
        """Dimensions that have more than one value, and an effect under some settings."""
        choices_of = {d.name: d.choices for d in self.dimensions if d.choices}
        return tuple(
            d
            for d in self.dimensions
            if d.derived is None
            and not d.fixed
            and all(set(values) & set(choices_of.get(name, values)) for name, values in d.when)
        )

    @property
    def baseline(self) -> dict[str, Value]:
        return {d.name: d.baseline for d in self.dimensions}

    @property
    def deployments(self) -> tuple[dict[str, Value], ...]:
        """Every way to choose the software of the tiers, the baseline's own first.

        Each is the settings that make the choice; a target without one has a single, empty way.
        """
        return choices.combinations(self.dimensions)

    def preset(self, kind: str, deployment: Settings | None = None) -> dict[str, Value]:
        """``recommended`` or ``published`` values over the baseline, inside this space's bounds.

        ``deployment`` is one of `deployments`; without it, the baseline's.
        """
        chosen: dict[str, Value] = {}
        for dimension in self.dimensions:
            value = getattr(dimension, kind)
            chosen[dimension.name] = dimension.baseline if value is None else dimension.clip(value)
        return {**chosen, **(deployment or {})}

    def without(self, name: str, choice: Value) -> Space:
        """The space with one choice less."""
        dimensions = tuple(
            replace(d, choices=tuple(c for c in d.choices if c != choice)) if d.name == name else d
            for d in self.dimensions
        )
        return replace(self, dimensions=dimensions)

    def knowing(self, rss: Mapping[str, int]) -> Space:
        """The space with the memory of processes as it was measured, in bytes by `tier.service`."""
        measured = {f"rss({name})": float(size) for name, size in rss.items()}
        sizes = {name: size for name, size in measured.items() if name in self.facts}
        return replace(self, facts={**self.facts, **sizes})

    def active(self, settings: Settings) -> frozenset[str]:
        """Names of the parameters that have any effect under ``settings``."""
        return frozenset(d.name for d in self.dimensions if met(d.when, settings))

    def candidate(self, suggested: Settings) -> Candidate:
        """Suggested values completed from the baseline and repaired until every rule holds.

        Raises Infeasible when nothing can help.
        """
        asked = {**self.baseline, **suggested}
        rules = [rule for rule in self.constraints if rule.applies(asked)]
        settings, bindings = repaired(asked, self.dimensions, rules, self.facts)
        return Candidate(self._complete(settings), bindings)

    def as_given(self, settings: Settings) -> Candidate:
        """Settings as they are, completed but not repaired: what was measured is measured again."""
        return Candidate(self._complete({**self.baseline, **settings}))

    def keeps(self, rule: Rule, settings: Settings) -> bool:
        return rule.holds(self._names(settings))

    def arithmetic(self, rule: Rule, settings: Settings) -> str:
        """The rule and what its two sides come to."""
        return rule.arithmetic(self._names(settings))

    def _names(self, settings: Settings) -> dict[str, float]:
        return {**self.facts, **base_units(settings, self.dimensions)}

    def _complete(self, settings: Settings) -> Settings:
        """With the values that follow from the others."""
        if all(d.derived is None for d in self.dimensions):
            return settings
        names = self._names(settings)
        following = {d.name: derived.value(d, names) for d in self.dimensions if d.derived}
        return {**settings, **following}


def build(file: TargetFile, facts: Facts) -> Space:
    """The space of a target on hosts with these facts. Raises TargetError."""
    all_dimensions, left_out = _dimensions(file, facts)
    named_facts = built_in.facts_of(file.target, facts)
    vocabulary = Vocabulary(file.target, all_dimensions, named_facts)
    ordered = built_in.orders(file.target, all_dimensions)
    rules = [
        *_written(file, vocabulary),
        *(rule for comparison in ordered for rule in vocabulary.rules(comparison)),
    ]
    first = known(file, all_dimensions)
    space = Space(all_dimensions, tuple(rules), named_facts, left_out, first)
    _check_baseline(file, space)
    limiting = built_in.limits(file.target)
    return _limited(
        space, [rule for comparison in limiting for rule in vocabulary.rules(comparison)]
    )


def _dimensions(file: TargetFile, facts: Facts) -> tuple[tuple[Dimension, ...], tuple[str, ...]]:
    """All there are, and a line for each that these hosts do not have."""
    if file.target.command is not None:
        return declared.dimensions(file), ()
    return kernel.available(file.target, dimensions(file, facts), facts)


def _check_baseline(file: TargetFile, space: Space) -> None:
    try:
        broken = space.candidate({}).bindings
    except Infeasible as error:
        raise file.document.error(["constraints"], f"nothing can satisfy {error}") from None
    if broken:
        raise file.document.error(
            ["constraints"], f"the baseline itself breaks a constraint: {broken[0].rule}"
        )


def _limited(space: Space, rules: list[Rule]) -> Space:
    """With rules that no target wrote, but for those that its baseline does not keep."""
    kept, dropped = list[Rule](), list[str]()
    for rule in rules:
        if rule.applies(space.baseline) and not space.keeps(rule, space.baseline):
            arithmetic = space.arithmetic(rule, space.baseline)
            dropped.append(f"a rule is left out, for the baseline itself breaks it: {arithmetic}")
        else:
            kept.append(replace(rule, built_in=True))
    return replace(
        space, constraints=(*space.constraints, *kept), dropped=(*space.dropped, *dropped)
    )


def _written(file: TargetFile, vocabulary: Vocabulary) -> list[Rule]:
    rules: list[Rule] = []
    for index, text in enumerate(file.target.constraints):
        try:
            rules += vocabulary.rules(parse_comparison(text))
        except ValueError as error:
            raise file.document.error(["constraints", index], str(error)) from None
        except KeyError as error:
            name = str(error.args[0])
            meant = nearest(name, vocabulary.known)
            raise file.document.error(
                ["constraints", index],
                f"unknown name {name!r}",
                hint=f"did you mean {meant!r}?" if meant else None,
            ) from None
    return rules
