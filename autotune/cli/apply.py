"""`autotune apply`: an exported configuration on a target's hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.options import STUDIES, Json, Studies, TargetPath, Yes
from autotune.cli.output import print_json
from autotune.cli.prompt import confirm
from autotune.cli.session import prepared, reporting
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
    from autotune.study.directory import new_directory

    environment = prepared(target)
    settings = applying.settings_of(environment, export_)
    confirm(f"{len(settings)} settings go to {', '.join(environment.file.target.hosts)}.", yes=yes)
    directory = new_directory(studies, f"{environment.file.target.name}-applied")
    with reporting(environment, directory, verbose=False) as progress:
        deployed = applying.apply(environment, settings, directory, progress)
    if json_:
        actions = {part: action.name.lower() for part, action in deployed.actions.items()}
        differing = [str(difference) for difference in deployed.differences]
        print_json(
            {"schema": 1, "study": directory.name, "actions": actions, "differences": differing}
        )
    else:
        echo(applying.text(deployed, directory))
