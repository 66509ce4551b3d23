"""Results on standard output."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from autotune import errors
from autotune.errors import AutotuneError
from autotune.terminal import columns, echo, show, wrapped


def print_json(document: Any) -> None:
    """Print one object on one line."""
    text = json.dumps(document, ensure_ascii=False)
    # JSON may contain the control characters after ASCII, which some terminals obey.
    echo("".join(f"\\u{ord(c):04x}" if "\x7f" <= c <= "\x9f" else c for c in text))


def print_study(
    directory: Path,
    *,
    json_: bool,
    exit_code: bool,
    at: Sequence[float] = (),
    brief: bool = False,
) -> None:
    """Print the report of a study; with ``exit_code``, exit with status 4 without an improvement.

    ``at``: rates (requests/s) whose latency is printed, before and after. ``brief``: only the verdict,
    within 80 columns.
    """
    from autotune.report.studies import open_study
    from autotune.report.summary import answer, summary
    from autotune.report.text import brief_lines, latency_lines, report_lines
    from autotune.report.view import study_view

    view = study_view(open_study(directory))
    if json_:
        answers = {"at": [answer(view, rate) for rate in at]} if at else {}
        print_json(summary(view) | answers)
    else:
        lines = brief_lines(view) if brief else report_lines(view)
        width = columns(80) if brief else columns()
        show(wrapped([*lines, *(line for rate in at for line in latency_lines(view, rate))], width))
    if exit_code and view.verdict != "improved":
        raise typer.Exit(errors.NOT_IMPROVED)


def print_table(directory: Path, name: str) -> None:
    """Print a table of a study as CSV. Raises AutotuneError."""
    from autotune.report.numbers import TABLES, table
    from autotune.report.studies import open_study
    from autotune.report.view import study_view
    from autotune.target.messages import instead

    if name not in TABLES:
        raise AutotuneError(f"unknown table {name!r}", hint=instead(name, TABLES))
    echo(table(study_view(open_study(directory)), name), end="")


def print_sweep(directory: Path, html: Path | None, *, json_: bool) -> None:
    """Print the results of a sweep so far, and plot them in ``html`` if given."""
    from autotune.sweep import output, results

    sweep = results.load(directory)
    if html is not None:
        echo(f"wrote {output.write_page(sweep, html)}", err=True)
    if json_:
        print_json(output.as_json(sweep))
    else:
        echo(output.as_text(sweep), end="")
