"""The report as one HTML file that needs nothing else: words, and data that its script draws."""

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

SETTINGS_SHOWN = 12  # of what to change; the rest is folded away
REFRESH = 20  # seconds, while the study runs


@cache
def templates() -> Environment:
    """The templates of reports; whatever is put into one is text, not markup."""
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
    """Text in which what stands between backticks is marked up as code; nothing else is markup."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704  escaped


def breakable(name: str) -> Markup:
    """A parameter's name or value, which may be broken between its words."""
    return Markup("<wbr>").join(re.split(r"(?<=[._+])|(?<=[a-z])(?=[A-Z])", name))


def embed(data: Mapping[str, Any]) -> str:
    """JSON, compressed with gzip, as base64: the diffs of a long study repeat themselves.

    Nothing in a configuration can end the HTML element that this is in.
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


@cache
def plotly() -> str:
    """Plotly's own JavaScript, from the wheel or its Python package: nothing is fetched from outside.

    As gzip in RFC 1924's base 85, which is a third of its size; its ``<`` is written ``"``, so that no
    markup can come of it.
    """
    wheel = shipped("templates").with_name("plotly.min.js")
    source = wheel if wheel.exists() else files("plotly") / "package_data" / "plotly.min.js"
    script = source.read_bytes()
    return base64.b85encode(gzip.compress(script, mtime=0)).decode().replace("<", '"')


def write_whole(path: Path, document: str) -> Path:
    """Write a document, whole or not at all: a browser may be reading the last one.

    Others may read it if they may read its directory.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = 0o644 if path.parent.stat().st_mode & 0o005 else 0o600
    durable.write(path, document.encode(), mode, sync=False)
    return path


def write_page(study: Study, path: Path) -> Path:
    """Write a study's page, whole or not at all."""
    return write_whole(path, page(study_view(study)))


def page(view: StudyView) -> str:
    """One self-contained HTML document; it renews itself while the study runs."""
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
