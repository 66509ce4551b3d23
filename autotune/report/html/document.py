"""HTML documents: how they are made from templates, and how they come to be on disk."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from autotune import durable
from autotune.deploy.render import shipped_templates


@cache
def templates() -> Environment:
    """The templates of reports; whatever is put into one is text, not markup."""
    return Environment(
        loader=FileSystemLoader(str(shipped_templates() / "report")),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def write_whole(path: Path, document: str) -> Path:
    """Write a document, whole or not at all: a browser may be reading the last one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    durable.write(path, document.encode(), sync=False)
    return path
