"""The top of the report page: cards, provenance, settings to change, commands to apply."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autotune.report import format as fmt
from autotune.report.parameters import SettingChange
from autotune.report.reversal_costs import format_reversal_cost, select_action
from autotune.report.studies import Study
from autotune.report.text_report import format_gain_split, sort_changes
from autotune.report.units import RequestUnits
from autotune.report.view import STOPPED_VERDICT, MeasuredConfiguration, StudyView
from autotune.target.messages import format_count

AFTER_TITLES = {"improved": "After", STOPPED_VERDICT: "Best so far"}
KEPT_LABEL, DROPPED_LABEL = "needed for the gain", "reverted without loss"


def build_cards(view: StudyView) -> list[dict[str, str]]:
    """Return the cards, each with ``title``, ``figure`` and ``note``.

    They show the capacity before, with the best preset and after, the gain, and the SLO.
    """
    conclusion = view.conclusion
    sides: dict[str, MeasuredConfiguration | None] = dict(conclusion.sides)
    presets = {}
    if conclusion.shows_preset:
        sides["preset"] = conclusion.preset
        presets = {"preset": "Best preset"}
    titles = {
        "baseline": "Before",
        **presets,
        "best": AFTER_TITLES.get(view.verdict, "Best tried"),
    }
    return [
        *(_build_capacity_card(view, label, sides.get(label), t) for label, t in titles.items()),
        _build_gain_card(view),
        _build_objective_card(view),
    ]


def _build_capacity_card(
    view: StudyView, label: str, side: MeasuredConfiguration | None, title: str
) -> dict[str, str]:
    units = view.units
    if side is None:
        return {"title": title, "figure": "–", "note": "not measured"}
    capacity, repeats = view.capacities[label], f"re\u2011measured {side.repeat_count}×"
    if side.best_estimate is not None and side.best_estimate.is_load_limited:
        note = f"limited by {side.best_estimate.limit}"
        return {
            "title": title,
            "figure": units.format_lower_bound(side.best_estimate.peak),
            "note": note,
        }
    if units.has_value(capacity["peak"]):
        interval = units.format_interval(capacity["low"] or 0.0, capacity["high"] or 0.0)
        note = f"{interval}, trial {side.trial.number}" + (
            f", {repeats}" if side.repeated_peak else ""
        )
        return {"title": title, "figure": units.format_amount(capacity["peak"]), "note": note}
    if side.selection_peak is not None and side.selection_peak.is_feasible:
        figure = units.format_amount(units.from_peak(side.selection_peak.peak))
        return {"title": title, "figure": figure, "note": "search result, not re-measured"}
    return {"title": title, "figure": "–", "note": units.no_result_text}


def _build_gain_card(view: StudyView) -> dict[str, str]:
    if view.gain is None:
        figures = {"improved": "from zero", STOPPED_VERDICT: "none yet"}
        note = "not proven" if view.verdict != "improved" else "the baseline has no capacity"
        return {"title": "Gain", "figure": figures.get(view.verdict, "none"), "note": note}
    figure, _, rest = view.units.format_gain(view.gain).partition(" [")
    pairs = format_count(view.gain["pairs"], "alternating pair")
    split = f"; {text}" if (text := format_gain_split(view)) else ""
    note = f"[{rest.partition(']')[0]}], {pairs}{split}"
    if view.verdict == "improved":
        return {"title": "Gain", "figure": figure, "note": note}
    return {"title": "Gain", "figure": "none proven", "note": f"{figure} {note}"}


def _build_objective_card(view: StudyView) -> dict[str, str]:
    if not isinstance(view.units, RequestUnits):
        return {"title": "Objective", "figure": view.units.objective, "note": "benchmark command"}
    errors = f"{100 * view.target.slo.objective.errors:g} % of requests"
    return {"title": "SLO", "figure": view.units.objective, "note": f"errors ≤ {errors}"}


def list_provenance(view: StudyView) -> list[tuple[str, str]]:
    """Return when, with which tool, on which hosts and under which load autotune measured."""
    study, target, budget = view.study, view.target, view.target.budget
    origin = study.provenance
    versions = origin["versions"]
    dates = [str(at)[:16].split("T") for at in (origin["started"], origin["concluded"]) if at]
    if len(dates) > 1 and dates[0][0] == dates[1][0]:
        dates[1] = dates[1][1:]  # the same day is shown once
    rows = [
        ("measured", " to ".join(map(" ".join, dates)) + " UTC"),
        ("tool", f"autotune {origin['autotune']}, Python {versions.get('python', '–')}"),
        ("hosts", "; ".join(_describe_hosts(study))),
    ]
    if not target.simulated:
        kernel = " ".join(versions.get(key, "") for key in ("kernel", "machine"))
        rows.append(("kernel", kernel.strip()))
    if target.command is not None:
        rows.append(("command", " ".join(target.command)))
    else:
        load = target.load
        generator = load.command[0] if load.command else load.generator
        model = " (simulated; no host was touched)" if target.simulated else ""
        rows.append(("load", f"{generator} on {load.page_text}{model}"))
        if any(tier.app for tier in target.tiers.values()):
            rows.append(("data", f"{target.data.pairs:,} pairs"))
    spent = (
        f"{fmt.format_duration(view.state.elapsed_seconds)} of {fmt.format_duration(budget.time)}"
    )
    trials = (
        f"{view.outlook.trial_count} of {format_count(budget.trials, 'configuration')} in "
        f"{format_count(len(view.state.list_finished()), 'measurement')}"
    )
    search = f"sampler {target.search.sampler}, seed {target.search.seed}"
    return [
        *((name, text) for name, text in rows if text),
        ("budget", f"{trials}, {spent}; {search}"),
    ]


def _describe_hosts(study: Study) -> Iterator[str]:
    for name, facts in (study.records[0].get("facts") or {}).items():
        memory = f", {facts['memory'] / 2**30:.1f} GB" if facts.get("memory") else ""
        yield f"{name} ({format_count(facts['cpus'], 'CPU')}{memory})"


def group_changes_by_tier(
    view: StudyView, shown_count: int, *, remaining: bool = False
) -> list[dict[str, Any]]:
    """Return the settings to change by tier: the first ``shown_count``, or the rest with ``remaining``.

    Settings with a large cost of reverting come first. The result is empty without an improvement.
    """
    if view.verdict == "no-improvement" or view.conclusion.best is None:
        return []
    changes = sort_changes(view)
    tiers: dict[str, list[dict[str, str]]] = {}
    for change in changes[shown_count:] if remaining else changes[:shown_count]:
        tier, dot, rest = change.name.partition(".")
        group, name = (tier, rest) if dot else ("", change.name)
        tiers.setdefault(group, []).append(_build_change_row(view, change, name))
    return [{"tier": tier, "rows": rows} for tier, rows in tiers.items()]


def _build_change_row(view: StudyView, change: SettingChange, name: str) -> dict[str, str]:
    before, after = change.texts
    return {
        "name": name,
        "before": before,
        "after": after,
        "action": "" if view.target.command is not None else select_action(change),
        "cost": _format_cost(view, change.name),
        "meaning": change.meaning,
        "source": change.parameter.source if change.parameter else "",
    }


def _format_cost(view: StudyView, name: str) -> str:
    explanation = view.state.explanation or {}
    if name in explanation.get("dropped", ()):
        return DROPPED_LABEL
    if name in explanation.get("kept", ()) and name not in view.reversal_costs:
        return KEPT_LABEL
    return format_reversal_cost(view.reversal_costs.get(name), view.units, view.best_peak)
