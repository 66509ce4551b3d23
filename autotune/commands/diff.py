"""`autotune diff`: what two trials have different."""

from __future__ import annotations

from typing import Annotated

import typer

from autotune.commands.options import STUDIES, Studies, StudyName
from autotune.commands.output import coloured


def diff(
    study: StudyName,
    a: Annotated[
        str, typer.Argument(help="A trial: its number, `baseline` or `best`.")
    ] = "baseline",
    b: Annotated[str, typer.Argument(help="The trial to compare it with.")] = "best",
    parameters: Annotated[
        bool, typer.Option("--parameters", help="Compare the settings, not the files.")
    ] = False,
    studies: Studies = STUDIES,
) -> None:
    """What two configurations of a study have different, file by file."""
    from autotune.report.diff import diff_text
    from autotune.report.studies import find, open_study

    opened = open_study(find(study, studies))
    typer.echo(diff_text(opened, a, b, parameters=parameters, colour=coloured()), nl=False)
