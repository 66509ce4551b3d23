"""Warnings of a target with `command:`: its program, its arguments and its value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath

from autotune.target.consistency_checks import TargetMistake
from autotune.target.model import ParameterRule, Target
from autotune.target.quantities import parse_magnitude
from autotune.target.read_target import TargetFile
from autotune.target.yaml_document import Location

SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "fish", "env")
SHELL_MARKS = frozenset({">", ">>", "<", "|", "||", "&&", "&", ";", "2>&1", "2>/dev/null"})
SCRIPT_SUFFIXES = (".py", ".sh", ".js", ".rb", ".pl", ".php", ".lua")
# Words in the names of values, by the usual direction of such values
SMALL_WORDS = frozenset(
    [
        "latency",
        "latencies",
        "seconds",
        "second",
        "ms",
        "time",
        "duration",
        "error",
        "errors",
        "cost",
        "delay",
        "p50",
        "p95",
        "p99",
        "misses",
    ]
)
LARGE_WORDS = frozenset(
    [
        "throughput",
        "rate",
        "rows",
        "ops",
        "qps",
        "tps",
        "rps",
        "requests",
        "score",
        "hits",
        "bandwidth",
        "iops",
        "speed",
    ]
)
WIDE_RANGE = 1000  # above this quotient, a linear scale hardly tries the lower values


def find_command_doubts(file: TargetFile) -> Iterator[TargetMistake]:
    """Yield settings of a command that are valid, but probably mistakes."""
    target = file.target
    arguments = target.command or ()
    yield from find_shell_marks(("command",), arguments)
    yield from _find_missing_scripts(file.directory, arguments)
    yield from _find_placeholders(target, arguments)
    yield from _find_opposite_goal(target)
    for name, rule in target.parameters.items():
        yield from _find_rule_doubts(name, rule)
        for other_name, values in (rule.when or {}).items():
            choices = getattr(target.parameters.get(other_name), "choices", None)
            if choices and {*choices} <= {*values}:
                message = f"this condition always holds: it lists all choices of {other_name}"
                hint = f"list only the values that {name} needs, or remove the condition"
                yield TargetMistake(("parameters", name, "when", other_name), message, hint)


def find_shell_marks(location: Location, arguments: Iterable[str]) -> Iterator[TargetMistake]:
    """Yield marks of a shell in the arguments of a program that is not started in a shell."""
    program, *further_arguments = (*arguments, "")
    if PurePath(program).name in SHELLS:
        return
    for index, argument in enumerate(further_arguments, 1):
        if argument in SHELL_MARKS:
            message = f"{argument!r} is passed on as an argument, because no shell reads it"
            hint = 'remove it, or start a shell: `[sh, -c, "…"]`'
            yield TargetMistake((*location, index), message, hint)


def _find_missing_scripts(directory: Path, arguments: Iterable[str]) -> Iterator[TargetMistake]:
    """Yield the first script of an interpreter if the file does not exist."""
    for index, argument in enumerate(arguments):
        if index and argument.endswith(SCRIPT_SUFFIXES) and not argument.startswith("-"):
            if not (directory / argument).exists():
                message = f"file {argument!r} does not exist"
                hint = f"the path is relative to {directory}, the directory of this file"
                yield TargetMistake(("command", index), message, hint)
            return


def _find_placeholders(target: Target, arguments: Iterable[str]) -> Iterator[TargetMistake]:
    for index, argument in enumerate(arguments):
        names = re.findall(r"\{\{? ?([A-Za-z_]\w{0,60}) ?\}", argument)
        name = next((name for name in names if name in target.parameters), None)
        if name is not None and "{{" not in argument:
            message = f"'{{{name}}}' is passed on without being replaced"
            hint = "the program reads the parameters as JSON from its standard input"
            yield TargetMistake(("command", index), message, hint)


def _find_opposite_goal(target: Target) -> Iterator[TargetMistake]:
    goal = target.command_goal
    if goal is None:
        return
    key, other_key = ("maximize", "minimize") if goal.maximize else ("minimize", "maximize")
    words = set(re.split(r"[\W_]+", goal.name.lower()))
    is_rate = goal.name.endswith("/s") or (
        goal.unit.endswith(("/s", "/min")) and not words & SMALL_WORDS
    )
    is_small = bool(words & SMALL_WORDS) and not is_rate
    is_large = is_rate or (bool(words & LARGE_WORDS) and not words & SMALL_WORDS)
    if is_small if goal.maximize else is_large:
        size = "smaller" if goal.maximize else "larger"
        message = f"`{key}: {goal.name}`: a {size} value is usually better"
        yield TargetMistake((key,), message, f"write `{other_key}: {goal.name}`")


def _find_rule_doubts(name: str, rule: ParameterRule) -> Iterator[TargetMistake]:
    if rule.range is not None and not rule.log:
        low, high = (parse_magnitude(bound) for bound in rule.range)
        if low and high and low[0] == high[0] and 0 < low[1] * WIDE_RANGE <= high[1]:
            message = f"the range of {name} is wide on a linear scale, so few low values are tried"
            yield TargetMistake(("parameters", name, "range"), message, "add `log: true`")
    kinds = {isinstance(choice, str) for choice in rule.choices or ()}
    are_numbers = all(re.fullmatch(r"[0-9.]+", str(choice)) for choice in rule.choices or ())
    if len(kinds) > 1 and are_numbers:
        message = f"the choices of {name} mix numbers with numbers in quotes"
        yield TargetMistake(("parameters", name, "choices"), message, "omit the quotes")
