"""The top of the report page: cards, provenance, settings to change, and commands to apply them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autotune.report import format as fmt
from autotune.report.conclusion import STOPPED_VERDICT, MeasuredConfiguration
from autotune.report.memory_costs import format_memory_change
from autotune.report.parameters import SettingChange
from autotune.report.reversal_costs import format_reversal_cost, select_change_action
from autotune.report.studies import Study
from autotune.report.text_report import format_change_memory, select_best_label, sort_changes
from autotune.report.trial_outcomes import format_no_result
from autotune.report.units import RequestUnits
from autotune.report.view import StudyView
from autotune.study.winner_changes import MinimalChanges
from autotune.target.messages import format_count

KEPT_LABEL, DROPPED_LABEL = "needed for the gain", "reverted without loss"


@dataclass(frozen=True)
class Card:
    """A figure at the top of the page."""

    title: str
    figure: str
    note: str


@dataclass(frozen=True)
class ChangeRow:
    """A row of the table of settings to change, as text."""

    name: str
    before: str
    after: str
    action: str
    cost: str
    memory: str
    meaning: str
    source: str


@dataclass(frozen=True)
class TierChanges:
    """The settings to change in one tier."""

    tier: str
    rows: tuple[ChangeRow, ...]


def build_cards(view: StudyView) -> list[Card]:
    """Return the cards at the top of the page. The first cards show the capacities of the baseline, the
    best preset and the best configuration.
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
        "best": "After" if view.verdict == "improved" else select_best_label(view),
    }
    return [
        *(
            _build_capacity_card(view, side_name, sides.get(side_name), title)
            for side_name, title in titles.items()
        ),
        _build_gain_card(view),
        *_build_latency_cards(view),
        *_build_memory_cards(view),
        _build_objective_card(view),
    ]


def _build_capacity_card(
    view: StudyView, side_name: str, side: MeasuredConfiguration | None, title: str
) -> Card:
    units = view.units
    if side is None:
        return Card(title, "–", "not measured")
    capacity, repeats_text = view.capacities[side_name], format_count(side.repeat_count, "repeat")
    if side.best_estimate is not None and side.best_estimate.is_load_limited:
        note = f"limited by {side.best_estimate.limit}"
        return Card(title, units.format_lower_bound(side.best_estimate.peak), note)
    if units.has_value(capacity.peak):
        interval_text = units.format_interval(capacity.low or 0.0, capacity.high or 0.0)
        notes = (
            interval_text,
            f"trial {side.trial.number}",
            repeats_text if side.repeated_peak else "",
            view.deciding_readings[side_name].text,
        )
        return Card(title, units.format_amount(capacity.peak), ", ".join(filter(None, notes)))
    if side.selection_peak is not None and side.trial.meets_slo:
        figure_text = units.format_amount(units.from_peak(side.selection_peak.peak))
        note = "no repeat succeeded" if side.repeats else "not re-measured"
        return Card(title, figure_text, f"search result, {note}")
    return Card(title, "–", format_no_result(side, units))


def _build_gain_card(view: StudyView) -> Card:
    split_text = f"; {view.gain_split}" if view.gain_split else ""
    if view.gain is None and view.verdict == "improved":
        is_web_stack = isinstance(view.units, RequestUnits)
        figure = "from zero" if is_web_stack else "no ratio"
        return Card("Gain", figure, f"the baseline has no {view.units.quantity_name}{split_text}")
    if view.gain is None:
        figure = "none yet" if view.verdict == STOPPED_VERDICT else "none"
        return Card("Gain", figure, f"not proven{split_text}")
    figure, _, interval_rest = view.gain.text.partition(" [")
    pairs_text = format_count(view.gain.pairs, "alternating pair")
    note = f"[{interval_rest.partition(']')[0]}], {pairs_text}{split_text}"
    if view.verdict == "improved":
        return Card("Gain", figure, note)
    return Card("Gain", "none proven", f"{figure} {note}")


def _build_latency_cards(view: StudyView) -> list[Card]:
    latency = view.latency
    if latency is None:
        return []
    intervals = [side.interval_text for side in latency.sides.values() if not side.bound]
    notes = [*([" → ".join(intervals)] if intervals else []), *latency.reasons]
    title = f"{latency.percentile} at {latency.rate_text}"
    return [Card(title, latency.change_text, "; ".join(notes))]


def _build_memory_cards(view: StudyView) -> list[Card]:
    memory_costs = view.memory_costs
    if view.verdict == "no-improvement" or not memory_costs.text:
        return []
    if memory_costs.modelled is None:
        return [Card("Memory", format_memory_change(memory_costs.measured), "measured at capacity")]
    note = "modelled maximum"
    if memory_costs.measured is not None:
        note += f"; {format_memory_change(memory_costs.measured)} measured at capacity"
    return [Card("Memory", format_memory_change(memory_costs.modelled), note)]


def _build_objective_card(view: StudyView) -> Card:
    if not isinstance(view.units, RequestUnits):
        return Card("Objective", view.units.objective, "benchmark command")
    errors = f"{100 * view.target.slo.objective.errors:g} % of requests"
    return Card("SLO", view.units.objective, f"errors ≤ {errors}")


def list_provenance(view: StudyView) -> list[tuple[str, str]]:
    """Return labels and texts about the measurement: dates, versions, hosts and load."""
    study, target, budget = view.study, view.target, view.target.budget
    provenance = study.provenance
    versions = provenance.versions
    dates = [
        timestamp[:16].split("T")
        for timestamp in (provenance.started, provenance.concluded)
        if timestamp
    ]
    if len(dates) > 1 and dates[0][0] == dates[1][0]:
        dates[1] = dates[1][1:]  # two equal dates are shown once
    labelled_texts = [
        ("measured", " to ".join(map(" ".join, dates)) + " UTC"),
        ("tool", f"autotune {provenance.autotune}, Python {versions.get('python', '–')}"),
        ("hosts", "; ".join(_describe_hosts(study))),
    ]
    if not target.simulated:
        kernel = " ".join(versions.get(version_key, "") for version_key in ("kernel", "machine"))
        labelled_texts.append(("kernel", kernel.strip()))
    if target.command is not None:
        labelled_texts.append(("command", " ".join(target.command)))
    else:
        load = target.load
        generator = load.command[0] if load.command else load.generator
        model_note = " (simulated; no host was touched)" if target.simulated else ""
        labelled_texts.append(("load", f"{generator} on {load.page_text}{model_note}"))
        if any(tier.app for tier in target.tiers.values()):
            labelled_texts.append(("data", f"{target.data.pairs:,} pairs"))
    time_text = (
        f"{fmt.format_duration(view.state.elapsed_seconds)} of {fmt.format_duration(budget.time)}"
    )
    trials_text = (
        f"{view.outlook.trial_count} of {format_count(budget.trials, 'configuration')} in "
        f"{format_count(len(view.state.list_finished_trials()), 'measurement')}"
    )
    search_text = f"sampler {target.search.sampler}, seed {target.search.seed}"
    return [
        *((row_label, text) for row_label, text in labelled_texts if text),
        ("budget", f"{trials_text}, {time_text}; {search_text}"),
    ]


def _describe_hosts(study: Study) -> Iterator[str]:
    for host_name, facts in study.first_record.facts.items():
        memory = f", {facts.memory / 2**30:.1f} GB" if facts.memory else ""
        yield f"{host_name} ({format_count(facts.cpus or 0, 'CPU')}{memory})"


def group_changes_by_tier(
    view: StudyView, shown_count: int, *, remaining: bool = False
) -> list[TierChanges]:
    """Return the settings to change by tier: the first ``shown_count``, or all other settings if
    ``remaining`` is true.

    The settings whose reversal would cost the most capacity come first. The result is empty without an
    improvement.
    """
    if view.verdict == "no-improvement" or view.conclusion.best is None:
        return []
    changes = sort_changes(view)
    tiers: dict[str, list[ChangeRow]] = {}
    for change in changes[shown_count:] if remaining else changes[:shown_count]:
        tier_name, separator, parameter_name = change.name.partition(".")
        if not separator:
            tier_name, parameter_name = "", change.name
        tiers.setdefault(tier_name, []).append(_build_change_row(view, change, parameter_name))
    return [TierChanges(tier, tuple(rows)) for tier, rows in tiers.items()]


def _build_change_row(view: StudyView, change: SettingChange, parameter_name: str) -> ChangeRow:
    before_text, after_text = change.value_texts
    return ChangeRow(
        name=parameter_name,
        before=before_text,
        after=after_text,
        action="" if view.target.command is not None else select_change_action(change),
        cost=_format_cost(view, change.name),
        memory=format_change_memory(view, change.name),
        meaning=change.meaning,
        source=change.parameter.source if change.parameter else "",
    )


def _format_cost(view: StudyView, change_name: str) -> str:
    minimal_changes = view.state.minimal_changes or MinimalChanges()
    if change_name in minimal_changes.dropped:
        return DROPPED_LABEL
    if change_name in minimal_changes.kept and change_name not in view.reversal_costs:
        return KEPT_LABEL
    return format_reversal_cost(view.reversal_costs.get(change_name), view.units, view.best_peak)
