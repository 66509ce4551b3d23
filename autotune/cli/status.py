"""`autotune status`: where studies stand."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli import completion
from autotune.cli.options import STUDIES, Json, Studies
from autotune.cli.output import print_json
from autotune.errors import AutotuneError
from autotune.terminal import echo

if TYPE_CHECKING:
    from autotune.report.studies import Study


def status(
    study: Annotated[
        str | None,
        typer.Argument(help="A study; all of them without one.", autocompletion=completion.studies),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Follow until finished.")] = False,
    json_: Json = False,
    studies: Studies = STUDIES,
) -> None:
    """Where a study stands, also while it runs."""
    from autotune.report import status as statuses
    from autotune.report.studies import open_study
    from autotune.report.view import study_view
    from autotune.study.directory import find

    if watch:
        _watch(study, studies, json_=json_)
        return
    opened = [open_study(find(study, studies))] if study else _readable(studies)
    views = [study_view(each) for each in opened]
    if json_:
        print_json({"schema": 1, "studies": [statuses.status(view) for view in views]})
        return
    if not views:
        echo(f"no studies in {studies}: `autotune run TARGET` makes one", err=True)
    for view in views:
        echo(statuses.render_status(view))


def _readable(root: Path) -> Iterator[Study]:
    """All studies but the damaged ones, of which it is told."""
    from autotune.report.studies import open_study
    from autotune.study.directory import names

    for name in names(root):
        try:
            yield open_study(root / name)
        except AutotuneError as error:
            echo(f"{name}: {error.message}", err=True)


def _watch(study: str | None, studies: Path, *, json_: bool) -> None:
    from autotune.report.status import watch
    from autotune.study.directory import find

    if study is None or json_:
        raise AutotuneError("--watch follows one study, for people", hint="status STUDY --watch")
    watch(find(study, studies), sys.stdout)
