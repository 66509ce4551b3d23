"""Options that override keys of a target: `--time 15m`, `--set web.nginx.backlog=511`."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from autotune.errors import UsageError
from autotune.target.messages import suggest_name
from autotune.target.parameter_rule import WILDCARD
from autotune.target.yaml_document import YamlDocument, parse_scalar

SET_OPTION = "--set"
COMMAND_KEY = "command"  # of a target that is a benchmark command and declares its parameters
# The key of the target that each option overrides
KEYS_BY_OPTION: dict[str, tuple[str, ...]] = {
    "--name": ("name",),
    "--time": ("budget", "time"),
    "--trials": ("budget", "trials"),
}
# Keys of a parameter's rule that `--set` keeps. `fixed:` replaces all other keys.
KEPT_RULE_KEYS = ("when", "unit", "meaning")

SECOND_ASSIGNMENT_PATTERN = re.compile(r"[,;\s]\s*[a-z][\w-]*\.[\w.-]+\s*=")

Override = tuple[str, str]
"""An option and its value, as the user typed them."""


def apply_overrides(document: YamlDocument, overrides: Iterable[Override]) -> YamlDocument:
    """Return the document with the options' values. Messages about an invalid value name its option.

    Raises UsageError for a `--set` without an assignment.
    """
    root, value_origins = copy.deepcopy(document.root), dict(document.origins)
    for option, option_value in overrides:
        location, value = (
            _parse_assignment(option_value)
            if option == SET_OPTION
            else _parse_key_option(option, option_value)
        )
        *section_names, last_key = location
        if option == SET_OPTION:
            _reject_pattern(last_key, option_value, root.get("parameters"))
        if option == SET_OPTION and COMMAND_KEY in root:
            _check_declared_parameter(option_value, last_key, value, root.get("parameters"))
        section: Any = root
        for section_name in section_names:
            if not isinstance(section.get(section_name), dict):
                section[section_name] = {}
            section = section[section_name]
        if option == SET_OPTION:
            rule = section.get(last_key)
            declared_keys = (
                {k: rule[k] for k in KEPT_RULE_KEYS if k in rule} if isinstance(rule, dict) else {}
            )
            value = {**declared_keys, "fixed": value}
        section[last_key] = value
        value_origins[tuple(location)] = f"{option} {option_value}"
    return replace(document, root=root, origins=value_origins)


def list_assigned_parameters(document: YamlDocument) -> list[str]:
    """Return the parameters that `--set` fixes in a target."""
    return [
        str(location[-1])
        for location, origin in document.origins.items()
        if origin.startswith(f"{SET_OPTION} ")
    ]


def _check_declared_parameter(
    assignment: str, name: str, value: object, parameters: object
) -> None:
    """Raise UsageError if a target with a benchmark command does not declare the parameter, or if the
    value is outside of the declared range.
    """
    if not isinstance(parameters, dict):
        return
    if name not in parameters:
        raise UsageError(
            f"{SET_OPTION} {assignment}: unknown parameter {name!r}",
            hint=suggest_name(name, map(str, parameters)),
        )
    rule = parameters[name]
    value_range = rule.get("range") if isinstance(rule, dict) else None
    match value, value_range:
        case int() | float(), [int() | float() as low, int() | float() as high] if not (
            low <= value <= high
        ):
            raise UsageError(
                f"{SET_OPTION} {assignment}: outside of the range {low} to {high} in the target",
                hint=f"give a value from {low} to {high}, or extend `range:` in the target",
            )


def _parse_key_option(option: str, text: str) -> tuple[tuple[str, ...], Any]:
    return KEYS_BY_OPTION[option], int(text) if option == "--trials" else text


def _parse_assignment(assignment: str) -> tuple[tuple[str, str], Any]:
    name, equals, value = assignment.partition("=")
    if not (name.strip() and equals and value.strip()):
        raise UsageError(
            f"{SET_OPTION} {assignment}: not an assignment",
            hint=f"write {SET_OPTION} TIER.SERVICE.PARAMETER=VALUE; `autotune params` lists parameters",
        )
    if SECOND_ASSIGNMENT_PATTERN.search(value):
        raise UsageError(
            f"{SET_OPTION} {assignment}: contains several assignments",
            hint=f"repeat the option for each parameter: {SET_OPTION} NAME=VALUE {SET_OPTION} NAME=VALUE",
        )
    return ("parameters", name.strip()), parse_scalar(value.strip())


def _reject_pattern(name: str, assignment: str, parameters: object) -> None:
    """Raise UsageError for a pattern, because `--set` fixes one parameter."""
    if WILDCARD not in name:
        return
    known_names = map(str, parameters) if isinstance(parameters, dict) else ()
    names = (n for n in known_names if fnmatchcase(n, name) and WILDCARD not in n)
    example = next(names, "TIER.SERVICE.PARAMETER")
    value = assignment.partition("=")[2].strip()
    raise UsageError(
        f"{SET_OPTION} {assignment}: {name!r} is a pattern, and {SET_OPTION} takes one parameter",
        hint=f"write {SET_OPTION} {example}={value}; repeat the option for each parameter",
    )
