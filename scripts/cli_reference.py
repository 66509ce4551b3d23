"""The reference of all commands, made from what each says under ``--help``.

``python -m scripts.cli_reference`` writes it to ``docs/cli.md`` and ``docs/autotune.1`` of a checkout.
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

Made from `--help` by `python -m scripts.cli_reference`; a test holds it to that.

Results go to standard output, progress to standard error. With `--json`, exactly one JSON object
with a `schema` is printed, errors included; `autotune schema NAME` has the JSON Schema of each. While
`schema` is 1, keys are added and none is removed or changed.

Exit codes: {textwrap.fill(EXIT_CODE_TEXTS, 100)}
"""


def text() -> str:
    """What ``docs/cli.md`` contains."""
    parts = [HEAD]
    for words in commands():
        heading = " ".join(["autotune", *words])
        parts.append(f"## `{heading}`\n\n```text\n{help_of(words)}\n```\n")
    return "\n".join(parts)


def manual() -> str:
    """What ``docs/autotune.1`` contains: a man page."""
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
    """Text as it is: no line of it is a request, no character an escape."""
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
    """What a command says under ``--help``, 100 columns wide."""
    return _help(tuple(words))


def commands() -> list[list[str]]:
    """Every command as its words, those of groups included."""
    found: list[list[str]] = []
    root = get_command(app)
    for name, command in getattr(root, "commands", {}).items():
        inner = getattr(command, "commands", None)
        found += [[name, *([] if inner is None else [other])] for other in (inner or [name])]
    return found


def write() -> None:
    """Write the page and the man page."""
    FILE.write_text(text(), encoding="utf-8")
    MANUAL.write_text(manual(), encoding="utf-8")


if __name__ == "__main__":
    os.environ.pop("NO_COLOR", None)
    write()
