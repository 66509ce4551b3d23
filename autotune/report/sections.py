"""The parts of a report in words, a line at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autotune.report import ceilings as ceilings_
from autotune.report import figures, lines
from autotune.report.claim import Side, claim
from autotune.report.evidence import listed
from autotune.report.failures import errors_in_words, failures
from autotune.report.parameters import Change, active, changes, declared
from autotune.report.standing import seconds_left, standing
from autotune.report.tally import Tally
from autotune.report.yardstick import yardstick
from autotune.study.records import Phase, State
from autotune.target.model import Target

Summary = Mapping[str, Any]
Tallies = Mapping[int, Tally]


def peaks(summary: Summary, target: Target, state: State, tallies: Tallies) -> Iterator[str]:
    found, by = claim(state), yardstick(target, state)
    for label, side in (("baseline", found.baseline), ("best", found.best)):
        said = summary[label]
        if side is None:
            continue
        where = f"trial {side.trial.number}"
        if by.told(said["peak"]):
            interval = by.interval(said["low"], said["high"])
            again = f", measured {side.fresh.measurements} × again" if side.fresh else ""
            yield f"{label:9}{by.amount(said['peak'])} {interval}  {where}{again}"
        elif side.own is not None and side.own.feasible:
            yield f"{label:9}{by.amount(by.of(side.own.peak))} in the search  {where}"
        else:
            why = side.trial.failure or errors_in_words(tallies.get(side.trial.number))
            yield f"{label:9}{by.nothing}  {where}" + (f": {why}" if why else "")


def under_way(summary: Summary, target: Target, state: State) -> Iterator[str]:
    if summary["verdict"] != "stopped" or state.finished(Phase.MEASURE):
        return
    change = lines.ahead(standing(state), yardstick(target, state))
    if change and summary["best"]:
        yield f"{change} over the baseline so far: not yet a claim"
    last = state.trials[-1] if state.trials else None
    if last is not None and not last.over:
        yield f"trial {last.number} ({last.phase}) is under way, or was when the study stopped"
    yield f"about {figures.duration(seconds_left(state, target.budget))} to go"


def measurements(target: Target, state: State) -> Iterator[str]:
    """What `autotune measure` found, for it keeps its readings as a study does."""
    for trial in state.finished(Phase.MEASURE):
        yield f"{lines.trial_in_words(trial):12}{lines.outcome(trial, yardstick(target, state))}"


def ceilings(state: State) -> Iterator[str]:
    """What `autotune measure --closed` and `--tier` found."""
    for record in state.ceilings:
        yield from ceilings_.lines(record)


def change_title(summary: Summary, target: Target, state: State) -> str:
    number = (summary["best"] or {}).get("trial")
    count = figures.plural(len(_changed(target, state)), "setting")
    match summary["verdict"]:
        case "improved":
            return f"Change {count} (trial {number})"
        case "no-improvement":
            return "Change nothing"
        case _:
            return f"Best so far: {count} changed (trial {number})"


def settings(summary: Summary, target: Target, state: State, width: int | None) -> Iterator[str]:
    """What the best has otherwise than the baseline; only the names where it is no better."""
    changed = _changed(target, state)
    if summary["verdict"] == "no-improvement":
        if changed:
            count, number = figures.plural(len(changed), "setting"), summary["best"]["trial"]
            yield f"trial {number}, the best found, differs in {count} and is not shown to carry more"
        return
    rows = [
        (change.name, _values(change), change.parameter.meaning if change.parameter else "")
        for change in changed
    ]
    columns = [max((len(row[column]) for row in rows), default=0) for column in (0, 1)]
    for name, values, meaning in rows:
        said = meaning if width is None else _shortened(meaning, width - sum(columns) - 6)
        yield f"{name:{columns[0]}}  {values:{columns[1]}}  {said}"


def _changed(target: Target, state: State) -> tuple[Change, ...]:
    found = claim(state)
    if found.best is None or found.baseline is None:
        return ()
    before, after = found.baseline.trial.settings, found.best.trial.settings
    return changes(before, after, declared(target))


def _values(change: Change) -> str:
    before = "–" if change.before is None else figures.setting(change.before)
    return f"{before} → {figures.setting(change.after, change.unit)}"


def _shortened(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    return text[: room - 1].rstrip(" ,;:.") + "…" if room > 20 else ""


def bottlenecks(summary: Summary) -> Iterator[str]:
    for label in ("baseline", "best"):
        finding = (summary["bottleneck"] or {}).get(label)
        if finding:
            yield f"{label:9}{finding_in_words(finding)}"


def finding_in_words(finding: Mapping[str, Any]) -> str:
    """``web.php_fpm: workers: …``, by whatever of it is on record."""
    place = ".".join(str(finding[key]) for key in ("tier", "service") if finding.get(key))
    said = [str(finding[key]) for key in ("resource", "evidence") if finding.get(key)]
    return ": ".join(filter(None, [place, *said]))


def trials(summary: Summary, target: Target, state: State, tallies: Tallies) -> Iterator[str]:
    counts = summary["trials"]
    done = sum(counts.values())
    if not done:
        return
    kinds = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    yield f"{done} of {target.budget.trials}" + (f": {kinds}" if kinds else "")
    for failure in failures(state, tallies):
        which = "trial" if len(failure.trials) == 1 else "trials"
        example = f": {failure.example}" if failure.example else ""
        yield f"{len(failure.trials)} × {failure.cause}{example} ({which} {listed(failure.trials)})"


def time(summary: Summary) -> Iterator[str]:
    spent = summary["seconds"]
    if spent["total"]:
        parts = [
            f"{k} {figures.share(v, spent['total'])}" for k, v in spent.items() if k != "total"
        ]
        yield f"{figures.duration(spent['total'])}: {', '.join(parts)}"


def warnings(summary: Summary) -> Iterator[str]:
    for warning in summary["warnings"]:
        yield f"! {warning['text']}"
        yield f"  → {warning['remedy']}"


def not_checked(target: Target, state: State) -> Iterator[str]:
    best = claim(state).best
    if best is None:
        return
    if target.goal is None:
        yield from _not_read_back(best, target)
    else:
        yield "whether the command's value is what matters to you, and any other machine"
    if len(_changed(target, state)) > 1 and claim(state).verdict != "no-improvement":
        yield "which of the changes matter: they were measured together"


def _not_read_back(best: Side, target: Target) -> Iterator[str]:
    latest = best.latest
    unseen = sorted(active(latest.settings) - set(latest.effective))
    if unseen:
        yield (
            f"{len(unseen)} of {len(active(latest.settings))} values cannot be read back from the "
            f"software: {_some(unseen)}"
        )
    if target.simulated is None:
        load = target.load.command[0] if target.load.command else target.load.generator
        yield f"other load than {load} on {target.load.path}, and any other machine"
    else:
        yield "any real machine"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", …" if names[3:] else "")
