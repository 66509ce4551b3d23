"""Templates of exports, and text that stays inert in shell scripts and Markdown."""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Iterable
from functools import cache
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from autotune import config_text
from autotune.deploy.host_commands import FUNCTIONS
from autotune.target.shipped import shipped

DELIMITER = "AUTOTUNE"


def filled(template: str, **values: Any) -> str:
    """A template of ``templates/export`` with these values in it."""
    return _templates().get_template(template).render(**values)


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(str(shipped("templates") / "export")),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701  scripts and plain text; a script quotes for the shell
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals |= {"functions": FUNCTIONS}
    environment.filters |= {
        "quoted": shlex.quote,
        "markdown": markdown,
        "code": code,
        "here_document": here_document,
        "lines_document": lambda lines, then="": here_document(_joined(lines), then),
        "line": line,
        "command": shlex.join,
    }
    return environment


def line(text: object) -> str:
    """Text on one line, without control characters."""
    return "".join(c if c.isprintable() else "?" for c in str(text))


def markdown(text: object) -> str:
    """Text on one line that Markdown shows as it is: no code, links, images or HTML."""
    return re.sub(r"([`<&\\]|\](?=\())", r"\\\1", line(text))


def code(text: object) -> str:
    """The content of a code span on one line."""
    return line(text).replace("`", "'")


def here_document(content: bytes, then: str = "") -> str:
    """A command that prints ``content``: as it is where a person can read it, else from base64. ``then``
    follows on the line of the command."""
    text = content.decode("utf-8", "replace")
    plain = text.encode() == content and text.endswith("\n")
    if (
        plain
        and all(c.isprintable() or c in "\t\n" for c in text)
        and DELIMITER not in text.split("\n")
    ):
        return f"cat <<'{DELIMITER}'{then}\n{text}{DELIMITER}"
    return f"base64 -d <<'{DELIMITER}'{then}\n{base64.encodebytes(content).decode()}{DELIMITER}"


def _joined(lines: Iterable[str]) -> bytes:
    return config_text.encode("".join(lines))
