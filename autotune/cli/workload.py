"""`autotune workload`: files of weighted requests for `load: {requests: FILE}`."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.help import CommandWithExamples
from autotune.cli.options import JsonOption
from autotune.cli.output import print_json
from autotune.errors import AutotuneError
from autotune.target.messages import format_count
from autotune.terminal import echo

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Create a list of weighted requests.",
)


@app.callback()
def _root() -> None:
    pass


@app.command("from-log", cls=CommandWithExamples)
def from_log(
    log: Annotated[
        Path,
        typer.Argument(
            metavar="LOG",
            help="Access log in combined or common format, optionally compressed (.gz).",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", metavar="FILE", help="File to write. [default: standard output]"
        ),
    ] = None,
    unsafe: Annotated[
        bool, typer.Option("--unsafe", help="Keep POST and other methods that may change data.")
    ] = False,
    json_: JsonOption = False,
) -> None:
    """Convert an access log to a list of weighted requests.

    Skips methods that may change data, and masks secrets.
    """
    from autotune.loads import access_log

    if out is not None and out.exists():
        raise AutotuneError(f"{out} already exists", hint="name another file with --out")
    try:
        with (
            gzip.open(log, "rt", errors="replace")
            if log.suffix == ".gz"
            else log.open(errors="replace") as lines
        ):
            recorded = access_log.parse_access_log(lines, keep_unsafe=unsafe)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise AutotuneError(f"cannot read {log}: {reason}") from error
    left_out = list(recorded.describe_skipped())
    if not recorded.requests:
        raise AutotuneError(
            "\n".join([f"{log} contains no usable request", *left_out]),
            hint="supported formats are combined and common",
        )
    if out is not None:
        out.write_text(recorded.format_request_file(log.name), encoding="utf-8")
    if json_:
        print_json({
            "schema": 1, "requests": recorded.used_count, "pages": len(recorded.requests),
            "masked": recorded.masked_count, "left_out": dict(recorded.skipped),
            "out": None if out is None else str(out),
        })  # fmt: skip
        return
    if out is None:
        echo(recorded.format_request_file(log.name), end="")
    pages = format_count(len(recorded.requests), "page")
    echo(f"{format_count(recorded.used_count, 'request')} for {pages}", err=True)
    if recorded.masked_count:
        echo(f"{recorded.masked_count} × masked, because a value looks like a secret", err=True)
    for line in left_out:
        echo(f"left out: {line}", err=True)
    if out is not None:
        echo(f"wrote {out}; use it in a target as `load: {{requests: {out.name}}}`", err=True)
