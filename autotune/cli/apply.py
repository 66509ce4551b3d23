"""`autotune apply`: an exported configuration on a target's hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.options import STUDIES, Json, Studies, TargetPath, Yes
from autotune.cli.output import print_json
from autotune.cli.prompt import confirm
from autotune.cli.session import narrated, prepared
from autotune.terminal import echo


def apply(
    export_: Annotated[
        Path, typer.Argument(metavar="EXPORT", help="What `autotune export` wrote.")
    ],
    target: TargetPath,
    yes: Yes = False,
    json_: Json = False,
    studies: Studies = STUDIES,
) -> None:
    """Put an exported configuration on a target's hosts, in one transaction."""
    from autotune.study import applying
    from autotune.study.directories import new_directory

    bed = prepared(target)
    settings = applying.wanted(bed, export_)
    confirm(f"{len(settings)} settings go to {', '.join(bed.file.target.hosts)}.", yes=yes)
    directory = new_directory(studies, f"{bed.file.target.name}-applied")
    with narrated(bed, directory, verbose=False) as narrator:
        deployed = applying.apply(bed, settings, directory, narrator)
    if json_:
        actions = {part: action.name.lower() for part, action in deployed.actions.items()}
        differing = [str(difference) for difference in deployed.differences]
        print_json(
            {"schema": 1, "study": directory.name, "actions": actions, "differences": differing}
        )
    else:
        echo(applying.text(deployed, directory))
