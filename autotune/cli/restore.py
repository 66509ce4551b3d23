"""`autotune restore`: hosts as they were found."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli import completion
from autotune.cli.options import STUDIES, Studies
from autotune.terminal import echo


def restore(
    what: Annotated[
        str,
        typer.Argument(
            help="A target file or a study.",
            show_default=False,
            autocompletion=completion.targets_and_studies,
        ),
    ],
    studies: Studies = STUDIES,
) -> None:
    """Put back whatever a killed study has left: hosts as they were found, private servers ended."""
    from autotune.study import restore as restores
    from autotune.study.directory import find

    path = Path(what)
    if path.is_file():
        lines = restores.restore_target(path, studies)
    else:
        lines = restores.restore_study(find(what, studies))
    for line in lines or [f"{what}: nothing was left behind"]:
        echo(line)
