"""Parse the constraints that a target contains into rules."""

from __future__ import annotations

from autotune.errors import TargetErrorCollector
from autotune.space.expression import parse_comparison
from autotune.space.rules import Rule, RuleVocabulary
from autotune.target.messages import find_nearest_name, format_value
from autotune.target.read_target import TargetFile

CONSTRAINT_NAMES_HINT = (
    "constraints compare numbers: parameters, and facts such as `web.memory` or `count(web.hosts)`"
)


def parse_constraints(target_file: TargetFile, vocabulary: RuleVocabulary) -> list[Rule]:
    """Return the rules of all constraints. Raises one TargetError with all errors."""
    rules: list[Rule] = []
    mistakes = TargetErrorCollector()
    for index, rule_text in enumerate(target_file.target.constraints):
        with mistakes.collect():
            rules += parse_constraint(target_file, vocabulary, index, rule_text)
    mistakes.raise_all()
    return rules


def parse_constraint(
    target_file: TargetFile, vocabulary: RuleVocabulary, index: int, rule_text: str
) -> list[Rule]:
    """Return the rules of a constraint, one per combination of deployments. Raises TargetError."""
    location = ("constraints", index)
    try:
        rules = list(vocabulary.build_rules(parse_comparison(rule_text)))
    except ValueError as error:
        hint = getattr(error, "hint", None)
        raise target_file.document.build_error(location, str(error), hint=hint) from None
    except KeyError as error:
        unknown_name = str(error.args[0])
        nearest_name = find_nearest_name(unknown_name, vocabulary.known_names)
        hint = f"did you mean {nearest_name!r}?" if nearest_name else CONSTRAINT_NAMES_HINT
        raise target_file.document.build_error(
            location, f"unknown name {unknown_name!r}", hint=hint
        ) from None
    if not any(vocabulary.names_parameter(rule) for rule in rules):
        message = f"{format_value(rule_text)} contains no parameter"
        hint = "name a parameter, such as `TIER.SERVICE.PARAMETER <= 64`, or remove it"
        raise target_file.document.build_error(location, message, hint=hint)
    for rule in rules:
        if mistake := vocabulary.find_mistake(rule):
            message, hint = mistake
            raise target_file.document.build_error(location, message, hint=hint)
    return rules
