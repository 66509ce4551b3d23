"""A study in words, for a terminal or a mail: the verdict first, then what to do with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autotune.report import ceilings as ceilings_
from autotune.report import format as fmt
from autotune.report.conclusion import Configuration
from autotune.report.headline import headline
from autotune.report.parameters import Change, active
from autotune.report.trials import describe_counts, describe_errors, failures, label, outcome
from autotune.report.view import StudyView
from autotune.report.warnings import warnings
from autotune.study.records import Phase
from autotune.target.model import Target
from autotune.terminal import Line

MARKS = {"improved": ("✓", "green"), "unmeetable": ("✗", "red"), "stopped": ("…", "yellow")}
UNDECIDED = ("=", "yellow")


def report_lines(view: StudyView, width: int | None = None) -> Iterator[Line]:
    """The report of a study, finished or not.

    ``width`` in columns shortens what parameters mean; without it, they are said in full.
    """
    mark, style = MARKS.get(view.verdict, UNDECIDED)
    yield f"{mark} {headline(view)}", style
    sections = {
        **report_sections(view),
        "Measured": measurements(view),
        "Ceilings": ceilings(view),
        change_title(view): changes(view, width),
        "Warnings": (line for warning in warnings(view) for line in
                     (f"! {warning.text}", f"  → {warning.remedy}")),
        "Next": next_commands(view),
    }  # fmt: skip
    order = ("Capacity", "Now", "Measured", "Ceilings", change_title(view), "What limits it", "Trials",
             "Time", "Warnings", "Not checked", "Next")  # fmt: skip
    for title in order:
        lines = list(sections[title])
        if lines:
            yield "", ""
            if title not in ("Capacity", "Now"):
                yield title, "bold"
            yield from ((f"  {line}".rstrip(), "") for line in lines)


def report_sections(view: StudyView) -> dict[str, Iterator[str]]:
    """The parts of a report that are the same on a terminal and on a page, by their titles."""
    return {
        "Capacity": capacities(view),
        "Now": under_way(view),
        "What limits it": bottlenecks(view),
        "Trials": trials(view),
        "Time": time(view),
        "Not checked": not_checked(view),
    }


def capacities(view: StudyView) -> Iterator[str]:
    units = view.units
    for name, side in view.conclusion.sides.items():
        known = view.capacities[name]
        where = f"trial {side.trial.number}"
        if units.shows(known["peak"]):
            interval = units.interval(known["low"], known["high"])
            again = f", re-measured {side.measured_again}×" if side.fresh else ""
            yield f"{name:9}{units.amount(known['peak'])} {interval}  {where}{again}"
        elif side.own is not None and side.own.feasible:
            yield f"{name:9}{units.amount(units.of(side.own.peak))} in the search  {where}"
        else:
            why = side.trial.failure or describe_errors(view.study.counts.get(side.trial.number))
            yield f"{name:9}{units.nothing}  {where}" + (f": {why}" if why else "")


def under_way(view: StudyView) -> Iterator[str]:
    if view.verdict != "stopped" or view.state.finished(Phase.MEASURE):
        return
    if view.outlook.lead and view.conclusion.best:
        yield f"{view.outlook.lead} over the baseline so far: not yet a claim"
    last = view.state.trials[-1] if view.state.trials else None
    if last is not None and not last.over:
        yield f"trial {last.number} ({last.phase}) is under way, or was when the study stopped"
    yield f"about {fmt.duration(view.outlook.seconds_left)} to go"


def measurements(view: StudyView) -> Iterator[str]:
    """What `autotune measure` found, for it keeps its readings as a study does."""
    for trial in view.state.finished(Phase.MEASURE):
        yield f"{label(trial):12}{outcome(trial, view.units)}"


def ceilings(view: StudyView) -> Iterator[str]:
    """What `autotune measure --closed` and `--tier` found."""
    for record in view.state.ceilings:
        yield from ceilings_.lines(record)


def change_title(view: StudyView) -> str:
    number = view.conclusion.best.trial.number if view.conclusion.best else None
    count = fmt.plural(len(view.changes), "setting")
    match view.verdict:
        case "improved":
            return f"Change {count} (trial {number})"
        case "no-improvement":
            return "Change nothing"
        case _:
            return f"Best so far: {count} changed (trial {number})"


def changes(view: StudyView, width: int | None) -> Iterator[str]:
    """What the best has otherwise than the baseline; only how much where it is no better."""
    if view.verdict == "no-improvement":
        if view.changes and view.conclusion.best:
            count, number = (
                fmt.plural(len(view.changes), "setting"),
                view.conclusion.best.trial.number,
            )
            yield f"trial {number}, the best found, differs in {count} and is not shown to carry more"
        return
    rows = [
        (change.name, _values(change), change.parameter.meaning if change.parameter else "")
        for change in view.changes
    ]
    columns = [max((len(row[column]) for row in rows), default=0) for column in (0, 1)]
    for name, values, meaning in rows:
        text = meaning if width is None else _shortened(meaning, width - sum(columns) - 6)
        yield f"{name:{columns[0]}}  {values:{columns[1]}}  {text}"


def _values(change: Change) -> str:
    before = "–" if change.before is None else fmt.setting(change.before)
    return f"{before} → {fmt.setting(change.after, change.unit)}"


def _shortened(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    return text[: room - 1].rstrip(" ,;:.") + "…" if room > 20 else ""


def bottlenecks(view: StudyView) -> Iterator[str]:
    for name, finding in view.bottlenecks.items():
        yield f"{name:9}{describe_finding(finding)}"


def describe_finding(finding: Mapping[str, Any]) -> str:
    """``web.php_fpm: workers: …``, by whatever of it is on record."""
    place = ".".join(str(finding[key]) for key in ("tier", "service") if finding.get(key))
    rest = [str(finding[key]) for key in ("resource", "evidence") if finding.get(key)]
    return ": ".join(filter(None, [place, *rest]))


def trials(view: StudyView) -> Iterator[str]:
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


def time(view: StudyView) -> Iterator[str]:
    total = view.seconds["total"]
    if total:
        parts = [f"{k} {fmt.share(v, total)}" for k, v in view.seconds.items() if k != "total"]
        yield f"{fmt.duration(total)}: {', '.join(parts)}"


def not_checked(view: StudyView) -> Iterator[str]:
    best = view.conclusion.best
    if best is None:
        return
    if view.target.goal is None:
        yield from _not_read_back(best, view.target)
    else:
        yield "whether the command's value is what matters to you, and any other machine"
    if len(view.changes) > 1 and view.verdict != "no-improvement":
        yield "which of the changes matter: they were measured together"


def _not_read_back(best: Configuration, target: Target) -> Iterator[str]:
    settings, effective = active(best.latest.settings), best.latest.effective
    unseen = sorted(settings - set(effective))
    if unseen:
        yield (
            f"{len(unseen)} of {len(settings)} values cannot be read back from the software: "
            f"{_some(unseen)}"
        )
    if target.simulated is None:
        load = target.load.command[0] if target.load.command else target.load.generator
        yield f"other load than {load} on {target.load.path}, and any other machine"
    else:
        yield "any real machine"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", …" if names[3:] else "")


def next_commands(view: StudyView) -> Iterator[str]:
    name = view.name
    if view.verdict == "stopped" and view.conclusion.baseline:
        yield f"autotune resume {name}"
        yield f"autotune status {name}"
    if view.verdict == "improved":
        yield f"autotune export {name} --out {name}-best"
    if view.conclusion.best:
        yield f"autotune diff {name}"
    yield f"autotune report {name} --json"
