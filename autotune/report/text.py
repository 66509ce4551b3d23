"""A study's report as text: the verdict first, then the next steps."""

from __future__ import annotations

from collections.abc import Iterator

from autotune.optimize.confirmation import CLAIM_COVERAGE, LEAST_PAIRS
from autotune.report import format as fmt
from autotune.report.beds import bed_lines, of_beds
from autotune.report.ceilings import ceiling_lines
from autotune.report.latency import latency_at
from autotune.report.objective import Requests, Values
from autotune.report.parameters import Change, active
from autotune.report.trials import (
    describe_counts,
    describe_errors,
    describe_finding,
    failures,
    label,
    outcome,
)
from autotune.report.view import STOPPED, StudyView
from autotune.report.warnings import warnings
from autotune.study.records import Phase
from autotune.target.messages import plural
from autotune.terminal import Line

MARKS = {"improved": ("✓", "green"), "unmeetable": ("✗", "red"), STOPPED: ("…", "yellow")}
UNDECIDED = ("=", "yellow")
NAMED = 4  # changes listed at the end of a run; the report lists all


def headline(view: StudyView) -> str:
    """Return the verdict in one line: ``+41 % [36, 47] requests/s at p99 ≤ 50 ms, 6 alternating pairs``.

    The line claims only proven results.
    """
    match view.verdict:
        case "improved" if view.gain:
            text = _gain(view)
        case "improved":
            # A baseline without a capacity gives no ratio.
            requests = isinstance(view.units, Requests)
            lacking = "does not meet the SLO at any rate" if requests else "gave no value"
            best = view.units.amount(view.capacities["best"]["peak"])
            text = f"{best}{view.units.at}; the baseline {lacking}"
        case "no-improvement":
            text = _not_improved(view)
        case "unmeetable":
            text = _unmeetable(view)
        case _ if view.conclusion.baseline is None and not sum(view.trials.values()):
            text = f"no verdict: {view.name} compared no configurations{view.units.at}"
        case _:
            text = f"unfinished: no verdict for {view.name} yet"
    return f"{text} (simulated; no host was touched)" if view.target.simulated else text


def _not_improved(view: StudyView) -> str:
    units = view.units
    if view.gain is not None:
        worse = units.worse(view.gain)
        if not worse and view.gain["pairs"] < LEAST_PAIRS:
            return f"too little time to prove a gain (needs {LEAST_PAIRS} pairs): {_gain(view)}"
        if units.better(view.gain):
            sure = f"{100 * CLAIM_COVERAGE:g} %"
            return f"likely an improvement, but not proven at {sure}: {_gain(view)}"
        kind = (
            "improvement: the best candidate is worse, "
            if worse
            else "distinguishable improvement: "
        )
        return f"no {kind}{_gain(view)}"
    if sum(view.trials.values()) <= 1:
        reason = "time ran out before any candidate was tried"
    elif view.conclusion.best:
        reason = "no other configuration was confirmed"
    else:
        met = "met the SLO" if isinstance(units, Requests) else "gave a value"
        reason = f"no other configuration {met}"
    if limited := _limited(view):
        return f"no gain could be measured{units.at}: {limited}"
    return f"no improvement{units.at}: {reason}"


def _limited(view: StudyView) -> str:
    """Return the highest capacity under a load limit, as text; empty if no trial hit a limit."""
    limited = [t.peak for t in view.state.trials if t.peak and t.peak.limited and t.peak.met]
    if not limited:
        return ""
    highest = max(limited, key=lambda peak: peak.peak)
    bound = view.units.at_least(highest.peak)
    return (
        f"the capacity is {bound} in {plural(len(limited), 'trial')} (limited by {highest.limit})"
    )


def _unmeetable(view: StudyView) -> str:
    if limited := _limited(view):
        return f"no verdict{view.units.at}: {limited}"
    if isinstance(view.units, Values):
        return "no configuration gave a reproducible value"
    if best := view.conclusion.best:
        return (
            f"{view.units.objective} not met: trial {best.trial.number} met it once, but not again"
        )
    return f"{view.units.objective} not attainable at any rate with any configuration tried"


def _gain(view: StudyView) -> str:
    assert view.gain is not None
    pairs = plural(view.gain["pairs"], "alternating pair")
    return f"{view.units.gained(view.gain)}{view.units.at}, {pairs}{of_beds(view)}"


def latency_lines(view: StudyView, rate: float) -> Iterator[Line]:
    """Yield the SLO's percentile at a rate, before and after, with a note if it is uncertain."""
    yield "", ""
    yield f"{fmt.percentile(view.target.slo.slo)} at {fmt.rate(rate)}/s", "bold"
    for name, (latency, why) in latency_at(view, rate).items():
        yield f"  {name:9}{latency}" + (f", {why}" if why else ""), ""


def report_lines(view: StudyView, width: int | None = None) -> Iterator[Line]:
    """Yield the report of a study, finished or not.

    ``width`` (columns) shortens the meanings of parameters. Without it, they are printed in full.
    """
    mark, style = MARKS.get(view.verdict, UNDECIDED)
    yield f"{mark} {headline(view)}", style
    for title, lines in sections(view, width).items():
        yield "", ""
        if title not in ("Capacity", "Now"):
            yield title, "bold"
        yield from ((f"  {line}".rstrip(), "") for line in lines)


def brief_lines(view: StudyView) -> Iterator[Line]:
    """Yield the verdict in a few lines for the end of a run; `report` prints the rest."""
    mark, style = MARKS.get(view.verdict, UNDECIDED)
    yield f"{mark} {headline(view)}", style
    findings = [describe_finding({**f, "evidence": ""}) for f in view.bottlenecks.values()]
    if findings:
        findings = [f"limits   {', then '.join(dict.fromkeys(findings))}"]
    named = [f"{change.name} {' → '.join(change.texts)}" for change in _proven(view)[:NAMED]]
    if more := len(_proven(view)) - len(named):
        named.append(f"{more} more")
    changes = [f"change   {', '.join(named)}"] if named else []
    codes = [warning.code for warning in warnings(view)]
    warned = [f"warnings {len(codes)}: {', '.join(codes)}"] if codes else []
    report = f"report   autotune report {view.name} (add --open for the browser)"
    for line in (*_capacities(view), *findings, *changes, *warned, report):
        yield f"  {line}", ""
    following = next(_next_commands(view))
    if not following.startswith("autotune report"):
        yield f"  next     {following}", "bold"


def _proven(view: StudyView) -> tuple[Change, ...]:
    return view.changes if view.verdict == "improved" else ()


def sections(view: StudyView, width: int | None = None) -> dict[str, list[str]]:
    """Return the sections of a report by title, in order, without the empty ones."""
    state = view.state
    measured = state.finished(Phase.MEASURE)  # from `autotune measure`
    parts = {
        "Capacity": _capacities(view),
        "Now": _under_way(view),
        "Measured": (f"{label(trial):12}{outcome(trial, view.units)}" for trial in measured),
        "Ceilings": (line for record in state.ceilings for line in ceiling_lines(record)),
        change_title(view): _changes(view, width),
        "Test beds": bed_lines(view),
        "Bottleneck": (
            f"{name:9}{describe_finding(finding)}" for name, finding in view.bottlenecks.items()
        ),
        "Trials": _trials(view),
        "Time": _time(view),
        "Warnings": (
            line
            for warning in warnings(view)
            for line in (f"! {warning.text}", f"  → {warning.remedy}")
        ),
        "Not checked": _not_checked(view),
        "Next": _next_commands(view),
    }
    return {title: lines for title, part in parts.items() if (lines := list(part))}


def change_title(view: StudyView) -> str:
    """Return the title of the list of changes."""
    number = view.conclusion.best.trial.number if view.conclusion.best else None
    count = plural(len(view.changes), "setting")
    match view.verdict:
        case "improved":
            return f"Change {count} (trial {number})"
        case "no-improvement":
            return "Change nothing"
        case _:
            return f"Best so far: {count} changed (trial {number})"


def _capacities(view: StudyView) -> Iterator[str]:
    units = view.units
    for name, side in view.conclusion.sides.items():
        capacity = view.capacities[name]
        where = f"trial {side.trial.number}"
        if side.estimate is not None and side.estimate.limited:
            bound = units.at_least(side.estimate.peak)
            yield f"{name:9}{bound} (limited by {side.estimate.limit})  {where}"
        elif units.shows(capacity["peak"]):
            interval = units.interval(capacity["low"], capacity["high"])
            again = f", re-measured {side.measured_again}×" if side.fresh else ""
            yield f"{name:9}{units.amount(capacity['peak'])} {interval}  {where}{again}"
        elif side.own is not None and side.own.feasible:
            yield f"{name:9}{units.amount(units.of(side.own.peak))} (search only)  {where}"
        else:
            counts = view.study.counts.get(side.trial.number)
            reason = side.trial.failure or describe_errors(counts)
            yield f"{name:9}{units.nothing}  {where}" + (f": {reason}" if reason else "")


def _under_way(view: StudyView) -> Iterator[str]:
    if view.verdict != STOPPED or view.state.finished(Phase.MEASURE):
        return
    if view.outlook.lead and view.conclusion.best:
        yield f"{view.outlook.lead} over the baseline so far (not yet proven)"
    for last in view.state.under_way() or view.state.trials[-1:]:
        if last.over:
            continue
        yield f"trial {last.number} ({last.phase}) is in progress, or was when the study stopped"
    yield f"about {fmt.duration(view.outlook.seconds_left)} left"


def _changes(view: StudyView, width: int | None) -> Iterator[str]:
    """Yield the settings that the best changes, or only their number if it proved no gain."""
    if view.verdict == "no-improvement":
        if view.changes and view.conclusion.best:
            count, trial = plural(len(view.changes), "setting"), view.conclusion.best.trial
            yield (f"best candidate: trial {trial.number} ({count} changed). No measurable gain.")
        return
    rows = []
    for change in view.changes:
        before = "–" if change.before is None else fmt.setting(change.before)
        rows.append((change.name, f"{before} → {change.texts[1]}", change.meaning))
    columns = [max((len(row[column]) for row in rows), default=0) for column in (0, 1)]
    for name, values, meaning in rows:
        text = meaning if width is None else _shortened(meaning, width - sum(columns) - 6)
        yield f"{name:{columns[0]}}  {values:{columns[1]}}  {text}"


def _shortened(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    return text[: room - 1].rstrip(" ,;:.") + "…" if room > 20 else ""


def _trials(view: StudyView) -> Iterator[str]:
    done = sum(view.trials.values())
    if not done:
        return
    kinds = ", ".join(kind for kind in describe_counts(view.trials) if not kind.startswith("0 "))
    yield f"{done} of {view.target.budget.trials}" + (f": {kinds}" if kinds else "")
    for failure in failures(view.state, view.study.counts):
        which = "trial" if len(failure.trials) == 1 else "trials"
        example = f": {failure.example}" if failure.example else ""
        numbers = fmt.listed(failure.trials)
        yield f"{len(failure.trials)} × {failure.cause}{example} ({which} {numbers})"


def _time(view: StudyView) -> Iterator[str]:
    total = view.seconds["total"]
    if total:
        parts = [f"{k} {fmt.share(v, total)}" for k, v in view.seconds.items() if k != "total"]
        yield f"{fmt.duration(total)}: {', '.join(parts)}"


def _not_checked(view: StudyView) -> Iterator[str]:
    best, target = view.conclusion.best, view.target
    if best is None:
        return
    if target.goal is not None:
        yield "whether the command's value measures your goal; other machines"
    else:
        settings = active(best.latest.settings)
        unread = sorted(settings - set(best.latest.effective))
        if unread:
            names = ", ".join(unread[:3]) + (", …" if unread[3:] else "")
            yield (
                f"{len(unread)} of {len(settings)} values cannot be read back from the software: "
                f"{names}"
            )
        if target.simulated is None:
            load = target.load.command[0] if target.load.command else target.load.generator
            yield f"load other than {load} on {target.load.page}; other machines"
        else:
            yield "real hosts"
    if len(view.changes) > 1 and view.verdict != "no-improvement" and not view.state.explained:
        yield "the effects of single changes: they were measured together"


def _next_commands(view: StudyView) -> Iterator[str]:
    """Yield the next commands, the most useful first."""
    name = view.name
    if view.verdict == STOPPED and view.conclusion.baseline:
        yield f"autotune resume {name}"
        yield f"autotune status {name}"
    if view.verdict == "improved":
        model = " --of-a-model" if view.target.simulated else ""
        minimal = " --minimal" if (view.state.explained or {}).get("trial") is not None else ""
        yield f"autotune export {name}{minimal} --out {name}-best{model}"
        if view.gain and len(view.changes) > 1 and not view.state.explained:
            yield f"autotune explain {name} --measure"
    if view.conclusion.best:
        yield f"autotune diff {name}"
    if view.verdict != "improved":
        yield f"autotune report {name} --open"
    yield f"autotune report {name} --json"
