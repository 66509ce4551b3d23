"""`autotune plan`: what a run would do."""

from __future__ import annotations

from typing import Annotated

import typer

from autotune import errors
from autotune.cli.options import Json, TargetPath
from autotune.cli.output import print_json
from autotune.cli.session import prepared
from autotune.terminal import echo


def plan(
    target: TargetPath,
    json_: Json = False,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="End with 6 when a run would change anything.")
    ] = False,
) -> None:
    """Show what a run would do: files, restarts, memory, load and time. Changes nothing."""
    from autotune.study.plan import plan as plans
    from autotune.study.plan import text

    planned = plans(prepared(target))
    if json_:
        print_json(planned)
    else:
        echo(text(planned))
    if exit_code and planned["diff"]:
        raise typer.Exit(errors.CHANGES_PRESENT)
