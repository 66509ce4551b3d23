"""The top of the report page: cards, provenance, settings to change, commands to apply."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from autotune.report import format as fmt
from autotune.report.parameters import SettingChange
from autotune.report.studies import Study
from autotune.report.units import RequestUnits
from autotune.report.view import STOPPED_VERDICT, StudyView
from autotune.study.ranking import MIN_CONFIGURATIONS, list_measured_trials
from autotune.target.messages import format_count

AFTER_TITLES = {"improved": "After", STOPPED_VERDICT: "Best so far"}
KEPT_LABEL, DROPPED_LABEL = "needed for the gain", "reverted without loss"


def build_cards(view: StudyView) -> list[dict[str, str]]:
    """Return the cards for before, after, gain and SLO: ``title``, ``figure`` and ``note``."""
    return [
        _build_capacity_card(view, "baseline", "Before"),
        _build_capacity_card(view, "best", AFTER_TITLES.get(view.verdict, "Best tried")),
        _build_gain_card(view),
        _build_objective_card(view),
    ]


def _build_capacity_card(view: StudyView, label: str, title: str) -> dict[str, str]:
    side, units = view.conclusion.sides.get(label), view.units
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
    note = f"[{rest.partition(']')[0]}], {pairs}"
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
        ("kernel", " ".join(versions.get(key, "") for key in ("kernel", "machine")).strip()),
    ]
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
    trials = f"{view.outlook.trial_count} of {format_count(budget.trials, 'trial')}"
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
    """Return the settings to change by tier: the ``shown_count`` important, or the rest with
    ``remaining``.

    The result is empty if the verdict is no improvement or if there is no best configuration.
    """
    best = view.conclusion.best
    if view.verdict == "no-improvement" or best is None:
        return []
    has_model = len(list_measured_trials(view.state)) >= MIN_CONFIGURATIONS
    importance = (view.state.model or {}).get("importance", ()) if has_model else ()
    ranks = {row["parameter"]: location for location, row in enumerate(importance)}
    ranks |= {name: -1 for name in best.trial.effective_settings if name.endswith(".service")}
    changes = sorted(view.changes, key=lambda change: ranks.get(change.name, len(ranks)))
    tiers: dict[str, list[dict[str, str]]] = {}
    for change in changes[shown_count:] if remaining else changes[:shown_count]:
        tier, dot, rest = change.name.partition(".")
        group, name = (tier, rest) if dot else ("", change.name)
        tiers.setdefault(group, []).append(_build_change_row(change, name, view.state.explanation))
    return [{"tier": tier, "rows": rows} for tier, rows in tiers.items()]


def _build_change_row(
    change: SettingChange, name: str, explanation: Mapping[str, Any] | None
) -> dict[str, str]:
    measured = ""
    if explanation:
        measured = KEPT_LABEL if change.name in explanation["kept"] else ""
        measured = DROPPED_LABEL if change.name in explanation["dropped"] else measured
    before, after = change.texts
    source = change.parameter.source if change.parameter else ""
    return {
        "name": name, "before": before, "after": after, "measured": measured,
        "meaning": change.meaning, "source": source,
    }  # fmt: skip


def list_apply_commands(view: StudyView) -> list[str]:
    """Return the commands that apply a proven gain or resume a stopped study, if any."""
    if (
        view.verdict == STOPPED_VERDICT
        and view.conclusion.baseline
        and not view.study.running_process
    ):
        return [f"autotune resume {view.name}"]
    if view.verdict != "improved":
        return []
    model = " --of-a-model" if view.target.simulated else ""
    export = f"autotune export {view.name} --out {view.name}-best{model}"
    if model or view.target.command is not None:
        return [export]
    target_path, directory = view.study.target_path, Path.cwd()
    target = (
        target_path.relative_to(directory)
        if target_path.is_relative_to(directory)
        else target_path.name
    )
    return [export, f"autotune apply {view.name}-best {target}"]
