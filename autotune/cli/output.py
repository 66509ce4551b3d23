"""Print the results of commands as JSON, CSV, HTML or text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from autotune import errors
from autotune.errors import UsageError
from autotune.terminal import echo, find_terminal_width, print_json, print_lines, wrap_lines


def print_study(
    directory: Path,
    *,
    json_: bool,
    exit_code: bool,
    rates: Sequence[float] = (),
    brief: bool = False,
) -> None:
    """Print the report of a study. With ``exit_code``, exit with status 4 if no improvement is proven.

    ``rates`` lists the rates (requests/s) at which to print the latencies of the baseline and the best
    configuration. With ``brief``, print only the verdict, within 80 columns.
    """
    from autotune.report.studies import open_study
    from autotune.report.summary import build_latency_at_rate, build_summary
    from autotune.report.text_report import (
        format_brief_lines,
        format_latency_lines,
        format_report_lines,
    )
    from autotune.report.view import build_study_view

    view = build_study_view(open_study(directory))
    if rates and view.target.command is not None:
        raise UsageError(
            f"--at applies only to a stack, and study {view.name} tunes a command", hint="omit --at"
        )
    if json_:
        latency_fields = (
            {"at": [build_latency_at_rate(view, rate) for rate in rates]} if rates else {}
        )
        print_json(build_summary(view) | latency_fields)
    else:
        lines = format_brief_lines(view) if brief else format_report_lines(view)
        width = find_terminal_width(80) if brief else find_terminal_width()
        print_lines(
            wrap_lines(
                [*lines, *(line for rate in rates for line in format_latency_lines(view, rate))],
                width,
            )
        )
    if exit_code and view.verdict != "improved":
        raise typer.Exit(errors.NOT_IMPROVED_EXIT_CODE)


def print_csv(directory: Path, table_name: str) -> None:
    """Print a table of a study as CSV. Raises UsageError."""
    from autotune.report.csv_and_metrics import TABLE_NAMES, format_csv
    from autotune.report.studies import open_study
    from autotune.report.view import build_study_view
    from autotune.target.messages import suggest_name

    if table_name not in TABLE_NAMES:
        raise UsageError(
            f"--csv: unknown table {table_name!r}", hint=suggest_name(table_name, TABLE_NAMES)
        )
    echo(format_csv(build_study_view(open_study(directory)), table_name), end="")


def print_sweep(directory: Path, html: Path | None, *, json_: bool) -> None:
    """Print the current results of a sweep. If ``html`` is given, write plots to this file."""
    from autotune.sweep import output, results

    sweep = results.load_results(directory)
    if html is not None:
        echo(f"wrote {output.write_page(sweep, html)}", err=True)
    if json_:
        print_json(output.build_sweep_json(sweep))
    else:
        echo(output.format_sweep(sweep), end="")
