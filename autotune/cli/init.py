"""`autotune init`: a target file to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli import completion
from autotune.errors import AutotuneError
from autotune.terminal import echo


def init(
    example: Annotated[
        str | None,
        typer.Option(
            help="Which shipped target to start from (local).", autocompletion=completion.examples
        ),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="USER@HOST,…",
            help="Adopt what runs on these hosts: their own files become templates.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where to write it (targets/NAME.yaml).")] = None,
    ssh_config: Annotated[
        Path | None, typer.Option(help="With --from: an ssh_config in place of ~/.ssh/config.")
    ] = None,
    path: Annotated[
        str | None, typer.Option(help="With --from: what to request (/index.php or /).")
    ] = None,
) -> None:
    """Write a target file to start from: a shipped one, or one of a stack that runs already."""
    if from_ is not None:
        if example is not None:
            raise AutotuneError("--example and --from exclude each other", hint="give one of them")
        _adopt(from_, out, ssh_config, path)
        return
    from autotune.target.shipped import write_example

    example = example or "local"
    written = write_example(example, out or Path("targets") / f"{example}.yaml")
    echo(f"wrote {written}")
    echo(f"next: autotune check {written}", err=True)


def _adopt(hosts: str, out: Path | None, ssh_config: Path | None, path: str | None) -> None:
    from autotune.discovery.adopting import adopt

    written = adopt([host for host in hosts.split(",") if host.strip()], out, ssh_config, path)
    for line in written.tiers:
        echo(line)
    for line in written.notes:
        echo(f"  left as it is: {line}")
    echo(f"wrote {written.target} and {written.templates}: {written.parameters} parameters")
    echo(f"next: look it through, then autotune check {written.target}", err=True)
