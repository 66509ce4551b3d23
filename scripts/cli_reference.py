"""Reference of all commands, generated from their ``--help``.

``python -m scripts.cli_reference`` writes ``docs/cli.md`` and ``docs/autotune.1`` of a checkout.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from typer.main import get_command
from typer.testing import CliRunner

from autotune import __version__
from autotune.cli import app
from autotune.cli.help import EXIT_CODE_TEXTS

REPOSITORY = Path(__file__).parents[1]
FILE = REPOSITORY / "docs" / "cli.md"
MANUAL = FILE.with_name("autotune.1")
HEAD = f"""\
# Commands

`python -m scripts.cli_reference` generates this page from `--help`.

Results go to standard output, progress to standard error. With `--json`, a command prints exactly one
JSON object with a `schema`, even for errors. `autotune schema NAME` prints the JSON Schema of each. While
`schema` is 1, keys are only added.

Exit codes: {textwrap.fill(EXIT_CODE_TEXTS, 100, break_on_hyphens=False)}
"""


def text() -> str:
    """Return the content of ``docs/cli.md``."""
    parts = [HEAD]
    for words in commands():
        heading = " ".join(["autotune", *words])
        parts.append(f"## `{heading}`\n\n```text\n{help_of(words)}\n```\n")
    return "\n".join(parts)


def manual() -> str:
    """Return the content of ``docs/autotune.1``, a man page."""
    summary = f"autotune \\- {app.info.help}"
    parts = [
        f'.TH AUTOTUNE 1 "" "autotune {__version__}"',
        ".SH NAME",
        _roff(summary, escape=False),
    ]
    parts += [".SH SYNOPSIS", "autotune COMMAND [OPTIONS] [ARGUMENTS]"]
    for words in [[], *commands()]:
        heading = " ".join(["autotune", *words]).upper() if words else "COMMANDS"
        parts += [f".SH {heading}", ".nf", _roff(help_of(words)), ".fi"]
    return "\n".join([*parts, ".SH EXIT STATUS", _roff(EXIT_CODE_TEXTS), ""])


def _roff(text: str, *, escape: bool = True) -> str:
    """Return a source that roff prints as ``text``, without interpreting any of it."""
    if escape:
        text = text.replace("\\", r"\e").replace("-", r"\-")
    return "\n".join(rf"\&{line}" if line[:1] in (".", "'") else line for line in text.splitlines())


@cache
def _help(words: tuple[str, ...]) -> str:
    invoked = CliRunner(env={"COLUMNS": "100", "TERMINAL_WIDTH": "100"}).invoke(
        app, [*words, "--help"], prog_name="autotune", color=False
    )
    return "\n".join(line.rstrip() for line in invoked.stdout.strip().splitlines())


def help_of(words: Iterable[str]) -> str:
    """Return the help of a command, 100 columns wide."""
    return _help(tuple(words))


def commands() -> list[list[str]]:
    """Return the words of every command, such as ``["lab", "up"]``, but not the groups themselves."""
    found: list[list[str]] = []
    root = get_command(app)
    for name, command in getattr(root, "commands", {}).items():
        inner = getattr(command, "commands", None)
        found += [[name, *([] if inner is None else [other])] for other in (inner or [name])]
    return found


def write() -> None:
    """Write ``docs/cli.md`` and the man page."""
    FILE.write_text(text(), encoding="utf-8")
    MANUAL.write_text(manual(), encoding="utf-8")


if __name__ == "__main__":
    os.environ.pop("NO_COLOR", None)
    write()
