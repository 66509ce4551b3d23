"""`autotune explain`: why the winner wins."""

from __future__ import annotations

from typing import Annotated

import typer

from autotune.cli.options import STUDIES, Json, Studies, StudyName, Verbose, Yes
from autotune.cli.output import print_json
from autotune.cli.prompt import confirm
from autotune.cli.session import reporting
from autotune.terminal import echo


def explain(
    study: StudyName,
    measure: Annotated[
        bool, typer.Option("--measure", help="Spend measurements on the smallest set of changes.")
    ] = False,
    most: Annotated[int, typer.Option(min=10, help="Measurements that may be spent.")] = 60,
    yes: Yes = False,
    json_: Json = False,
    verbose: Verbose = False,
    studies: Studies = STUDIES,
) -> None:
    """Why the winner wins: what matters, what depends on what, which changes carry the gain."""
    from autotune.study import explaining, start
    from autotune.study.directory import find

    directory = find(study, studies)
    environment = start.finished(directory)
    if measure:
        confirm(environment.announce(), yes=yes)
        with reporting(environment, directory, verbose=verbose) as progress:
            explaining.reduce(environment, directory, progress, most)
    found = explaining.explain(environment, directory)
    if json_:
        print_json(found)
    else:
        echo(explaining.text(found))
