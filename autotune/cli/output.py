"""Results on standard output."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import typer


def print_json(found: Any) -> None:
    """One object on one line."""
    typer.echo(json.dumps(found, ensure_ascii=False))


def coloured() -> bool:
    """Whether colours would be seen as such."""
    from autotune.report import colour

    return colour.wanted(sys.stdout, os.environ)
