"""`autotune report`: what came of a study or a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.options import STUDIES, Json, Studies, StudyName
from autotune.cli.output import print_study, print_sweep
from autotune.errors import AutotuneError
from autotune.terminal import echo


def report(
    study: StudyName,
    html: Annotated[
        Path | None, typer.Option(help="Write the report as one HTML file that needs no network.")
    ] = None,
    open_: Annotated[
        bool, typer.Option("--open", help="Open the HTML report (STUDY/report.html).")
    ] = False,
    json_: Json = False,
    studies: Studies = STUDIES,
) -> None:
    """The verdict of a study and what stands behind it; of a sweep, its figures."""
    from autotune.study.directory import find
    from autotune.sweep.plan import is_sweep

    directory = find(study, studies)
    if is_sweep(directory):
        print_sweep(directory, html, json_=json_)
        return
    if html or open_:
        _html(directory, html or directory / "report.html", shown=open_)
    if json_ or not html:
        print_study(directory, json_=json_, exit_code=False)


def _html(directory: Path, path: Path, *, shown: bool) -> None:
    from autotune.report.page import write_page
    from autotune.report.studies import open_study

    echo(f"wrote {write_page(open_study(directory), path)}", err=True)
    if shown and typer.launch(path.resolve().as_uri()):
        raise AutotuneError("no browser could be opened", hint=f"open {path} yourself")
