"""HTML documents: how they are made from templates, and how they come to be on disk."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

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


def embed(data: Mapping[str, Any]) -> str:
    """JSON, gzip, base64: a long study's diffs say the same thing over and over.

    Whatever a configuration holds, it cannot end the element that this stands in.
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


@cache
def plotly() -> str:
    """Plotly's own JavaScript, as its Python package carries it: nothing is fetched from outside."""
    script = files("plotly").joinpath("package_data", "plotly.min.js").read_text(encoding="utf-8")
    return script.replace("</script", "<\\/script")
