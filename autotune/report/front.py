"""The top of the report page: cards, provenance, settings to change, commands to apply."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from autotune.report import format as fmt
from autotune.report.objective import Requests
from autotune.report.parameters import Change
from autotune.report.studies import Study
from autotune.report.view import STOPPED, StudyView
from autotune.study.ranking import LEAST_MEASURED, measured
from autotune.target.messages import plural

AFTER = {"improved": "After", STOPPED: "Best so far"}
KEPT, WITHOUT_LOSS = "needed for the gain", "reverted without loss"


def cards(view: StudyView) -> list[dict[str, str]]:
    """Return the cards for before, after, gain and SLO: ``title``, ``figure`` and ``note``."""
    return [
        _capacity_card(view, "baseline", "Before"),
        _capacity_card(view, "best", AFTER.get(view.verdict, "Best tried")),
        _gain_card(view),
        _objective_card(view),
    ]


def _capacity_card(view: StudyView, label: str, title: str) -> dict[str, str]:
    side, units = view.conclusion.sides.get(label), view.units
    if side is None:
        return {"title": title, "figure": "–", "note": "not measured"}
    capacity, again = view.capacities[label], f"re\u2011measured {side.measured_again}×"
    if side.estimate is not None and side.estimate.limited:
        note = f"limited by {side.estimate.limit}"
        return {"title": title, "figure": units.at_least(side.estimate.peak), "note": note}
    if units.shows(capacity["peak"]):
        interval = units.interval(capacity["low"] or 0.0, capacity["high"] or 0.0)
        note = f"{interval}, trial {side.trial.number}" + (f", {again}" if side.fresh else "")
        return {"title": title, "figure": units.amount(capacity["peak"]), "note": note}
    if side.own is not None and side.own.feasible:
        figure = units.amount(units.of(side.own.peak))
        return {"title": title, "figure": figure, "note": "search result, not re-measured"}
    return {"title": title, "figure": "–", "note": units.nothing}


def _gain_card(view: StudyView) -> dict[str, str]:
    if view.gain is None:
        figures = {"improved": "from zero", STOPPED: "none yet"}
        note = "not proven" if view.verdict != "improved" else "the baseline has no capacity"
        return {"title": "Gain", "figure": figures.get(view.verdict, "none"), "note": note}
    figure, _, rest = view.units.gained(view.gain).partition(" [")
    pairs = plural(view.gain["pairs"], "alternating pair")
    note = f"[{rest.partition(']')[0]}], {pairs}"
    if view.verdict == "improved":
        return {"title": "Gain", "figure": figure, "note": note}
    return {"title": "Gain", "figure": "none proven", "note": f"{figure} {note}"}


def _objective_card(view: StudyView) -> dict[str, str]:
    if not isinstance(view.units, Requests):
        return {"title": "Objective", "figure": view.units.objective, "note": "benchmark command"}
    errors = f"{100 * view.target.slo.slo.errors:g} % of requests"
    return {"title": "SLO", "figure": view.units.objective, "note": f"errors ≤ {errors}"}


def provenance(view: StudyView) -> list[tuple[str, str]]:
    """Return when, with which tool, on which hosts and under which load autotune measured."""
    study, target, budget = view.study, view.target, view.target.budget
    origin = study.origin
    versions = origin["versions"]
    dates = [str(at)[:16].split("T") for at in (origin["started"], origin["concluded"]) if at]
    if len(dates) > 1 and dates[0][0] == dates[1][0]:
        dates[1] = dates[1][1:]  # the same day is shown once
    rows = [
        ("measured", " to ".join(map(" ".join, dates)) + " UTC"),
        ("tool", f"autotune {origin['autotune']}, Python {versions.get('python', '–')}"),
        ("hosts", "; ".join(_hosts(study))),
        ("kernel", " ".join(versions.get(key, "") for key in ("kernel", "machine")).strip()),
    ]
    if target.command is not None:
        rows.append(("command", " ".join(target.command)))
    else:
        load = target.load
        generator = load.command[0] if load.command else load.generator
        model = " (simulated; no host was touched)" if target.simulated else ""
        rows.append(("load", f"{generator} on {load.page}{model}"))
        if any(tier.app for tier in target.tiers.values()):
            rows.append(("data", f"{target.data.pairs:,} pairs"))
    spent = f"{fmt.duration(view.state.elapsed)} of {fmt.duration(budget.time)}"
    trials = f"{view.outlook.counted} of {plural(budget.trials, 'trial')}"
    search = f"sampler {target.search.sampler}, seed {target.search.seed}"
    return [
        *((name, text) for name, text in rows if text),
        ("budget", f"{trials}, {spent}; {search}"),
    ]


def _hosts(study: Study) -> Iterator[str]:
    for name, facts in (study.records[0].get("facts") or {}).items():
        memory = f", {facts['memory'] / 2**30:.1f} GB" if facts.get("memory") else ""
        yield f"{name} ({plural(facts['cpus'], 'CPU')}{memory})"


def change_groups(view: StudyView, most: int, *, after: bool = False) -> list[dict[str, Any]]:
    """Return the settings to change by tier: the ``most`` important, or the rest with ``after``.

    The result is empty if the verdict is no improvement or if there is no best configuration.
    """
    best = view.conclusion.best
    if view.verdict == "no-improvement" or best is None:
        return []
    tells = len(measured(view.state)) >= LEAST_MEASURED
    importance = (view.state.model or {}).get("importance", ()) if tells else ()
    rank = {row["parameter"]: place for place, row in enumerate(importance)}
    rank |= {name: -1 for name in best.trial.in_effect if name.endswith(".service")}
    ordered = sorted(view.changes, key=lambda change: rank.get(change.name, len(rank)))
    tiers: dict[str, list[dict[str, str]]] = {}
    for change in ordered[most:] if after else ordered[:most]:
        tier, dot, rest = change.name.partition(".")
        group, name = (tier, rest) if dot else ("", change.name)
        tiers.setdefault(group, []).append(_row(change, name, view.state.explained))
    return [{"tier": tier, "rows": rows} for tier, rows in tiers.items()]


def _row(change: Change, name: str, explained: Mapping[str, Any] | None) -> dict[str, str]:
    measured = ""
    if explained:
        measured = KEPT if change.name in explained["kept"] else ""
        measured = WITHOUT_LOSS if change.name in explained["dropped"] else measured
    before, after = change.texts
    source = change.parameter.source if change.parameter else ""
    return {
        "name": name, "before": before, "after": after, "measured": measured,
        "meaning": change.meaning, "source": source,
    }  # fmt: skip


def apply_commands(view: StudyView) -> list[str]:
    """Return the commands that apply a proven gain or resume a stopped study, if any."""
    if view.verdict == STOPPED and view.conclusion.baseline and not view.study.holder:
        return [f"autotune resume {view.name}"]
    if view.verdict != "improved":
        return []
    model = " --of-a-model" if view.target.simulated else ""
    export = f"autotune export {view.name} --out {view.name}-best{model}"
    if model or view.target.command is not None:
        return [export]
    source, here = view.study.source, Path.cwd()
    target = source.relative_to(here) if source.is_relative_to(here) else source.name
    return [export, f"autotune apply {view.name}-best {target}"]
