"""The page of exit statuses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from autotune.errors import EXIT_CODES
from scripts.reference.markdown import page, table

PATH = Path("docs") / "exit-codes.md"
HEAD = """\
With `--json`, an error is printed as an object
`{"schema": 1, "error": {"message": …, "hint": …, "code": …}}` on standard output. `code` is the exit
status."""


def pages() -> Mapping[Path, str]:
    """Return the content of the page by its path in a checkout."""
    rows = [
        (str(each.code), f"{each.when[0].upper()}{each.when[1:]}", each.details)
        for each in EXIT_CODES
    ]
    return {PATH: page("Exit codes", HEAD, table(("Status", "When", "Details"), rows))}
