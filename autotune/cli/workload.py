"""`autotune workload`: what users ask for, as a file that a target's `load: {requests: …}` names."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.options import Json
from autotune.cli.output import print_json
from autotune.errors import AutotuneError
from autotune.target.messages import plural
from autotune.terminal import echo

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="What users ask for, as a file of weighted requests.",
)


@app.callback()
def _root() -> None:
    pass


@app.command("from-log")
def from_log(
    log: Annotated[
        Path,
        typer.Argument(
            metavar="LOG",
            help="A web server's access log, in combined or common format; also .gz.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="The file to write (standard output).")
    ] = None,
    unsafe: Annotated[
        bool, typer.Option("--unsafe", help="Keep POST and other methods that may change data.")
    ] = False,
    json_: Json = False,
) -> None:
    """Write what a log's users asked for, by how often, without what may change data or be secret."""
    from autotune.loads import access_log

    if out is not None and out.exists():
        raise AutotuneError(f"{out} exists already", hint="name another file with --out")
    try:
        with (
            gzip.open(log, "rt", errors="replace")
            if log.suffix == ".gz"
            else log.open(errors="replace") as lines
        ):
            recorded = access_log.read(lines, unsafe=unsafe)
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or error
        raise AutotuneError(f"{log}: cannot be read: {why}") from error
    left_out = list(recorded.account())
    if not recorded.requests:
        raise AutotuneError(
            "\n".join([f"{log}: no request that could be sent again", *left_out]),
            hint="the web server has to write it in combined or common format",
        )
    if out is not None:
        out.write_text(recorded.text(log.name), encoding="utf-8")
    if json_:
        print_json({
            "schema": 1, "requests": recorded.used, "pages": len(recorded.requests),
            "masked": recorded.masked, "left_out": dict(recorded.left_out),
            "out": None if out is None else str(out),
        })  # fmt: skip
        return
    if out is None:
        echo(recorded.text(log.name), end="")
    pages = plural(len(recorded.requests), "page")
    echo(f"{plural(recorded.used, 'request')} for {pages}", err=True)
    if recorded.masked:
        echo(f"{recorded.masked} × masked: a value looks like a secret", err=True)
    for line in left_out:
        echo(f"left out: {line}", err=True)
    if out is not None:
        echo(f"wrote {out}; a target takes it as `load: {{requests: {out.name}}}`", err=True)
