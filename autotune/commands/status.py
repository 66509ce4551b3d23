"""`autotune status`: where studies stand."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from autotune.commands import completion
from autotune.commands.options import STUDIES, Json, Studies
from autotune.commands.output import print_json
from autotune.errors import AutotuneError


def status(
    study: Annotated[
        str | None,
        typer.Argument(help="A study; all of them without one.", autocompletion=completion.studies),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on saying how it stands until it is over.")
    ] = False,
    json_: Json = False,
    studies: Studies = STUDIES,
) -> None:
    """Where a study stands, also while it runs."""
    from autotune.report import status as statuses
    from autotune.report.studies import open_study
    from autotune.study.directory import find, names

    if watch:
        _watch(study, studies, json_=json_)
        return
    chosen = [find(study, studies)] if study else [studies / name for name in names(studies)]
    opened = [open_study(directory) for directory in chosen]
    if json_:
        print_json({"schema": 1, "studies": [statuses.status(one) for one in opened]})
        return
    if not opened:
        typer.echo(f"no studies in {studies}: `autotune run TARGET` makes one", err=True)
    for one in opened:
        typer.echo(statuses.render_status(one))


def _watch(study: str | None, studies: Path, *, json_: bool) -> None:
    from autotune.report.watching import watch
    from autotune.study.directory import find

    if study is None or json_:
        raise AutotuneError("--watch follows one study, for people", hint="status STUDY --watch")
    watch(find(study, studies), sys.stdout)
