"""A study's report as text: the verdict first, then the next steps."""

from __future__ import annotations

from collections.abc import Iterator

from autotune.report import format as fmt
from autotune.report.beds import format_bed_lines
from autotune.report.ceilings import format_ceiling_lines
from autotune.report.conclusion import STOPPED_VERDICT, MeasuredConfiguration
from autotune.report.latency import estimate_latency_at
from autotune.report.memory_costs import MIN_SHOWN_BYTES, format_memory_change
from autotune.report.parameters import (
    SettingChange,
    find_declared_parameters,
    list_active_parameters,
)
from autotune.report.reversal_costs import format_reversal_cost, select_change_action
from autotune.report.trial_outcomes import (
    describe_bottleneck,
    describe_errors,
    format_no_result,
    format_outcome,
    format_outcome_counts,
    format_trial_label,
    group_failures,
)
from autotune.report.view import StudyView
from autotune.study.study_state import Phase
from autotune.target.messages import format_count
from autotune.terminal import StyledLine

MAX_NAMED_CHANGES = 4  # number of changes listed at the end of a run; the report lists all
MAX_BRIEF_WARNINGS = 3  # number of warnings listed at the end of a run


def format_latency_lines(view: StudyView, rate: float) -> Iterator[StyledLine]:
    """Yield lines with the latency percentile of baseline and best at ``rate``. If a percentile is only
    a bound, also yield the reason.
    """
    yield "", ""
    yield f"{fmt.format_percentile(view.target.slo.objective)} at {fmt.format_rate(rate)}/s", "bold"
    latencies = estimate_latency_at(view, rate)
    for side_name, latency in latencies.items():
        yield f"  {side_name:9}{latency}" + (f", {latency.why}" if latency.why else ""), ""
    if not latencies:
        yield "  unknown: too few readings", ""


def format_report_lines(view: StudyView, width: int | None = None) -> Iterator[StyledLine]:
    """Yield the report of a study, finished or not.

    ``width`` (in columns) shortens the descriptions of parameters, which are otherwise printed in full.
    """
    yield str(view.headline), view.headline.style
    for title, lines in build_sections(view, width).items():
        yield "", ""
        if title not in ("Capacity", "Now"):
            yield title, "bold"
        yield from ((f"  {line}".rstrip(), "") for line in lines)


def format_brief_lines(view: StudyView) -> Iterator[StyledLine]:
    """Yield the verdict in a few lines for the end of a run; `report` prints all sections."""
    yield str(view.headline), view.headline.style
    findings = [
        describe_bottleneck(finding, with_evidence=False) for finding in view.bottlenecks.values()
    ]
    if findings:
        findings = [f"limits   {', then '.join(dict.fromkeys(findings))}"]
    change_texts = [
        f"{change.name} {' → '.join(change.value_texts)}"
        for change in _list_proven_changes(view)[:MAX_NAMED_CHANGES]
    ]
    if more_count := len(_list_proven_changes(view)) - len(change_texts):
        change_texts.append(f"{more_count} more")
    changes = [f"change   {', '.join(change_texts)}"] if change_texts else []
    report = f"report   autotune report {view.study.argument} (add --open for the browser)"
    lines = (*_format_capacities(view), *findings, *changes, *_format_brief_warnings(view), report)
    for line in lines:
        yield f"  {line}", ""
    next_command = view.next_steps.commands[0]
    if not next_command.startswith("autotune report"):
        yield f"  next     {next_command}", "bold"


def _format_brief_warnings(view: StudyView) -> Iterator[str]:
    """Yield the first warnings as sentences, and the number of further warnings."""
    texts = [warning.text for warning in view.warnings]
    for text in texts[:MAX_BRIEF_WARNINGS]:
        yield f"warning  {text}"
    hidden_count = len(texts) - MAX_BRIEF_WARNINGS
    if hidden_count > 0:
        yield f"         {format_count(hidden_count, 'more warning')} in the report"


def _list_proven_changes(view: StudyView) -> tuple[SettingChange, ...]:
    return view.changes if view.verdict == "improved" else ()


def build_sections(view: StudyView, width: int | None = None) -> dict[str, list[str]]:
    """Return the sections of a report by title, in order, without empty sections."""
    state = view.state
    lines_by_title = {
        "Capacity": _format_capacities(view),
        "Now": _format_running_trial(view),
        "Measured": _format_measured_trials(view),
        "Bottleneck": (
            f"{side_name:9}{describe_bottleneck(finding)}"
            for side_name, finding in view.bottlenecks.items()
        ),
        select_change_title(view): _format_changes(view, width),
        "Apply": _format_apply_steps(view),
        "Undo": view.next_steps.undo,
        "Ceilings": (line for record in state.ceilings for line in format_ceiling_lines(record)),
        "Test beds": format_bed_lines(view),
        "Configurations": _format_trials(view),
        "Time": _format_time_shares(view),
        "Warnings": (
            line
            for warning in view.warnings
            for line in (f"! {warning.text}", f"  → {warning.remedy}")
        ),
        "Not checked": _format_unchecked_aspects(view),
        "Next": view.next_steps.commands,
    }
    return {title: lines for title, section in lines_by_title.items() if (lines := list(section))}


def select_change_title(view: StudyView) -> str:
    """Return the title of the list of changes."""
    best_number = view.conclusion.best.trial.number if view.conclusion.best else None
    settings_text = format_count(len(view.changes), "setting")
    match view.verdict:
        case "improved":
            return f"Change {settings_text} (trial {best_number})"
        case "no-improvement":
            return "Change nothing"
        case _:
            return f"{select_best_label(view)}: {settings_text} changed (trial {best_number})"


def select_best_label(view: StudyView) -> str:
    """Return the title for the best configuration if its gain is not proven."""
    if view.verdict != STOPPED_VERDICT:
        return "Best tried"
    return "Best candidate" if view.outlook.is_baseline_leading else "Best so far"


def _list_shown_sides(view: StudyView) -> dict[str, MeasuredConfiguration]:
    """Return baseline, preset and best for display; a preset that won is shown once, as the best
    configuration.
    """
    sides_by_name, preset_side = dict(view.conclusion.sides), view.conclusion.preset
    if preset_side is None or not view.conclusion.shows_preset:
        return sides_by_name
    best_side = sides_by_name.pop("best", None)
    return {**sides_by_name, "preset": preset_side, **({"best": best_side} if best_side else {})}


def _format_apply_steps(view: StudyView) -> Iterator[str]:
    yield from view.next_steps.apply
    if view.next_steps.note:
        yield view.next_steps.note


def _format_capacities(view: StudyView) -> Iterator[str]:
    yield from _format_sides(view)
    if view.gain_split:
        yield f"{'gain':9}{view.gain_split}"
    if view.latency:
        yield f"{'latency':9}{view.latency.text}"
    if view.verdict != "no-improvement" and (memory := view.memory_costs.text):
        yield f"{'memory':9}{memory}"


def _format_sides(view: StudyView) -> Iterator[str]:
    units = view.units
    for side_name, side in _list_shown_sides(view).items():
        capacity, readings = view.capacities[side_name], view.deciding_readings[side_name]
        trial_text = f"trial {side.trial.number}"
        evidence = f", {readings.text}" if readings.text else ""
        if side.best_estimate is not None and side.best_estimate.is_load_limited:
            bound_text = units.format_lower_bound(side.best_estimate.peak)
            limit_text = f"(limited by {side.best_estimate.limit})"
            yield f"{side_name:9}{bound_text} {limit_text}  {trial_text}{evidence}"
        elif units.has_value(capacity.peak):
            interval_text = units.format_interval(capacity.low or 0.0, capacity.high or 0.0)
            repeats = f", {format_count(side.repeat_count, 'repeat')}" if side.repeated_peak else ""
            yield (
                f"{side_name:9}{units.format_amount(capacity.peak)} {interval_text}  "
                f"{trial_text}{repeats}{evidence}"
            )
        elif side.selection_peak is not None and side.trial.meets_slo:
            yield (
                f"{side_name:9}{units.format_amount(units.from_peak(side.selection_peak.peak))} (search "
                f"only)  {trial_text}{evidence}"
            )
        else:
            reading_counts = view.study.reading_counts.get(side.trial.number)
            reason = side.trial.failure or describe_errors(reading_counts) or readings.failure_text
            outcome = format_no_result(side, units)
            yield f"{side_name:9}{outcome}  {trial_text}" + (f": {reason}" if reason else "")


def _format_measured_trials(view: StudyView) -> Iterator[str]:
    """Yield the outcome of each measurement of `autotune measure`."""
    trials = view.state.list_finished_trials(Phase.MEASURE)
    label_width = max((len(format_trial_label(trial)) for trial in trials), default=0)
    for trial in trials:
        yield f"{format_trial_label(trial):{label_width}} {format_outcome(trial, view.units)}"


def _format_running_trial(view: StudyView) -> Iterator[str]:
    if view.verdict != STOPPED_VERDICT or view.state.list_finished_trials(Phase.MEASURE):
        return
    if view.outlook.lead_text and view.conclusion.best:
        yield f"{view.outlook.lead_text} over the baseline so far (not yet proven)"
    for trial in view.state.list_running_trials() or view.state.trials[-1:]:
        if trial.is_finished:
            continue
        yield f"trial {trial.number} ({trial.phase}) is in progress, or was when the study stopped"
    if time_left_text := view.outlook.time_left_text:
        yield f"about {time_left_text}"


def _format_changes(view: StudyView, width: int | None) -> Iterator[str]:
    """Yield the settings that the best configuration changes, or only their number if no gain is
    measurable.
    """
    if view.verdict == "no-improvement":
        if view.changes and view.conclusion.best:
            settings_text, trial = (
                format_count(len(view.changes), "setting"),
                view.conclusion.best.trial,
            )
            is_likely = view.gain is not None and view.units.is_gain(view.gain)
            outcome = "Its gain is not proven." if is_likely else "No measurable gain."
            yield f"best candidate: trial {trial.number} ({settings_text} changed). {outcome}"
        return
    change_rows = [_build_change_row(view, change) for change in sort_changes(view)]
    column_widths = [
        max((len(change_row[column]) for change_row in change_rows), default=0)
        for column in range(5)
    ]
    for change_row, change in zip(change_rows, sort_changes(view), strict=True):
        padded_cells = [
            f"{cell_text:{column_width}}"
            for cell_text, column_width in zip(change_row, column_widths, strict=True)
            if column_width
        ]
        line = "  ".join(padded_cells)
        meaning = change.meaning
        meaning_text = meaning if width is None else _shorten_text(meaning, width - len(line) - 4)
        yield f"{line}  {meaning_text}"


def sort_changes(view: StudyView) -> list[SettingChange]:
    """Return the changes, sorted by the cost of reverting: the largest cost first, unknown costs at the
    end.
    """
    ranks = {name: rank for rank, name in enumerate(view.reversal_costs)}
    return sorted(view.changes, key=lambda change: ranks.get(change.name, len(ranks)))


def _build_change_row(view: StudyView, change: SettingChange) -> tuple[str, ...]:
    """Return the cells of a change's row: name, values, action, cost of reverting and memory."""
    before_text = "–" if change.before is None else fmt.format_setting(change.before)
    change_action = select_change_action(change)
    cost = view.reversal_costs.get(change.name)
    return (
        change.name,
        f"{before_text} → {change.value_texts[1]}",
        "" if view.target.command is not None else change_action,
        format_reversal_cost(cost, view.units, view.best_peak) if view.reversal_costs else "",
        format_change_memory(view, change.name),
    )


def format_change_memory(view: StudyView, parameter_name: str) -> str:
    """Return the modelled memory that a change needs: empty for none, a dash if it is unknown.

    The text is empty for all changes if no change is known to need memory.
    """
    memory_costs = view.memory_costs
    byte_change = memory_costs.by_change.get(parameter_name)
    if not memory_costs.has_memory_changes or (
        byte_change is not None and abs(byte_change) < MIN_SHOWN_BYTES
    ):
        return ""
    return format_memory_change(byte_change)


def _shorten_text(text: str, max_width: int) -> str:
    if len(text) <= max_width:
        return text
    return text[: max_width - 1].rstrip(" ,;:.") + "…" if max_width > 20 else ""


def _format_trials(view: StudyView) -> Iterator[str]:
    trial_count = sum(view.trial_counts.values())
    if not trial_count:
        return
    outcome_texts = ", ".join(
        count_text
        for count_text in format_outcome_counts(view.trial_counts)
        if not count_text.startswith("0 ")
    )
    measurements = format_count(len(view.state.list_finished_trials()), "measurement")
    outcomes = f": {outcome_texts}" if outcome_texts else ""
    yield f"{trial_count} of {view.target.budget.trials} in {measurements}{outcomes}"
    if view.state.stop_reason:
        yield f"search finished: {view.state.stop_reason}"
    for failure in group_failures(view.state, view.study.reading_counts):
        trial_noun = "trial" if len(failure.trials) == 1 else "trials"
        example = f": {failure.example}" if failure.example else ""
        numbers_text = fmt.format_first_numbers(failure.trials)
        yield f"{len(failure.trials)} × {failure.cause}{example} ({trial_noun} {numbers_text})"


def _format_time_shares(view: StudyView) -> Iterator[str]:
    total_seconds = view.seconds_by_activity["total"]
    if total_seconds:
        activity_shares = [
            f"{activity} {fmt.format_share(seconds, total_seconds)}"
            for activity, seconds in view.seconds_by_activity.items()
            if activity != "total"
        ]
        yield f"{fmt.format_duration(total_seconds)}: {', '.join(activity_shares)}"


def _format_unchecked_aspects(view: StudyView) -> Iterator[str]:
    best_side, target = view.conclusion.best, view.target
    if best_side is None:
        return
    if target.command_goal is not None:
        yield "whether the command's value measures your goal; other machines"
    else:
        settings = list_active_parameters(
            best_side.latest_trial.settings, find_declared_parameters(target)
        )
        unread_names = sorted(settings - set(best_side.latest_trial.effective))
        if unread_names:
            names_text = ", ".join(unread_names[:3]) + (", …" if unread_names[3:] else "")
            yield (
                f"{len(unread_names)} of {len(settings)} values cannot be read back from the software: "
                f"{names_text}"
            )
        if target.simulated is None:
            load = target.load.command[0] if target.load.command else target.load.generator
            yield f"any load other than {load} on {target.load.page_text}; other machines"
        else:
            yield "real hosts"
    if (
        len(view.changes) > 1
        and view.verdict != "no-improvement"
        and not view.state.minimal_changes
    ):
        yield "the effects of single changes: they were measured together"
