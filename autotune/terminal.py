"""Print results, progress and errors to the terminal, without escape sequences.

A host's file, log line or shell error may contain escape sequences. A terminal executes escape
sequences, which can clear the screen, or copy text to the clipboard (OSC 52).
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, TextIO

from autotune.standard_streams import convert_output_errors

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

StyledLine = tuple[str, str]
"""A line and its Rich style, which is empty for plain text."""

# ECMA-48: control strings (OSC, DCS, SOS, PM, APC) with their content, CSI sequences, other escapes.
# No match contains a quote, or the quotes of a printed command would no longer be paired. No match
# contains the end of a line, or an unterminated control string would hide later lines.
_ESCAPE_SEQUENCE_PATTERN = re.compile(
    r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n'\"]*(?:\x07|\x1b\\|\x9c)?"
    r"|(?:\x1b\[|\x9b)[0-?]*[ !#-&(-/]*[@-~]?"
    r"|\x1b[ !#-&(-/]*[0-~]?"
)
# C0 and C1 except tab and newline, characters that change the direction of text, other line ends,
# and tag characters, which are invisible.
_CONTROL_CHARACTER_PATTERN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
)
_SURROGATE_PATTERN = re.compile(r"[\ud800-\udfff]")


def make_printable(text: str) -> str:
    """Return ``text`` without escape sequences and control characters. Tabs and line ends are kept."""
    return _SURROGATE_PATTERN.sub(
        "\ufffd", _CONTROL_CHARACTER_PATTERN.sub("", _ESCAPE_SEQUENCE_PATTERN.sub("", text))
    )


def echo(text: str, *, err: bool = False, end: str = "\n") -> None:
    """Print a result on standard output or, with ``err``, a message on standard error."""
    write_text(sys.stderr if err else sys.stdout, text, end=end)


def print_json(document: Any) -> None:
    """Print an object as JSON on one line. ASCII is valid in every encoding of standard output.

    Half of a surrogate pair, as in the name of a file that is not UTF-8, would not be valid JSON.
    """
    json_text = _SURROGATE_PATTERN.sub("\ufffd", json.dumps(document, ensure_ascii=False))
    echo(re.sub(r"[^ -~]", lambda match: json.dumps(match[0])[1:-1], json_text))


def write_text(stream: TextIO, text: str, *, end: str = "\n") -> None:
    """Write text and flush the stream, so that readers see the text at once."""
    stream.write(make_printable(text) + end)
    stream.flush()


def find_terminal_width(default: int | None = None) -> int | None:
    """Return the width of the terminal on standard output, or ``default`` without a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else default


def wrap_lines(lines: Iterable[StyledLine], width: int | None) -> Iterable[StyledLine]:
    """Break lines between words to ``width`` columns. Continuation lines are aligned with the text of
    the line.
    """
    for line, style in lines:
        if width is None or len(line) <= width:
            yield line, style
            continue
        indent_match = re.match(r"\s*(\S+ +(?=\S))?", line)
        hanging_indent = " " * min(len(indent_match[0]) if indent_match else 0, 11)
        rows = textwrap.wrap(line, width, subsequent_indent=hanging_indent, break_on_hyphens=False)
        yield from ((row, style) for row in rows)


def print_lines(lines: Iterable[StyledLine]) -> None:
    """Print lines, with their styles if standard output is a terminal."""
    if not sys.stdout.isatty():
        echo("".join(f"{line}\n" for line, _ in lines), end="")
        return
    console = create_console(sys.stdout)
    for line, style in lines:
        console.print(style_text(line, style), soft_wrap=True)


def print_patch(lines: Iterable[StyledLine]) -> None:
    """Print lines for programs such as `patch`. No bytes are removed unless standard output is a
    terminal.
    """
    if sys.stdout.isatty():
        print_lines(lines)
        return
    text = "".join(f"{line}\n" for line, _ in lines)
    sys.stdout.flush()
    if isinstance(sys.stdout, TextIOWrapper):
        with convert_output_errors():
            sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
            sys.stdout.buffer.flush()
    else:  # an in-memory stream has no ``buffer``
        sys.stdout.write(text)


def create_console(stream: TextIO) -> Console:
    """Return a Rich console, which obeys NO_COLOR and TERM. Print only results of ``style_text``."""
    from rich.console import Console

    return Console(file=stream, markup=False, highlight=False, emoji=False)


def style_text(text: str, style: str = "") -> Text:
    """Return text for Rich without control characters and escape sequences. Markup in the text has
    no effect.
    """
    from rich.text import Text

    return Text(make_printable(text), style=style)
