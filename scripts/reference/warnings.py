"""The page of a study's warnings, with codes, meanings and fixes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from autotune.report.warnings import WARNING_KINDS
from scripts.reference.markdown import page, table

PATH = Path("docs") / "warnings.md"
HEAD = """\
`autotune report STUDY` prints the warnings of a study in the section "Warnings". With `--json`, they
are listed under `warnings`, each with a code, a value and its threshold. A warning does not change
the verdict, but shows what limits it."""


def pages() -> Mapping[Path, str]:
    """Return the content of the page by its path in a checkout."""
    rows = [(f"`{kind.code}`", kind.meaning, f"{kind.remedy[0].upper()}{kind.remedy[1:]}.")
            for kind in WARNING_KINDS.values()]  # fmt: skip
    return {PATH: page("Warnings", HEAD, table(("Code", "Meaning", "What to do"), rows))}
