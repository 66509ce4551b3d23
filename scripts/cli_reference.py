"""The reference of all commands, made from what each says under ``--help``.

``python -m scripts.cli_reference`` writes it to ``docs/cli.md`` of a checkout.
"""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

from typer.main import get_command
from typer.testing import CliRunner

from autotune.cli import app
from autotune.cli.help import EXIT_CODES

FILE = Path(__file__).parents[1] / "docs" / "cli.md"
HEAD = f"""\
# Commands

Made from `--help` by `python -m scripts.cli_reference`; a test holds it to that.

Results go to standard output, progress to standard error. With `--json`, exactly one JSON object
with a `schema` is printed, errors included. Exit codes: {textwrap.fill(EXIT_CODES, 100)}
"""


def text() -> str:
    """What ``docs/cli.md`` contains."""
    parts = [HEAD]
    for words in commands():
        said = CliRunner(env={"COLUMNS": "100", "TERMINAL_WIDTH": "100"}).invoke(
            app, [*words, "--help"], prog_name="autotune", color=False
        )
        heading = " ".join(["autotune", *words])
        body = "\n".join(line.rstrip() for line in said.stdout.strip().splitlines())
        parts.append(f"## `{heading}`\n\n```text\n{body}\n```\n")
    return "\n".join(parts)


def commands() -> list[list[str]]:
    """Every command as its words, those of groups included."""
    found: list[list[str]] = []
    root = get_command(app)
    for name, command in getattr(root, "commands", {}).items():
        inner = getattr(command, "commands", None)
        found += [[name, *([] if inner is None else [other])] for other in (inner or [name])]
    return found


if __name__ == "__main__":
    os.environ.pop("NO_COLOR", None)
    FILE.write_text(text(), encoding="utf-8")
