"""`autotune check`: whether a target makes sense where it would run."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from autotune.cli.options import Json, TargetPath
from autotune.cli.output import print_json
from autotune.cli.session import prepared
from autotune.terminal import echo


def check(
    target: TargetPath,
    headroom: Annotated[
        bool,
        typer.Option(
            "--headroom", help="Also load a private server, to see what load can be made."
        ),
    ] = False,
    json_: Json = False,
) -> None:
    """Read, render and natively validate a target; changes nothing."""

    environment = prepared(target)
    found = environment.check()
    made = environment.headroom() if headroom else None
    if json_:
        print_json({"schema": 1, **asdict(found), "headroom": made})
        return
    if made:
        echo(f"  generator: {made}")
    for line in found.held:
        echo(f"✓ {line}")
    for line in found.left_out:
        echo(f"  left out: {line}")
    for line in found.not_checked:
        echo(f"  not checked: {line}")
