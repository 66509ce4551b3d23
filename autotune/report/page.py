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

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from autotune import durable_files
from autotune.config_text import escape_non_utf8
from autotune.report import text_report as text
from autotune.report.beds import build_bed_rows
from autotune.report.ceilings import build_ceilings_table
from autotune.report.chart_data import ChartData
from autotune.report.charts import build_chart_data
from autotune.report.load_curve import has_host_usage
from autotune.report.page_summary import (
    build_cards,
    group_changes_by_tier,
    list_provenance,
)
from autotune.report.studies import Study
from autotune.report.trial_outcomes import describe_bottleneck
from autotune.report.view import StudyView, build_study_view
from autotune.study.ranking import MIN_CONFIGURATIONS, list_measured_trials
from autotune.study.winner_changes import format_reduction
from autotune.target.shipped_files import find_shipped_directory
from autotune.terminal import make_printable

MAX_SHOWN_SETTINGS = 12  # number of settings that the page shows without unfolding
REFRESH_SECONDS = 20  # seconds between reloads while the study runs


@cache
def load_templates() -> Environment:
    """Return the Jinja environment of the report templates, which escapes all inserted text."""
    environment = Environment(
        loader=FileSystemLoader(str(find_shipped_directory("templates") / "report")),
        undefined=StrictUndefined,
        autoescape=True,
        finalize=clean_text,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "code": mark_code_spans,
        "breakable": add_word_breaks,
        "finding": describe_bottleneck,
    }
    return environment


def clean_text(value: object) -> object:
    """Return text without control characters. Bytes that are not UTF-8 are escaped. Markup and other
    values do not change.

    A terminal could obey control characters in a command that is copied from the page.
    """
    return make_printable(escape_non_utf8(value)) if type(value) is str else value


def mark_code_spans(text: str) -> Markup:
    """Return escaped text with its backtick spans as ``<code>``."""
    escaped_text = str(escape(clean_text(text)))
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped_text))  # noqa: S704  escaped


def add_word_breaks(name: str) -> Markup:
    """Return a parameter's name or value with line-break hints between its words."""
    name = make_printable(name)
    return Markup("<wbr>").join(re.split(r"(?<=[._+])|(?<=[a-z])(?=[A-Z])", name))


def encode_json(document: Mapping[str, object]) -> str:
    """Return the data as JSON, compressed with gzip and encoded as base64.

    The diffs of a long study are repetitive and compress well. The encoded text cannot close the HTML
    element that contains it.
    """
    json_text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    # Diffs contain lone surrogates for the bytes of files that are not UTF-8.
    json_text = escape_non_utf8(json_text, "\\\\x")
    return base64.b64encode(gzip.compress(json_text.encode(), mtime=0)).decode()


@cache
def encode_plotly() -> str:
    """Return Plotly's JavaScript from autotune's wheel or from Plotly's package, so that the page needs
    no network.

    The script is compressed with gzip and encoded in base 85 of RFC 1924, which reduces it to a third
    of its size. ``<`` is written as ``"``, so that the text cannot form markup.
    """
    bundled_path = find_shipped_directory("templates").with_name("plotly.min.js")
    script_path = (
        bundled_path
        if bundled_path.exists()
        else files("plotly") / "package_data" / "plotly.min.js"
    )
    script = script_path.read_bytes()
    return base64.b85encode(gzip.compress(script, mtime=0)).decode().replace("<", '"')


def write_atomically(path: Path, document: str) -> Path:
    """Write a document atomically, because a browser may be reading the previous document.

    Everyone with access to the directory can read the file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = 0o644 if path.parent.stat().st_mode & 0o005 else 0o600
    durable_files.write_file(path, document.encode(), mode, sync=False)
    return path


def write_page(study: Study, path: Path) -> Path:
    """Write the report page of a study atomically."""
    return write_atomically(path, render_page(build_study_view(study)))


def _list_sides_without_hosts(view: StudyView, charts: ChartData) -> list[str]:
    """Return the sides whose readings contain host usage, but never met the SLO."""
    return [
        side
        for side, readings in view.readings_by_side().items()
        if side not in charts["hosts"] and has_host_usage(readings)
    ]


def render_page(view: StudyView) -> str:
    """Return the report as one HTML document, which reloads itself while the study runs."""
    charts, configuration_count = build_chart_data(view), len(list_measured_trials(view.state))
    warning_lines = [f"{warning.text} → {warning.remedy}" for warning in view.warnings]
    sections = text.build_sections(view) | {"Warnings": warning_lines}
    minimal_changes, importance = view.state.minimal_changes, charts.get("importance")
    template = load_templates().get_template("page.html.j2")
    return template.render(
        name=view.name,
        mark=view.headline.mark,
        verdict=view.verdict,
        headline=view.headline.text,
        refresh=REFRESH_SECONDS if view.study.running_process else None,
        sections=sections,
        intervals=importance is not None
        and any(row["half"] is not None for row in importance["rows"]),
        too_few=configuration_count if configuration_count < MIN_CONFIGURATIONS else 0,
        cards=build_cards(view),
        provenance=list_provenance(view),
        tiers=group_changes_by_tier(view, MAX_SHOWN_SETTINGS),
        folded_tiers=group_changes_by_tier(view, MAX_SHOWN_SETTINGS, remaining=True),
        settings_folded=len(view.changes) - MAX_SHOWN_SETTINGS,
        settings_title=text.select_change_title(view),
        reduction=format_reduction(minimal_changes) if minimal_changes else "",
        limits=view.bottlenecks.items(),
        steps=view.next_steps,
        has_costs=bool(view.reversal_costs or minimal_changes),
        has_actions=view.target.command is None,
        has_memory=view.memory_costs.has_memory_changes,
        data=encode_json(charts),
        plotly=encode_plotly(),
        measurements=len(view.state.trials),
        readings=len(view.study.readings),
        beds=list(build_bed_rows(view)),
        ceilings=[build_ceilings_table(ceilings_record) for ceilings_record in view.state.ceilings],
        unit=view.units.unit,
        quantity=view.units.quantity_name,
        without_hosts=_list_sides_without_hosts(view, charts),
    )
