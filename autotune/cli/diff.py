"""`autotune diff`: compare two configurations."""

from __future__ import annotations

from typing import Annotated

import typer

from autotune.cli import completion
from autotune.cli.options import STUDIES, Studies, StudyName
from autotune.terminal import show_patch


def diff(
    study: StudyName,
    a: Annotated[
        str,
        typer.Argument(
            help="A trial: its number, `baseline` or `best`.", autocompletion=completion.trials
        ),
    ] = "baseline",
    b: Annotated[
        str, typer.Argument(help="The trial to compare it with.", autocompletion=completion.trials)
    ] = "best",
    parameters: Annotated[
        bool, typer.Option("--parameters", help="Compare the settings, not the files.")
    ] = False,
    studies: Studies = STUDIES,
) -> None:
    """Diff two configurations of a study, file by file."""
    from autotune.report.diff import diff_lines, diff_text
    from autotune.report.studies import open_study
    from autotune.study.directory import find

    opened = open_study(find(study, studies))
    show_patch(diff_lines(diff_text(opened, a, b, parameters=parameters)))
