"""The command line: its commands, gathered. What a command does lives in the rooms it calls.

Every import that costs time is inside the command that needs it.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from autotune import __version__, outcome
from autotune.commands import lab
from autotune.commands.apply import apply
from autotune.commands.check import check
from autotune.commands.diff import diff
from autotune.commands.explain import explain
from autotune.commands.export import export
from autotune.commands.init import init
from autotune.commands.measure import measure
from autotune.commands.params import params
from autotune.commands.plan import plan
from autotune.commands.report import report
from autotune.commands.restore import restore
from autotune.commands.run import resume, run
from autotune.commands.status import status
from autotune.commands.sweep import sweep

# In the order that `--help` lists them in.
COMMANDS = (
    init, check, plan, run, resume, params, status, report, diff, export, explain, apply, restore,
    measure, sweep,
)  # fmt: skip

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Finds the settings with which a whole stack carries the most load within its latency "
    "objective, proves the gain, and hands over the files.",
)
for command in COMMANDS:
    app.command()(command)
app.add_typer(lab.app, name="lab")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"autotune {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Entry point: every way to end has its exit code, and none is a traceback."""
    sys.exit(outcome.end(lambda: app(standalone_mode=False), as_json="--json" in sys.argv))
