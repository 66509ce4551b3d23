"""`autotune export`: a configuration to take away."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli import completion
from autotune.cli.options import STUDIES, Studies, StudyName
from autotune.terminal import echo


def export(
    study: StudyName,
    out: Annotated[Path, typer.Option(help="A directory that is empty or not there yet.")],
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            help="files, ansible, shell, yaml or json.",
            autocompletion=completion.formats,
        ),
    ] = "files",
    trial: Annotated[
        str | None,
        typer.Option(
            help="Another trial than the winner, whatever it proved.",
            autocompletion=completion.trials,
        ),
    ] = None,
    minimal: Annotated[
        bool, typer.Option("--minimal", help="Only the changes that `explain --measure` kept.")
    ] = False,
    studies: Studies = STUDIES,
) -> None:
    """Write the winner's configuration, its diff against the baseline, and its provenance."""
    from autotune.export.write import minimal_trial, write_export
    from autotune.report.studies import open_study
    from autotune.study.directory import find

    opened = open_study(find(study, studies))
    chosen = minimal_trial(opened) if minimal else trial
    for path in write_export(opened, out, format_, chosen):
        echo(str(out / path))
