"""`autotune params`: what can be tuned."""

from __future__ import annotations

from typing import Annotated

import typer

from autotune.cli import completion
from autotune.cli.options import Json
from autotune.cli.output import print_json
from autotune.terminal import echo


def params(
    service: Annotated[
        str | None,
        typer.Argument(
            help="A service; all of them without one.", autocompletion=completion.services
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """The catalogue of parameters: meaning, unit, range, stock and recommended values, source."""
    from autotune.report.parameters import catalogue_json, catalogue_text

    if json_:
        print_json(catalogue_json(service))
    else:
        echo(catalogue_text(service), end="")
