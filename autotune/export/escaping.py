"""Render the templates of exports, and escape text so that shell scripts and Markdown do not
interpret it.
"""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Iterable
from functools import cache
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from autotune import config_text
from autotune.deploy.host_commands import SHELL_FUNCTIONS
from autotune.export.masked_lines import find_masked_parts
from autotune.target.shipped_files import find_shipped_directory

END_MARKER = "AUTOTUNE"


def fill_template(template: str, **values: Any) -> str:
    """Return a rendered template from ``templates/export``."""
    return _create_templates().get_template(template).render(**values)


@cache
def _create_templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(str(find_shipped_directory("templates") / "export")),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701  # the output is not HTML; filters quote for the shell
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals |= {"functions": SHELL_FUNCTIONS}
    environment.filters |= {
        "quoted": shlex.quote,
        "markdown": escape_markdown,
        "code": escape_code,
        "here_document": build_here_document,
        "lines_document": lambda lines, then="": build_here_document(_join_lines(lines), then),
        "line": escape_line,
        "masked_parts": find_masked_parts,
        "command": shlex.join,
    }
    return environment


def escape_line(text: object) -> str:
    """Return text on one line, without control characters."""
    return "".join(c if c.isprintable() else "?" for c in str(text))


def escape_markdown(text: object) -> str:
    """Return text on one line that Markdown renders literally, without code, links, images or
    HTML.
    """
    return re.sub(r"([`<&\\]|\](?=\())", r"\\\1", escape_line(text))


def escape_code(text: object) -> str:
    """Return text on one line that can be the content of a code span."""
    return escape_line(text).replace("`", "'")


def build_here_document(content: bytes, line_suffix: str = "") -> str:
    """Return a command that prints ``content``: as readable text if possible, otherwise from
    base64.

    ``line_suffix`` is appended to the command's first line.
    """
    text = content.decode("utf-8", "replace")
    is_plain_text = text.encode() == content and text.endswith("\n")
    if (
        is_plain_text
        and all(c.isprintable() or c in "\t\n" for c in text)
        and END_MARKER not in text.split("\n")
    ):
        return f"cat <<'{END_MARKER}'{line_suffix}\n{text}{END_MARKER}"
    return f"base64 -d <<'{END_MARKER}'{line_suffix}\n{base64.encodebytes(content).decode()}{END_MARKER}"


def _join_lines(lines: Iterable[str]) -> bytes:
    return config_text.encode("".join(lines))
