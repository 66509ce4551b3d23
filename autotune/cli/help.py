"""Format `--help`: groups of commands, examples, exit statuses, and a uniform style of names."""

from __future__ import annotations

import itertools
import re
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING

from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from autotune import errors
from autotune.errors import UsageError

if TYPE_CHECKING:
    from typer._click.core import Context
    from typer._click.formatting import HelpFormatter

TYPE_PATTERN = re.compile(r" <[^>]*>$")
RANGE_PATTERN = re.compile(r"(\d+)<=x<=(\d+)")
MINIMUM_PATTERN = re.compile(r"x>=(\d+)")
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
        if not ctx.resilient_parsing and not ctx.ignore_unknown_options:
            value_options = {
                option
                for parameter in self.get_params(ctx)
                if parameter.param_type_name == "option"
                and not getattr(parameter, "is_flag", False)
                for option in parameter.opts
            }
            _reject_empty_arguments(args, value_options)
        try:
            return super().parse_args(ctx, args)
        except TyperException as error:
            # Typer omits it if an option is given without its value
            if getattr(error, "ctx", ctx) is None:
                error.ctx = ctx  # type: ignore[attr-defined]
            raise

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
        raise UsageError(subject, hint="give a value; an unset shell variable may be the cause")


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
