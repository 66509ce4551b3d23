"""A sweep as one HTML file: the figures as SVG in it, without script and without network."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from autotune.deploy.render import shipped_templates
from autotune.sweep import figure, text
from autotune.sweep.results import Found
from autotune.sweep.svg import draw

MANY = 6  # diagrams from which on they stand side by side


def page(found: Found) -> str:
    """The whole document."""
    environment = Environment(
        loader=FileSystemLoader(str(shipped_templates() / "report")),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    drawn = [(panel, draw(panel)) for panel in figure.panels(found)]
    return environment.get_template("sweep.html.j2").render(
        found=found,
        plan=found.plan,
        headline=text.headline(found),
        drawn=drawn,
        many=len(drawn) > MANY,
        table=text.render(found),
        simulated=found.target.simulated is not None,
    )


def write(found: Found, path: Path) -> Path:
    """Write the page, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, staged = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(page(found))
        Path(staged).chmod(0o644)
        Path(staged).replace(path)
    finally:
        Path(staged).unlink(missing_ok=True)
    return path
