"""The page: what is said, in words; what is drawn, as data that its script draws."""

from __future__ import annotations

import base64
import gzip
import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from autotune.report import ceilings, hosts, text
from autotune.report import format as fmt
from autotune.report.headline import headline
from autotune.report.html import latency, parameters, timeline, trials
from autotune.report.html.document import templates, write_whole
from autotune.report.html.study_time import load_time, study_time
from autotune.report.objective import Requests, Units
from autotune.report.studies import Study
from autotune.report.view import StudyView, study_view
from autotune.report.warnings import warnings
from autotune.study.records import COUNTED

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
            data=_embedded(charts),
            plotly=_plotly(),
            trials=len(view.state.trials),
            readings=len(view.study.readings),
            ceilings=[ceilings.table(record) for record in view.state.ceilings],
            unit=view.units.unit,
            quantity=view.units.quantity,
            without_hosts=[
                label
                for label, readings in view.readings().items()
                if label not in charts["hosts"] and hosts.seen(readings)
            ],
        )
    )


def data(view: StudyView) -> dict[str, Any]:
    """Everything the charts are drawn from."""
    study, slo, units = view.study, view.target.slo.slo, view.units
    sides = view.conclusion.sides
    of_a_model = view.target.simulated is not None
    time = load_time(study.readings) if of_a_model else study_time(study.records, study.readings)
    return {
        "slo": {
            "percentile": fmt.percentile(slo),
            "limit": 1000 * slo.limit,
            "allowed": 100 * slo.allowed,
            "said": fmt.objective(slo),
        },
        "baseline": sides["baseline"].trial.number if "baseline" in sides else None,
        "best": sides["best"].trial.number if "best" in sides else None,
        "time": time.axis,
        "unit": {
            "name": units.unit, "suffix": units.suffix, "from_zero": isinstance(units, Requests)
        },
        "quantity": units.quantity,
        "counted": sorted(map(str, COUNTED)),
        "peaks": timeline.peaks(view, time),
        "steps": timeline.best_so_far(view, time),
        "readings": timeline.readings(view, time),
        "latency": latency.percentile_curves(view),
        "hosts": _hosts(view),
        "parameters": parameters.columns(view),
        "trials": trials.rows(view),
        "ceilings": [dict(record) for record in view.state.ceilings],
        **_model(view),
    }  # fmt: skip


def _hosts(view: StudyView) -> dict[str, dict[str, dict[str, float]]]:
    """Baseline beside best; neither is there without a reading that met the SLO."""
    slo = view.target.slo.slo
    means = {label: hosts.at_peak(readings, slo) for label, readings in view.readings().items()}
    return {label: of_side for label, of_side in means.items() if of_side}


def _model(view: StudyView) -> dict[str, Any]:
    """Importance, pairs that interact, ranges to widen and slices, by the model; or nothing yet."""
    model, units = view.state.model, view.units
    if model is None:
        return {}
    total = sum(one["effect"] for one in model["importance"]) or 1.0
    edges = [
        f"{e['parameter']} is best at the {e['end']} end of its range ({e['value']}): "
        f"try {e['try_range'][0]} to {e['try_range'][1]}"
        for e in model["edges"]
    ]
    return {
        "importance": {
            "rows": [
                {"name": one["parameter"], "share": one["effect"] / total}
                for one in model["importance"]
                if one["effect"] >= 0.005 * total
            ],
            "pairs": model["pairs"],
            "edges": edges,
        },
        "slices": {name: _in_its_terms(band, units) for name, band in model["slices"].items()},
    }


def _in_its_terms(band: dict[str, list[Any]], units: Units) -> dict[str, list[Any]]:
    """A slice of the model, whose peaks become the user's numbers."""
    told = {
        key: [units.rounded(units.of(peak)) for peak in band[key]]
        for key in ("mean", "low", "high")
    }
    return {**band, **told}


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
    mattered = [one["parameter"] for one in (view.state.model or {}).get("importance", ())]
    rank = {name: place for place, name in enumerate(mattered)}
    rank |= {name: -1 for name in best.trial.settings if name.endswith(".service")}
    return [
        {
            "name": change.name,
            "before": "–" if change.before is None else fmt.setting(change.before, change.unit),
            "after": fmt.setting(change.after, change.unit),
            "meaning": change.parameter.meaning if change.parameter else "",
            "source": change.parameter.source if change.parameter else "",
        }
        for change in sorted(view.changes, key=lambda change: rank.get(change.name, len(rank)))
    ]


def _embedded(found: dict[str, Any]) -> str:
    """JSON, gzip, base64: a long study's diffs say the same thing over and over.

    Whatever a configuration holds, it cannot end the element that this stands in.
    """
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


@cache
def _plotly() -> str:
    """Plotly's own JavaScript, as its Python package carries it: nothing is fetched from outside."""
    script = files("plotly").joinpath("package_data", "plotly.min.js").read_text(encoding="utf-8")
    return script.replace("</script", "<\\/script")
