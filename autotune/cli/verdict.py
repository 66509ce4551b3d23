"""What a study or a sweep has found, printed."""

from __future__ import annotations

from pathlib import Path

import typer

from autotune import errors
from autotune.cli.output import coloured, print_json


def tell(directory: Path, *, json_: bool, exit_code: bool) -> None:
    """The verdict of a study and what stands behind it; with ``exit_code``, also as the way to end."""
    from autotune.report.studies import open_study
    from autotune.report.summary import summary
    from autotune.report.text import render_text

    study = open_study(directory)
    found = summary(study.name, study.target, study.state, study.tallies)
    if json_:
        print_json(found)
    else:
        typer.echo(
            render_text(found, study.target, study.state, study.tallies, colour=coloured()),
            nl=False,
        )
    if exit_code and found["verdict"] != "improved":
        raise typer.Exit(errors.NOT_IMPROVED)


def tell_sweep(directory: Path, html: Path | None, *, json_: bool) -> None:
    """What a sweep has found so far; drawn into ``html`` if that is named."""
    from autotune.sweep import page, results, text

    found = results.found(directory)
    if html is not None:
        typer.echo(f"wrote {page.write(found, html)}", err=True)
    if json_:
        print_json(text.document(found))
    else:
        typer.echo(text.render(found), nl=False)
