"""Warnings of constraints that never limit a value, exclude each other, or name the wrong tier."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import inf

from autotune.environments.value_warnings import (
    HIGH_FACTOR,
    LARGE_FACTS,
    build_dimensions,
    read_written_values,
)
from autotune.errors import TargetError
from autotune.parameter_name import ParameterName
from autotune.space.dimension import Dimension
from autotune.space.expression import Comparison, Name, Number, parse_comparison
from autotune.space.facts import PLACEHOLDER_FACTS
from autotune.space.target_values import find_fixed_hint
from autotune.target.consistency_checks import TargetMistake
from autotune.target.model import Target
from autotune.target.read_target import TargetFile
from autotune.target.yaml_document import Location

Ends = tuple[float, float]


def find_constraint_doubts(file: TargetFile) -> Iterator[TargetMistake]:
    """Yield constraints without an effect, and constraints that no value satisfies. A target with an
    error has no such warnings.
    """
    try:
        comparisons = [parse_comparison(text) for text in file.target.constraints]
        small, large = (build_dimensions(file, f) for f in (PLACEHOLDER_FACTS, LARGE_FACTS))
        doubts = list(_find_doubts(file, comparisons, small, large))
    except (TargetError, KeyError, ValueError):
        return
    yield from doubts


def _find_doubts(
    file: TargetFile,
    comparisons: list[Comparison],
    small: Mapping[str, Dimension],
    large: Mapping[str, Dimension],
) -> Iterator[TargetMistake]:
    first_indexes: dict[str, int] = {}
    for index, comparison in enumerate(comparisons):
        location: Location = ("constraints", index)
        first_index = first_indexes.setdefault(re.sub(r"\s", "", comparison.text), index)
        if first_index != index:
            message = f"this constraint repeats number {first_index + 1}"
            yield TargetMistake(location, message, "remove one of them")
        elif str(comparison.left) == str(comparison.right):
            message = "both sides of this constraint are the same"
            yield TargetMistake(location, message, "compare the parameter with another value")
        elif doubt := _find_share_doubt(comparison) or _find_foreign_fact(file.target, comparison):
            yield TargetMistake(location, *doubt)
        else:
            for name in comparison.names() if len(comparison.names()) == 1 else ():
                if name in small and not small[name].choices:
                    yield from _find_binding_doubt(
                        file, location, comparison, (small[name], large[name])
                    )
    yield from _find_opposites(comparisons)


def _find_share_doubt(comparison: Comparison) -> tuple[str, str] | None:
    share = re.search(r"(?<![0-9.])([0-9]{1,9})(?:\.[0-9]{1,9})?\s{0,9}%\s{0,9}of", comparison.text)
    if share is None or int(share[1]) <= 100:
        return None
    return f"{share[1]}% is more than the whole", "write a share such as `70% of …`"


def _find_foreign_fact(target: Target, comparison: Comparison) -> tuple[str, str] | None:
    """Return the message and hint for a parameter that is limited by the hosts of another tier."""
    parsed_names = {name: ParameterName.parse(name) for name in comparison.names()}
    tiers = {p.tier for p in parsed_names.values() if p.parameter and p.tier in target.tiers}
    fact_names = [
        name
        for name, parsed_name in parsed_names.items()
        if parsed_name.tier in target.tiers and parsed_name.service in ("memory", "cpus", "nofile")
    ]
    for fact_name in fact_names:
        fact_tier, fact = fact_name.split(".")
        fact_hosts = {*target.tiers[fact_tier].hosts}
        if len(tiers) == 1 and all(fact_hosts.isdisjoint(target.tiers[t].hosts) for t in tiers):
            (tier,) = tiers
            message = f"{fact_name} belongs to other hosts than the parameters of tier {tier!r}"
            return message, f"write `{tier}.{fact}`"
    return None


def _find_binding_doubt(
    file: TargetFile,
    location: Location,
    comparison: Comparison,
    dimensions: tuple[Dimension, Dimension],
) -> Iterator[TargetMistake]:
    """Yield a constraint on one parameter that all of its values satisfy, or none of them."""
    dimension, large = dimensions
    values = [
        float(value)
        for _, _, value in read_written_values(file, dimension, ("range", "choices", "fixed"))
    ]
    if comparison.symbol == "==" or (not values and dimension.parameter.special_values):
        return
    if not values and (dimension.low is None or large.high is None):
        return
    ends = (
        [min(values), max(values)]
        if values
        else [float(dimension.low or 0), float(large.high or 0) * HIGH_FACTOR]
    )
    results = [
        comparison.is_satisfied({dimension.name: end * dimension.unit_factor}) for end in ends
    ]
    if all(results):
        message = "this constraint never limits a value: all allowed values satisfy it"
        yield TargetMistake(location, message, "correct the number, or remove the constraint")
    elif values and not any(results) and file.target.simulated is None and not file.target.command:
        message = f"no values can satisfy {comparison.text}"
        hint = find_fixed_hint(file, [dimension.name])
        hint = hint or f"widen the range of {dimension.name}, or relax the constraint"
        yield TargetMistake(location, message, hint)


def _find_opposites(comparisons: list[Comparison]) -> Iterator[TargetMistake]:
    """Yield constraints whose limits for a parameter exclude each other."""
    ends: dict[str, Ends] = {}
    for index, comparison in enumerate(comparisons):
        limit = _read_limit(comparison)
        if limit is None:
            continue
        name, (low, high) = limit
        known_low, known_high = ends.get(name, (-inf, inf))
        ends[name] = (max(low, known_low), min(high, known_high))
        if ends[name][0] > ends[name][1]:
            message = f"no value of {name} satisfies this and the other constraints"
            yield TargetMistake(("constraints", index), message, "relax one of them")
            return


def _read_limit(comparison: Comparison) -> tuple[str, Ends] | None:
    """Return the parameter and the ends of its values in a constraint such as ``NAME <= NUMBER``."""
    subject, bound, symbol = comparison.left, comparison.right, comparison.symbol
    if isinstance(subject, Number) and isinstance(bound, Name):
        subject, bound = bound, subject
        symbol = symbol.translate(str.maketrans("<>", "><"))
    if not isinstance(subject, Name) or not isinstance(bound, Number):
        return None
    low = -inf if symbol.startswith("<") else bound.value
    high = inf if symbol.startswith(">") else bound.value
    return subject.name, (low, high)
