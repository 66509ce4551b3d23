"""Text files of an export, rendered from ``templates/export``."""

from __future__ import annotations

import base64
import shlex
from functools import cache
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from autotune.deploy.render import shipped_templates

STAGED = ".autotune-new"


def filled(template: str, **values: Any) -> str:
    """A template of ``templates/export`` with these values in it."""
    return _environment().get_template(template).render(**values)


def _command(check: tuple[str, ...], path: str) -> str:
    return shlex.join(f"{path}{STAGED}" if word == "%s" else word for word in check)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(str(shipped_templates() / "export")),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701  scripts and plain text; a script quotes for the shell
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "quoted": shlex.quote,
        "base64": lambda content: base64.encodebytes(content).decode().strip(),
        "directory": lambda path: path.rpartition("/")[0],
        "command": _command,
    }
    return environment
