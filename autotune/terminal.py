"""What is printed: the one way to the terminal, for results, progress and errors alike.

A file of a host, a line of its log or an error of its shell may hold escape sequences, and a
terminal obeys them: it clears the screen, or puts text on the clipboard (OSC 52). They are removed
here.
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable
from io import TextIOWrapper
from typing import TYPE_CHECKING, TextIO

from autotune.standard_streams import convert_output_errors

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

StyledLine = tuple[str, str]
"""A line, and its style as Rich names styles; empty for none."""

# ECMA-48: control strings (OSC, DCS, SOS, PM, APC) with their content, CSI sequences, other escapes.
_ESCAPE_SEQUENCE_PATTERN = re.compile(
    r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|\x1b[ -/]*[0-~]?"
)
# C0 and C1 but tab and newline, and what turns the direction of the text around.
_CONTROL_CHARACTER_PATTERN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_SURROGATE_PATTERN = re.compile(r"[\ud800-\udfff]")


def make_printable(text: str) -> str:
    """``text`` without escape sequences and control characters; tabs and line ends stay."""
    return _SURROGATE_PATTERN.sub(
        "\ufffd", _CONTROL_CHARACTER_PATTERN.sub("", _ESCAPE_SEQUENCE_PATTERN.sub("", text))
    )


def echo(text: str, *, err: bool = False, end: str = "\n") -> None:
    """A result, or with ``err`` something about it."""
    write_text(sys.stderr if err else sys.stdout, text, end=end)


def write_text(stream: TextIO, text: str, *, end: str = "\n") -> None:
    """Write text and flush it, for whoever follows the stream."""
    stream.write(make_printable(text) + end)
    stream.flush()


def terminal_width(default: int | None = None) -> int | None:
    """The width of the terminal that results go to; ``default`` where they go to none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else default


def wrap_lines(lines: Iterable[StyledLine], width: int | None) -> Iterable[StyledLine]:
    """Lines broken between words to ``width`` columns; later lines align with the first one's text."""
    for line, style in lines:
        if width is None or len(line) <= width:
            yield line, style
            continue
        indent = re.match(r"\s*(\S+ +(?=\S))?", line)
        hang = " " * min(len(indent[0]) if indent else 0, 11)
        parts = textwrap.wrap(line, width, subsequent_indent=hang, break_on_hyphens=False)
        yield from ((part, style) for part in parts)


def print_lines(lines: Iterable[StyledLine]) -> None:
    """Results in their styles, if standard output is a terminal that shows them."""
    if not sys.stdout.isatty():
        echo("".join(f"{line}\n" for line, _ in lines), end="")
        return
    on_screen = create_console(sys.stdout)
    for line, style in lines:
        on_screen.print(style_text(line, style), soft_wrap=True)


def print_patch(lines: Iterable[StyledLine]) -> None:
    """The same for what another program such as `patch` may read: off a terminal, byte for byte."""
    if sys.stdout.isatty():
        print_lines(lines)
        return
    text = "".join(f"{line}\n" for line, _ in lines)
    sys.stdout.flush()
    if isinstance(sys.stdout, TextIOWrapper):
        with convert_output_errors():
            sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
            sys.stdout.buffer.flush()
    else:  # in memory
        sys.stdout.write(text)


def create_console(stream: TextIO) -> Console:
    """Rich's console, which follows NO_COLOR and TERM; all that it prints must be ``style_text``
    first."""
    from rich.console import Console

    return Console(file=stream, markup=False, highlight=False, emoji=False)


def style_text(text: str, style: str = "") -> Text:
    """Text for Rich: no markup in it, and nothing that a terminal would obey."""
    from rich.text import Text

    return Text(make_printable(text), style=style)
