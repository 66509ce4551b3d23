"""Selection of parameters by patterns: `tune: [web.php_fpm]` and `parameters: {"lb.*": false}`.

A pattern is a tier, a service of a tier, a full parameter name, or a name with `*` for any text.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from autotune.errors import TargetError
from autotune.target.messages import (
    MAX_LISTED_NAMES,
    find_nearest_name,
    suggest_list,
    suggest_name,
)
from autotune.target.model import ParameterRule, Target
from autotune.target.parameter_rule import WILDCARD
from autotune.target.yaml_document import Location, YamlDocument

# Names of parameters in other versions or files of the software, in lower case
FORMER_NAMES = {
    "maxclients": "MaxRequestWorkers",
    "maxrequestsperchild": "MaxConnectionsPerChild",
    "maxconn": "connections",
    "maxconns": "connections",
    "cachesize": "memory",
    "nbproc": "nbthread",
}


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


def suggest_parameter(name: str, names: Iterable[str], *, takes_patterns: bool = True) -> str:
    """Return the hint for an unknown parameter: the nearest name in its tier, the tier's services, or
    the tiers. ``takes_patterns`` is false where a name cannot select several parameters.
    """
    known_names = sorted(names)
    suggest_several = _suggest_selection if takes_patterns else _suggest_member
    if several_hint := suggest_list(name, known_names) or suggest_several(name, known_names):
        return several_hint
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
    own_names = [n for n in tier_names if n.startswith(f"{tier}.{service}.")]
    suggest_one = _suggest_own_parameter if own_names else suggest_name
    return suggest_one(name, own_names or tier_names or known_names)


def _suggest_own_parameter(name: str, own_names: list[str]) -> str:
    """Return the hint for an unknown parameter of a known service, whose parameters are
    ``own_names``. The names are compared without the tier and the service, which they share.
    """
    names = {own_name.split(".", 2)[2]: own_name for own_name in own_names}
    parameter = name.split(".", 2)[2]
    new_name = FORMER_NAMES.get(parameter.lower(), "")
    nearest_name = new_name if new_name in names else find_nearest_name(parameter, names)
    if nearest_name is not None:
        return f"did you mean {names[nearest_name]!r}?"
    more_text = ", …" if len(own_names) > MAX_LISTED_NAMES else ""
    return f"expected one of: {', '.join(own_names[:MAX_LISTED_NAMES])}{more_text}"


def _suggest_member(name: str, known_names: list[str]) -> str | None:
    """Return the hint for a tier, a service or a pattern where one parameter is required."""
    prefix = name.rstrip(f".{WILDCARD}")
    if prefix not in list_prefixes(known_names) and not is_wildcard(name):
        return None
    members = [n for n in known_names if matches_pattern(n, name) or matches_pattern(n, prefix)]
    if f"{prefix}.service" in members:
        return f"write `{prefix}.service` instead of `{name}`: it selects the software"
    example = f", such as `{members[0]}`" if members else ""
    return f"name one parameter{example}; `autotune params` lists parameters"


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
    takes_patterns = location[0] != "try" and tuple(location) not in document.origins
    hint = suggest_parameter(name, names, takes_patterns=takes_patterns)
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
