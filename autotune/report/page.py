"""Render a study's report as one self-contained HTML file."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from autotune import durable
from autotune.report import text
from autotune.report.beds import bed_rows
from autotune.report.ceilings import ceilings_table
from autotune.report.charts import data
from autotune.report.front import apply_commands, cards, change_groups, provenance
from autotune.report.load_curve import hosts_watched
from autotune.report.studies import Study
from autotune.report.trials import describe_finding
from autotune.report.view import StudyView, study_view
from autotune.report.warnings import warnings
from autotune.study.ranking import LEAST_MEASURED, measured
from autotune.study.records import reduction
from autotune.target.shipped import shipped

SETTINGS_SHOWN = 12  # settings that are not folded
REFRESH = 20  # seconds between reloads while the study runs


@cache
def templates() -> Environment:
    """Return the environment of the report templates; it escapes all inserted text."""
    environment = Environment(
        loader=FileSystemLoader(str(shipped("templates") / "report")),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"code": code, "breakable": breakable, "finding": describe_finding}
    return environment


def code(text: str) -> Markup:
    """Return escaped text with its backtick spans as ``<code>``."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704  escaped


def breakable(name: str) -> Markup:
    """Return a parameter's name or value with line-break hints between its words."""
    return Markup("<wbr>").join(re.split(r"(?<=[._+])|(?<=[a-z])(?=[A-Z])", name))


def embed(data: Mapping[str, Any]) -> str:
    """Return the data as JSON, compressed with gzip and encoded as base64.

    The diffs of a long study are repetitive and compress well. The encoded text cannot close the HTML
    element around it.
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


@cache
def plotly() -> str:
    """Return Plotly's JavaScript from the wheel or its Python package, so the page fetches nothing.

    The script is compressed with gzip and encoded in RFC 1924's base 85, a third of its size. ``<`` is
    written as ``"``, so the text cannot form markup.
    """
    wheel = shipped("templates").with_name("plotly.min.js")
    source = wheel if wheel.exists() else files("plotly") / "package_data" / "plotly.min.js"
    script = source.read_bytes()
    return base64.b85encode(gzip.compress(script, mtime=0)).decode().replace("<", '"')


def write_whole(path: Path, document: str) -> Path:
    """Write a document atomically, because a browser may be reading the previous one.

    Everyone who can access the directory can read the file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = 0o644 if path.parent.stat().st_mode & 0o005 else 0o600
    durable.write(path, document.encode(), mode, sync=False)
    return path


def write_page(study: Study, path: Path) -> Path:
    """Write the report page of a study atomically."""
    return write_whole(path, page(study_view(study)))


def page(view: StudyView) -> str:
    """Return the report as one HTML document, which reloads itself while the study runs."""
    charts, configurations = data(view), len(measured(view.state))
    warned = [f"{warning.text} → {warning.remedy}" for warning in warnings(view)]
    words = text.sections(view) | {"Warnings": warned}
    without_hosts = [
        side
        for side, readings in view.readings().items()
        if side not in charts["hosts"] and hosts_watched(readings)
    ]
    template = templates().get_template("page.html.j2")
    return template.render(
        name=view.name,
        mark=text.MARKS.get(view.verdict, text.UNDECIDED)[0],
        verdict=view.verdict,
        headline=text.headline(view),
        refresh=REFRESH if view.study.holder else None,
        words=words,
        intervals=any(
            row["half"] is not None for row in charts.get("importance", {}).get("rows", ())
        ),
        too_few=configurations if configurations < LEAST_MEASURED else 0,
        cards=cards(view),
        provenance=provenance(view),
        tiers=change_groups(view, SETTINGS_SHOWN),
        folded_tiers=change_groups(view, SETTINGS_SHOWN, after=True),
        settings_folded=len(view.changes) - SETTINGS_SHOWN,
        settings_title=text.change_title(view),
        reduction=reduction(view.state.explained) if view.state.explained else "",
        limits=view.bottlenecks.items(),
        commands=apply_commands(view),
        data=embed(charts),
        plotly=plotly(),
        trials=len(view.state.trials),
        readings=len(view.study.readings),
        beds=list(bed_rows(view)),
        ceilings=[ceilings_table(record) for record in view.state.ceilings],
        unit=view.units.unit,
        quantity=view.units.quantity,
        without_hosts=without_hosts,
    )
