"""A sweep as one HTML file: the figures as SVG in it, without script and without network."""

from __future__ import annotations

from pathlib import Path

from autotune.report.html.document import templates, write_whole
from autotune.sweep import figure, text
from autotune.sweep.results import Found
from autotune.sweep.svg import draw

MANY = 6  # diagrams from which on they stand side by side


def page(found: Found) -> str:
    """The whole document."""
    drawn = [(panel, draw(panel)) for panel in figure.panels(found)]
    return (
        templates()
        .get_template("sweep.html.j2")
        .render(
            found=found,
            plan=found.plan,
            headline=text.headline(found),
            drawn=drawn,
            many=len(drawn) > MANY,
            table=text.render(found),
            simulated=found.target.simulated is not None,
        )
    )


def write(found: Found, path: Path) -> Path:
    """Write the page, whole or not at all."""
    return write_whole(path, page(found))
