"""Selection of parameters by patterns: `tune: [web.php_fpm]` and `parameters: {"lb.*": false}`.

A pattern is a tier, a service of a tier, a full parameter name, or a name with `*` for any text.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from autotune.errors import TargetError
from autotune.target.messages import find_nearest_name, suggest_list, suggest_name
from autotune.target.model import ParameterRule, Target
from autotune.target.parameter_rule import WILDCARD
from autotune.target.yaml_document import Location, YamlDocument


def is_wildcard(name: str) -> bool:
    """True if the name of a rule matches several parameters."""
    return WILDCARD in name


def matches_pattern(name: str, pattern: str) -> bool:
    """True if the parameter ``name`` is selected by ``pattern``."""
    return name == pattern or name.startswith(f"{pattern}.") or fnmatchcase(name, pattern)


def is_excluded(target: Target, name: str) -> bool:
    """True if the target's patterns exclude the parameter from the search.

    If the parameter has its own rule that sets values, such as `range`, no pattern excludes it.
    """
    rule = target.parameters.get(name)
    if rule is not None and _sets_values(rule):
        return False
    is_unlisted = not isinstance(target.tune, str) and not _matches_any(name, target.tune)
    return is_unlisted or _matches_any(name, filter(is_wildcard, target.parameters))


def list_unmatched_patterns(
    target: Target, names: Iterable[str]
) -> list[tuple[tuple[str | int, ...], str]]:
    """Return the patterns that match none of ``names``, each with its location in the target."""
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


def suggest_parameter(name: str, names: Iterable[str]) -> str:
    """Return the hint for an unknown parameter: the nearest name in its tier, the tier's services, or
    the tiers.
    """
    known_names = sorted(names)
    if list_hint := suggest_list(name, known_names):
        return list_hint
    if selection_hint := _suggest_selection(name, known_names):
        return selection_hint
    tier, _, name_in_tier = name.partition(".")
    service, dot_separator, _ = name_in_tier.partition(".")
    tier_names = [n for n in known_names if n.startswith(f"{tier}.")]
    services = sorted({n.split(".")[1] for n in tier_names if n.count(".") > 1})
    names_elsewhere = [
        n for n in known_names if name_in_tier and n.partition(".")[2] == name_in_tier
    ]
    if names_elsewhere:
        nearest_tier = find_nearest_name(tier, [n.partition(".")[0] for n in names_elsewhere])
        tier = nearest_tier or names_elsewhere[0].partition(".")[0]
        return f"did you mean {f'{tier}.{name_in_tier}'!r}?"
    is_service = dot_separator or find_nearest_name(name, tier_names) is None
    if is_service and service and tier_names and find_nearest_name(service, services) is None:
        services_text = ", ".join(services)
        return f"{tier} contains {services_text}; `autotune params` lists their parameters"
    tiers = sorted({n.partition(".")[0] for n in known_names if "." in n})
    if tiers and not tier_names and find_nearest_name(name, known_names) is None:
        return f"names start with a tier ({', '.join(tiers)}); `autotune params` lists parameters"
    return suggest_name(name, tier_names or known_names)


def _suggest_selection(name: str, known_names: list[str]) -> str | None:
    """Return the hint for a name that selects several parameters; ``None`` for other names."""
    if name.lower() in ("core", "all"):
        return f"write `tune: {name.lower()}`, without brackets"
    if name[:1] in ("!", "-", "^", "~"):
        return f'exclude parameters by `parameters: {{"{name[1:]}.*": false}}`'
    if name in list_prefixes(known_names):
        return f'name one of its parameters, or exclude all of them: `"{name}.*": false`'
    return _suggest_pattern(name, known_names) if is_wildcard(name) else None


def _suggest_pattern(pattern: str, known_names: list[str]) -> str:
    """Return the hint for a pattern that matches no parameter: the pattern with the nearest tier,
    service and parameter.
    """
    corrected = ""
    for word in pattern.split("."):
        next_words = {
            known_name.removeprefix(corrected).split(".")[0]
            for known_name in known_names
            if known_name.startswith(corrected)
        }
        nearest_word = find_nearest_name(word.strip(WILDCARD), sorted(next_words))
        if nearest_word is None:
            break
        corrected += f"{nearest_word}."
    if not corrected:
        tiers = sorted({known_name.split(".")[0] for known_name in known_names})
        return f"it matches no parameter; the tiers are {', '.join(tiers)}"
    is_prefix = any(known_name.startswith(corrected) for known_name in known_names)
    return f"did you mean {f'{corrected}{WILDCARD}' if is_prefix else corrected.rstrip('.')!r}?"


def unknown_parameter_error(
    document: YamlDocument, location: Location, names: Iterable[str], name: str = ""
) -> TargetError:
    """Return an error for an unknown parameter or pattern. By default, ``name`` is the key at
    ``location``.
    """
    name = name or str(location[-1])
    hint = suggest_parameter(name, names)
    return document.build_error(location, f"unknown parameter {name!r}", hint=hint)


def list_prefixes(names: Iterable[str]) -> set[str]:
    """Return the tiers and services in the names of parameters, because patterns may name them."""
    word_lists = [name.split(".") for name in names]
    return {
        ".".join(words[:count]) for words in word_lists for count in (1, 2) if len(words) > count
    }


def _matches_any(name: str, patterns: Iterable[str]) -> bool:
    return any(matches_pattern(name, pattern) for pattern in patterns)


def _sets_values(rule: ParameterRule) -> bool:
    return any(value is not None for value in (rule.range, rule.choices, rule.fixed, rule.derive))
