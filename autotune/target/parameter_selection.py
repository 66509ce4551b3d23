"""Selection of parameters by patterns: `tune: [web.php_fpm]` and `parameters: {"lb.*": false}`.

A pattern is a tier, a service of a tier, a full name, or a name with `*` in place of any text.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from autotune.target.model import ParameterRule, Target
from autotune.target.parameter_rule import WILDCARD


def is_wildcard(name: str) -> bool:
    """True if the name of a rule matches several parameters."""
    return WILDCARD in name


def matches_pattern(name: str, pattern: str) -> bool:
    """True if the parameter ``name`` is selected by ``pattern``."""
    return name == pattern or name.startswith(f"{pattern}.") or fnmatchcase(name, pattern)


def is_excluded(target: Target, name: str) -> bool:
    """True if the target's patterns exclude the parameter from the search.

    A rule for the parameter itself that sets values, such as `range`, overrides the patterns.
    """
    rule = target.parameters.get(name)
    if rule is not None and _sets_values(rule):
        return False
    is_unlisted = not isinstance(target.tune, str) and not _matches_any(name, target.tune)
    return is_unlisted or _matches_any(name, filter(is_wildcard, target.parameters))


def list_unmatched_patterns(
    target: Target, names: Iterable[str]
) -> list[tuple[tuple[str | int, ...], str]]:
    """Return the patterns that match none of ``names``, each with its place in the target."""
    names = list(names)
    patterns: list[tuple[tuple[str | int, ...], str]] = [
        (("parameters", name), name) for name in target.parameters if is_wildcard(name)
    ]
    if not isinstance(target.tune, str):
        patterns += [(("tune", index), pattern) for index, pattern in enumerate(target.tune)]
    return [
        (location, pattern)
        for location, pattern in patterns
        if not any(matches_pattern(name, pattern) for name in names)
    ]


def _matches_any(name: str, patterns: Iterable[str]) -> bool:
    return any(matches_pattern(name, pattern) for pattern in patterns)


def _sets_values(rule: ParameterRule) -> bool:
    return any(value is not None for value in (rule.range, rule.choices, rule.fixed, rule.derive))
