"""`autotune workload`: files of weighted requests for `load: {requests: FILE}`."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune import durable_files
from autotune.cli.help import CommandWithExamples
from autotune.cli.options import JsonOption
from autotune.cli.output_files import check_new_file
from autotune.errors import UsageError
from autotune.exit_handling import print_mistake
from autotune.target.messages import format_count
from autotune.terminal import echo, print_json

if TYPE_CHECKING:
    from autotune.loads.access_logs.log_files import ReadProgress
    from autotune.loads.access_logs.recorded_requests import RecordedRequests

_PROGRESS_SECONDS = 2.0
app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Create a list of weighted requests.",
)


@app.callback()
def _handle_root_options() -> None:
    pass


LogsArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="LOG",
        help="Access logs as text or JSON, optionally compressed. `-` is standard input.",
        show_default=False,
    ),
]
WorkloadOutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="FILE",
        help="File to write. [default: standard output]",
        callback=check_new_file,
    ),
]
ExcludeOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATTERN",
        help="Leave out a path, client address or user agent, such as '/admin/*'. Repeatable.",
    ),
]
UnsafeOption = Annotated[
    bool, typer.Option("--unsafe", help="Keep POST and other methods that may change data.")
]


@app.command("from-log", cls=CommandWithExamples)
def from_log(
    logs: LogsArgument,
    out: WorkloadOutOption = None,
    exclude: ExcludeOption = None,
    unsafe: UnsafeOption = False,
    json_: JsonOption = False,
) -> None:
    """Convert access logs to a list of weighted requests.

    Skips health checks, crawlers and unsafe methods. Masks secrets.
    """
    from autotune.loads.access_logs import log_files, recorded_requests

    if len({*logs}) < len(logs):
        duplicate_log = next(log for log in logs if logs.count(log) > 1)
        raise UsageError(f"{duplicate_log} is given twice", hint="name each log once")
    # The output file lists the patterns as comments.
    if invalid := next((pattern for pattern in exclude or () if not pattern.isprintable()), None):
        raise UsageError(
            f"--exclude {invalid!r}: contains a control character, or bytes that are not UTF-8",
            hint="write `?` for each such character",
        )
    listener = _build_progress_listener()
    logged_requests = recorded_requests.record_requests(
        {log: log_files.read_lines(log, listener) for log in logs},
        recorded_requests.RequestFilter(keep_unsafe=unsafe, exclude=tuple(exclude or ())),
    )
    log_names = [log_files.describe_path(log) for log in logs]
    if not logged_requests.used_count:
        raise recorded_requests.build_unusable_error(logged_requests, log_names)
    _warn_of_other_files(logged_requests.logs_without_requests)
    _print_result(logged_requests, [Path(name).name for name in log_names], out, json_=json_)


def _warn_of_other_files(logs: list[Path]) -> None:
    """Print a warning for each of ``logs``, which contain no request. Without quotes, a shell replaces a
    pattern by the names of files.
    """
    from autotune.loads.access_logs import log_files

    for log_name in map(log_files.describe_path, logs):
        warning = UsageError(
            f"{log_name} contains no request",
            hint="name only access logs, and put patterns in quotes: --exclude '/admin/*'",
        )
        print_mistake(warning, "warning: ")


def _build_progress_listener() -> Callable[[ReadProgress], None]:
    """Return a listener that prints the progress in all logs every few seconds on standard error."""
    last_time = time.monotonic()
    line_counts: dict[str, int] = {}

    def print_progress(progress: ReadProgress) -> None:
        nonlocal last_time
        line_counts[progress.name] = progress.line_count
        if time.monotonic() - last_time >= _PROGRESS_SECONDS:
            last_time = time.monotonic()
            share = "" if progress.share is None else f", {progress.share:.0%} of {progress.name}"
            line_count = sum(line_counts.values())
            echo(f"{line_count:,} lines read{share}", err=True)

    return print_progress


def _print_result(
    recorded_requests: RecordedRequests, log_names: list[str], out: Path | None, *, json_: bool
) -> None:
    """Write the list of requests, and print a summary."""
    request_file_text = recorded_requests.format_request_file(log_names)
    if out is not None:
        durable_files.create_file(out, request_file_text.encode())
    if json_:
        print_json(
            {
                "schema": 1,
                "requests": recorded_requests.used_count,
                "pages": len(recorded_requests.requests),
                "coverage": recorded_requests.coverage,
                "masked": recorded_requests.masked_count,
                "left_out": dict(recorded_requests.skipped),
                "out": None if out is None else str(out),
            }
        )
        return
    if out is None:
        echo(request_file_text, end="")
    pages = format_count(len(recorded_requests.requests), "page")
    echo(f"{format_count(recorded_requests.used_count, 'request')} for {pages}", err=True)
    for line in recorded_requests.describe_sample():
        echo(line, err=True)
    if recorded_requests.masked_count:
        echo(
            f"{recorded_requests.masked_count} × masked, because a value looked like a secret",
            err=True,
        )
    for line in recorded_requests.describe_skipped():
        echo(f"left out: {line}", err=True)
    if out is not None:
        echo(f"wrote {out}; use it in a target as `load: {{requests: {out.name}}}`", err=True)
