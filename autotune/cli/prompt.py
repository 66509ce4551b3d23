"""Ask for confirmation before anything is loaded or changed."""

from __future__ import annotations

import sys

import typer

from autotune import errors
from autotune.errors import AutotuneError
from autotune.terminal import echo


def confirm(what: str, *, yes: bool) -> None:
    """Say what is about to be done and ask whether to. Raises AutotuneError, Exit."""
    echo(what, err=True)
    if yes:
        return
    if not sys.stdin.isatty():
        raise AutotuneError(
            "refusing to continue without confirmation (stdin is not a terminal)", hint="pass --yes"
        )
    if not typer.confirm("Go ahead?", err=True):
        raise typer.Exit(errors.OPERATIONAL)
