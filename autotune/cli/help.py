"""Format `--help`: groups of commands, examples, exit statuses, and a uniform style of names."""

from __future__ import annotations

import copy
import itertools
import os
import re
import shlex
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.exceptions import TyperException

from autotune import errors
from autotune.errors import UsageError
from autotune.exit_handling import ARGUMENTS_KEY, print_mistake

if TYPE_CHECKING:
    from typer._click.core import Context, Parameter
    from typer._click.formatting import HelpFormatter

TYPE_PATTERN = re.compile(r" <[^>]*>$")
QUOTES_PATTERN = re.compile("[“”„‟«»‘’]")
QUOTED_PATTERN = re.compile("(?:^|=)[“”„‟«»‘’]")
RANGE_PATTERN = re.compile(r"(\d+)<=x<=(\d+)")
UNEXPANDED_PATTERN = re.compile(r"(~|\$HOME|\$\{HOME\}|\$PWD|\$\{PWD\})/")
PATH_METAVARS = ("DIR", "FILE", "PATH", "EXPORT", "REFERENCE", "STUDY")
MINIMUM_PATTERN = re.compile(r"x>=(\d+)")
BENCHMARK_VARIABLES = ("AUTOTUNE_STUDY", "AUTOTUNE_TRIAL")  # set for benchmark commands
COMMAND_GROUPS: Mapping[str, tuple[str, ...]] = {
    "Set up": ("init", "check", "params", "workload", "lab"),
    "Tune": ("plan", "run", "worker", "resume", "measure", "sweep"),
    "Inspect": ("status", "report", "diff", "explain", "schema"),
    "Apply": ("export", "apply", "restore"),
}
EXIT_CODE_TEXTS = ", ".join(f"{status.code} {status.when}" for status in errors.EXIT_CODES) + "."
EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "autotune": (
        "autotune init --example paper && autotune run targets/paper.yaml --yes",
        "autotune report paper --open",
    ),
    "init": ("autotune init --example local", "autotune init --from root@web1,root@lb1"),
    "check": ("autotune check targets/local.yaml",),
    "plan": ("autotune plan targets/local.yaml",),
    "params": ("autotune params | less",),
    "run": (
        "autotune run targets/local.yaml",
        "autotune run targets/local.yaml --yes --time 15m --quiet --log-file run.log",
    ),
    "worker": (
        "autotune worker targets/shop.yaml --bed c --storage postgresql://tuner@db1.example.org/tuning",
    ),
    "resume": ("autotune resume local",),
    "measure": (
        "autotune measure targets/local.yaml --repeat 3",
        "autotune measure targets/local.yaml --at-least 1200/s --exit-code",
    ),
    "status": ("autotune status local --watch",),
    "report": ("autotune report local --open", "autotune report local --at 800/s"),
    "diff": ("autotune diff local baseline best",),
    "explain": ("autotune explain local --measure",),
    "schema": ("autotune schema study > study.schema.json",),
    "export": ("autotune export local --format ansible --out winner",),
    "apply": ("autotune apply winner targets/local.yaml",),
    "restore": ("autotune restore local",),
    "sweep": ("autotune sweep targets/local.yaml --over web.php_fpm.max_children=5,10,20 --peak",),
    "workload from-log": ("autotune workload from-log access.log --out shop.requests.yaml",),
    "lab up": ("autotune lab up targets/lab.yaml",),
    "lab status": ("autotune lab status targets/lab.yaml",),
    "lab down": ("autotune lab down targets/lab.yaml",),
}


class CommandWithExamples(TyperCommand):
    """A command whose help contains examples, and shows arguments and values in capitals."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Parse the arguments. Raises UsageError for an empty one, which could select a default."""
        ctx.meta[ARGUMENTS_KEY] = tuple(args)
        if not ctx.resilient_parsing and not ctx.ignore_unknown_options:
            options = [p for p in self.get_params(ctx) if p.param_type_name == "option"]
            value_options = {
                name: option
                for option in options
                if not getattr(option, "is_flag", False)
                for name in option.opts
            }
            option_names = {name for option in options for name in option.opts}
            _reject_empty_arguments(args, value_options)
            _reject_misplaced_values(args, value_options, option_names)
            _reject_unexpanded_paths(args, value_options)
            _warn_of_variables(option_names, os.environ)
        try:
            if not ctx.resilient_parsing:
                _reject_repeated_options(self._list_option_values(ctx, args))
            return super().parse_args(ctx, args)
        except TyperException as error:
            # Typer omits it if an option is given without its value
            if getattr(error, "ctx", ctx) is None:
                error.ctx = ctx  # type: ignore[attr-defined]
            raise

    def _list_option_values(
        self, ctx: Context, args: list[str]
    ) -> list[tuple[Parameter, list[str]]]:
        """Return the options that take one value, each with all its values in ``args``."""
        parser, parameters = self.make_parser(ctx), []
        for parameter in self.get_params(ctx):
            if isinstance(parameter, TyperOption) and not (parameter.is_flag or parameter.multiple):
                repeatable_parameter = copy.copy(parameter)
                repeatable_parameter.multiple = True
                repeatable_parameter.add_to_parser(parser, ctx)
                parameters.append(parameter)
        values_by_name, _, _ = parser.parse_args(list(args))
        return [(parameter, values_by_name.get(parameter.name, [])) for parameter in parameters]

    def collect_usage_pieces(self, ctx: Context) -> list[str]:
        """Return the usage line without braces around required arguments."""
        return [
            piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)
        ]

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write arguments without their Python types, and ranges as text."""
        records: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            if help_record := parameter.get_help_record(ctx):
                name, help_text = help_record
                is_argument = parameter.param_type_name == "argument"
                name = TYPE_PATTERN.sub("", name) if is_argument else name
                records["Arguments" if is_argument else "Options"].append(
                    (name, _format_ranges(help_text))
                )
        for section_title, help_rows in records.items():
            if help_rows:
                with formatter.section(section_title):
                    formatter.write_dl(help_rows)

    def format_epilog(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the examples without wrapping."""
        _write_examples(ctx.command_path.partition(" ")[2], formatter)


class GroupedCommands(TyperGroup):
    """A list of commands in groups, with the full summary of each command."""

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write a section for each group of commands, in the order in which a new user needs them."""
        for group_title, names in COMMAND_GROUPS.items():
            with formatter.section(group_title):
                formatter.write_dl(
                    [(name, _format_summary(self.commands[name].help)) for name in names]
                )

    def format_epilog(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the examples and the exit statuses."""
        _write_examples("autotune", formatter)
        with formatter.section("Exit codes"):
            formatter.write_text(EXIT_CODE_TEXTS.replace("`", ""))


def _reject_empty_arguments(arguments: Sequence[str], value_options: Container[str]) -> None:
    """Raise UsageError for an empty argument, or an empty value of one of ``value_options``."""
    for previous, argument in itertools.pairwise(("", *arguments)):
        if argument == "" and previous in value_options:
            subject = f"the value of {previous} is empty"
        elif argument == "":
            subject = "an argument is empty"
        elif argument.startswith("--") and argument.endswith("=") and argument.count("=") == 1:
            subject = f"the value of {argument[:-1]} is empty"
        else:
            continue
        raise UsageError(
            subject,
            hint="give a value, without a space before it; an unset shell variable may be the cause",
        )


def _reject_misplaced_values(
    arguments: Sequence[str], value_options: Mapping[str, Parameter], option_names: Container[str]
) -> None:
    """Raise UsageError for a value that is another option, starts after ` = `, or is in the quotes of
    a web page.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    for previous, argument in itertools.pairwise(("", *arguments[:end])):
        parameter = value_options.get(previous)
        metavar = (parameter.metavar if parameter else None) or "VALUE"
        if parameter is not None and argument.partition("=")[0] in option_names:
            raise UsageError(
                f"the value of {previous} is missing: {argument} is another option",
                hint=f"write `{previous} {metavar}`, or omit {previous}",
            )
        if parameter is not None and argument.startswith("=") and "=" not in metavar:
            raise UsageError(
                f"{previous}: a space before `=`",
                hint=f"write `{previous}={metavar}`, without spaces",
            )
        # A URL may contain a password.
        if QUOTED_PATTERN.search(argument) and "://" not in argument:
            raise UsageError(
                f"{argument}: typographic quotes are part of this argument",
                hint=f"write {QUOTES_PATTERN.sub('', argument)}, or use plain quotes",
            )


def _reject_unexpanded_paths(
    arguments: Sequence[str], value_options: Mapping[str, Parameter]
) -> None:
    """Raise UsageError for a path that starts with `~` or `$HOME`, which the shell did not expand."""
    for previous, argument in itertools.pairwise(("", *arguments)):
        option, equals, value = argument.partition("=")
        if not (argument.startswith("--") and equals):
            option, value = previous, argument
        parameter = value_options.get(option)
        is_path = parameter is None or parameter.metavar in PATH_METAVARS
        if is_path and (prefix := UNEXPANDED_PATTERN.match(value)):
            path = os.path.expandvars(os.path.expanduser(value))  # noqa: PTH111  # keeps other text
            word = argument.removesuffix(value) + shlex.quote(path)
            raise UsageError(
                f"{argument}: the shell did not expand {prefix[1]!r}",
                hint=f"write {word}" + (", or omit the quotes" if value == argument else ""),
            )


def _warn_of_variables(option_names: Iterable[str], environment: Mapping[str, str]) -> None:
    """Print a warning for each environment variable with the name of an option, which has no effect."""
    for option in sorted(option_names):
        variable = f"AUTOTUNE_{option.lstrip('-').replace('-', '_').upper()}"
        if variable in environment and variable not in BENCHMARK_VARIABLES:
            print_mistake(
                UsageError(
                    f"{variable} has no effect: autotune has no variable for this option",
                    hint=f"use {option}, and unset {variable}",
                ),
                "warning: ",
            )


def _reject_repeated_options(option_values: Iterable[tuple[Parameter, Sequence[str]]]) -> None:
    """Raise UsageError for an option with two values, because only the last one would count."""
    for parameter, values in option_values:
        distinct_values = list(dict.fromkeys(values))
        if len(distinct_values) < 2:
            continue
        option = parameter.opts[0]
        # A URL may contain a password.
        words = "two values" if "://" in "".join(values) else " and ".join(distinct_values)
        if (parameter.metavar or "").endswith(",…"):
            raise UsageError(
                f"{option} is given more than once: {words}",
                hint=f"separate the values with commas: `{option} {','.join(distinct_values)}`",
            )
        raise UsageError(
            f"{option} is given more than once: {words}", hint=f"give {option} only once"
        )


def _format_ranges(help_text: str) -> str:
    """Replace ranges of numbers by words: `x>=10` becomes "at least 10"."""
    return MINIMUM_PATTERN.sub(r"at least \1", RANGE_PATTERN.sub(r"from \1 to \2", help_text))


def _format_summary(help_text: str | None) -> str:
    return " ".join((help_text or "").split("\n\n")[0].split()).rstrip(".")


def _write_examples(command_name: str, formatter: HelpFormatter) -> None:
    if command_name in EXAMPLES:
        with formatter.section("Examples"):
            for example in EXAMPLES[command_name]:
                formatter.write(f"{'':{formatter.current_indent}}{example}\n")
