"""The page: what is said, in words; what is drawn, as data that its script draws."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from autotune.report import ceilings, figures, hosts, sections
from autotune.report.claim import claim
from autotune.report.headline import headline
from autotune.report.html import latency, parameters, timeline, trials
from autotune.report.html.document import templates, write_whole
from autotune.report.html.study_time import load_time, study_time
from autotune.report.parameters import changes
from autotune.report.studies import Study
from autotune.report.summary import summary
from autotune.report.yardstick import Requests, Yardstick, yardstick
from autotune.study.records import COUNTED

REFRESH = 20  # seconds, while the study runs
SETTINGS_SHOWN = 12  # of what to change; the rest is folded away
MARKS = {"improved": "✓", "no-improvement": "=", "unmeetable": "✗"}


def write_page(study: Study, path: Path) -> Path:
    """Write the page, whole or not at all: a browser may be reading the last one."""
    return write_whole(path, page(study))


def page(study: Study) -> str:
    """One self-contained HTML document; it refreshes itself while the study is not finished."""
    said = summary(study.name, study.target, study.state, study.tallies)
    template = templates().get_template("page.html.j2")
    return template.render(
        name=study.name,
        mark=MARKS.get(said["verdict"], "…"),
        verdict=said["verdict"],
        headline=headline(said, study.target, study.state),
        refresh=None if study.state.verdict else REFRESH,
        parts=_parts(study, said),
        settings=_settings(study, said),
        settings_shown=SETTINGS_SHOWN,
        settings_title=sections.change_title(said, study.target, study.state),
        data=_embedded(data(study)),
        plotly=_plotly(),
        trials=len(study.state.trials),
        readings=len(study.readings),
        ceilings=[ceilings.table(record) for record in study.state.ceilings],
        unit=yardstick(study.target, study.state).unit,
        without_hosts=_without_hosts(study),
    )


def data(study: Study) -> dict[str, Any]:
    """Everything the charts are drawn from."""
    slo = study.target.slo.slo
    of_a_model = study.target.simulated is not None
    time = load_time(study.readings) if of_a_model else study_time(study.records, study.readings)
    found, by = claim(study.state), yardstick(study.target, study.state)
    return {
        "slo": {
            "percentile": figures.percentile(slo),
            "limit": 1000 * slo.limit,
            "allowed": 100 * slo.allowed,
            "said": figures.objective(slo),
        },
        "baseline": found.baseline.trial.number if found.baseline else None,
        "best": found.best.trial.number if found.best else None,
        "time": time.axis,
        "unit": {"name": by.unit, "suffix": by.suffix, "from_zero": isinstance(by, Requests)},
        "counted": [str(phase) for phase in COUNTED],
        "peaks": timeline.peaks(study, time),
        "steps": timeline.best_so_far(study, time),
        "readings": timeline.readings(study, time),
        "latency": latency.percentile_curves(study),
        "hosts": _hosts(study),
        "parameters": parameters.columns(study),
        "trials": trials.rows(study),
        "ceilings": [dict(record) for record in study.state.ceilings],
        **_model(study),
    }


def _hosts(study: Study) -> dict[str, dict[str, dict[str, float]]]:
    """Baseline beside best; neither is there without a reading within the objective."""
    slo = study.target.slo.slo
    found = {label: hosts.at_peak(taken, slo) for label, taken in _sides(study).items()}
    return {label: means for label, means in found.items() if means}


def _without_hosts(study: Study) -> list[str]:
    """Whose hosts were watched and are not shown, because no reading of it met the objective."""
    shown = _hosts(study)
    return [
        side for side, taken in _sides(study).items() if side not in shown and hosts.seen(taken)
    ]


def _sides(study: Study) -> dict[str, list[Mapping[str, Any]]]:
    """The readings of the baseline and of the best."""
    return {
        label: [reading for reading in study.readings if reading["trial"] in numbers]
        for label, numbers in timeline.numbers_of(study).items()
    }


def _model(study: Study) -> dict[str, Any]:
    """Importance, pairs that interact, ranges to widen and slices, by the model; or nothing yet."""
    model, by = study.state.model, yardstick(study.target, study.state)
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
        "slices": {name: _in_its_terms(band, by) for name, band in model["slices"].items()},
    }


def _in_its_terms(band: dict[str, list[Any]], by: Yardstick) -> dict[str, list[Any]]:
    """A slice of the model, whose peaks become the user's numbers."""
    told = {key: [by.rounded(by.of(peak)) for peak in band[key]] for key in ("mean", "low", "high")}
    return {**band, **told}


def _parts(study: Study, said: dict[str, Any]) -> list[tuple[str, list[str]]]:
    target, state, tallies = study.target, study.state, study.tallies
    parts = (
        ("Peaks", sections.peaks(said, target, state, tallies)),
        ("Now", sections.under_way(said, target, state)),
        ("What limits it", sections.bottlenecks(said)),
        ("Trials", sections.trials(said, target, state, tallies)),
        ("Time", sections.time(said)),
        ("Warnings", (f"{w['text']} → {w['remedy']}" for w in said["warnings"])),
        ("Not checked", sections.not_checked(target, state)),
    )
    return [(title, found) for title, lines in parts if (found := list(lines))]


def _settings(study: Study, said: dict[str, Any]) -> list[dict[str, str]]:
    """What to change, row by row, what mattered most first; nothing where nothing was proved."""
    found = claim(study.state)
    if said["verdict"] == "no-improvement" or found.best is None or found.baseline is None:
        return []
    mattered = [one["parameter"] for one in (study.state.model or {}).get("importance", ())]
    rank = {name: place for place, name in enumerate(mattered)}
    rank |= {name: -1 for name in found.best.trial.settings if name.endswith(".service")}
    made = changes(found.baseline.trial.settings, found.best.trial.settings)
    return [
        {
            "name": change.name,
            "before": "–" if change.before is None else figures.setting(change.before, change.unit),
            "after": figures.setting(change.after, change.unit),
            "meaning": change.parameter.meaning if change.parameter else "",
            "source": change.parameter.source if change.parameter else "",
        }
        for change in sorted(made, key=lambda change: rank.get(change.name, len(rank)))
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
