"""The command line: each command parses its options, calls other packages and prints.

Slow imports are inside the command that needs them.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from autotune import __version__, exit_handling
from autotune.cli import lab, workload
from autotune.cli.export import apply, export, restore
from autotune.cli.help import CommandWithExamples, GroupedCommands
from autotune.cli.measure import measure, sweep
from autotune.cli.run import resume, run
from autotune.cli.study_commands import diff, explain, report, schema, status
from autotune.cli.target_commands import check, init, params, plan
from autotune.cli.worker import worker
from autotune.standard_streams import prepare_streams
from autotune.terminal import echo
from autotune.transports import wait_notices

COMMANDS = (
    init, check, plan, run, worker, resume, params, status, report, diff, export, explain, apply,
    restore, measure, sweep, schema,
)  # fmt: skip

app = typer.Typer(
    cls=GroupedCommands,
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    help="Tune a multi-tier web stack for the highest load within its SLO.",
)
for command in COMMANDS:
    app.command(cls=CommandWithExamples)(command)
app.add_typer(workload.app, name="workload")
app.add_typer(lab.app, name="lab")


def _print_version(is_requested: bool) -> None:
    if is_requested:
        echo(f"autotune {__version__}")
        raise typer.Exit


@app.callback()
def _handle_root_options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command on the command line, and exit with its status."""
    # With few trials, more threads do not speed up the model, because threads busy-wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    prepare_streams()
    command = next((argument for argument in sys.argv[1:] if not argument.startswith("-")), "")
    with wait_notices.listening(lambda line: echo(line, err=True)):
        exit_status = exit_handling.run_command(
            lambda: app(standalone_mode=False), as_json="--json" in sys.argv, command=command
        )
    sys.exit(exit_status)
