"""The page: what is said, in words; what is drawn, as data that its script draws."""

from __future__ import annotations

from pathlib import Path

from autotune.report import ceilings, text
from autotune.report.headline import headline
from autotune.report.html.charts import data
from autotune.report.html.document import embed, plotly, templates, write_whole
from autotune.report.load_curve import hosts_watched
from autotune.report.studies import Study
from autotune.report.view import StudyView, study_view
from autotune.report.warnings import warnings

REFRESH = 20  # seconds, while the study runs
SETTINGS_SHOWN = 12  # of what to change; the rest is folded away
MARKS = {"improved": "✓", "no-improvement": "=", "unmeetable": "✗"}


def write_page(study: Study, path: Path) -> Path:
    """Write the page, whole or not at all: a browser may be reading the last one."""
    return write_whole(path, page(study_view(study)))


def page(view: StudyView) -> str:
    """One self-contained HTML document; it refreshes itself while the study is not finished."""
    charts = data(view)
    return (
        templates()
        .get_template("page.html.j2")
        .render(
            name=view.name,
            mark=MARKS.get(view.verdict, "…"),
            verdict=view.verdict,
            headline=headline(view),
            refresh=None if view.state.verdict else REFRESH,
            parts=_parts(view),
            settings=_settings(view),
            settings_shown=SETTINGS_SHOWN,
            settings_title=text.change_title(view),
            data=embed(charts),
            plotly=plotly(),
            trials=len(view.state.trials),
            readings=len(view.study.readings),
            ceilings=[ceilings.table(record) for record in view.state.ceilings],
            unit=view.units.unit,
            quantity=view.units.quantity,
            without_hosts=[
                label
                for label, readings in view.readings().items()
                if label not in charts["hosts"] and hosts_watched(readings)
            ],
        )
    )


def _parts(view: StudyView) -> list[tuple[str, list[str]]]:
    sections = text.report_sections(view)
    unchecked = sections.pop("Not checked")
    parts = {
        **sections,
        "Warnings": (f"{warning.text} → {warning.remedy}" for warning in warnings(view)),
        "Not checked": unchecked,
    }
    return [(title, lines) for title, part in parts.items() if (lines := list(part))]


def _settings(view: StudyView) -> list[dict[str, str]]:
    """What to change, row by row, what mattered most first; nothing where nothing was proved."""
    best = view.conclusion.best
    if view.verdict == "no-improvement" or best is None:
        return []
    mattered = [row["parameter"] for row in (view.state.model or {}).get("importance", ())]
    rank = {name: place for place, name in enumerate(mattered)}
    rank |= {name: -1 for name in best.trial.settings if name.endswith(".service")}
    return [
        {
            "name": change.name,
            "before": change.texts[0],
            "after": change.texts[1],
            "meaning": change.parameter.meaning if change.parameter else "",
            "source": change.parameter.source if change.parameter else "",
        }
        for change in sorted(view.changes, key=lambda change: rank.get(change.name, len(rank)))
    ]
