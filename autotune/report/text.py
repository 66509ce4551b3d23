"""A study in words, for a terminal or a mail: the verdict first, then what to do with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autotune.report import figures
from autotune.report.claim import claim
from autotune.report.colour import paint
from autotune.report.failures import errors_in_words, failures
from autotune.report.headline import headline
from autotune.report.parameters import Change, active, changes
from autotune.report.standing import seconds_left, standing
from autotune.report.summary import NO_READINGS
from autotune.report.tally import Tally
from autotune.study.records import State, Trial
from autotune.target.model import Target

WIDTH = 100
MARKS = {"improved": ("✓", "good"), "unmeetable": ("✗", "bad"), "stopped": ("…", "doubt")}
UNDECIDED = ("=", "doubt")


def render_text(
    summary: Mapping[str, Any],
    target: Target,
    state: State,
    tallies: Mapping[int, Tally] = NO_READINGS,
    *,
    colour: bool = False,
    width: int = WIDTH,
) -> str:
    """The report of a study, finished or not; ``summary`` is that of ``report.summary``."""
    mark, style = MARKS.get(summary["verdict"], UNDECIDED)
    first = paint(f"{mark} {headline(summary, target)}", style, colour=colour)
    sections = (
        ("", _peaks(summary, state, tallies)),
        ("", _under_way(summary, target, state)),
        (_change_title(state), _changes(state, width)),
        ("What limits it", _bottlenecks(summary)),
        ("Trials", _trials(summary, target, state, tallies)),
        ("Time", _time(summary)),
        ("Warnings", _warnings(summary)),
        ("Not checked", _not_checked(target, state)),
        ("Next", _next(summary)),
    )
    return first + "\n" + "".join(_section(t, list(lines), colour) for t, lines in sections)


def _section(title: str, lines: Sequence[str], colour: bool) -> str:  # noqa: FBT001  private
    if not lines:
        return ""
    head = [paint(title, "strong", colour=colour)] if title else []
    return "\n" + "\n".join([*head, *(f"  {line}".rstrip() for line in lines)]) + "\n"


def _peaks(summary: Mapping[str, Any], state: State, tallies: Mapping[int, Tally]) -> Iterator[str]:
    found = claim(state)
    for label, side in (("baseline", found.baseline), ("best", found.best)):
        said = summary[label]
        if side is None:
            continue
        where = f"trial {side.trial.number}"
        if said["peak"]:
            interval = f"[{figures.rate(said['low'])}, {figures.rate(said['high'])}]"
            again = f", measured {len(side.repeats)} × again" if side.fresh else ""
            yield f"{label:9}{figures.rate(said['peak'])} requests/s {interval}  {where}{again}"
        elif side.own is not None and side.own.feasible:
            yield f"{label:9}{figures.rate(side.own.peak)} requests/s in the search  {where}"
        else:
            why = side.trial.failure or errors_in_words(tallies.get(side.trial.number))
            yield f"{label:9}no load within the objective  {where}" + (f": {why}" if why else "")


def _under_way(summary: Mapping[str, Any], target: Target, state: State) -> Iterator[str]:
    if summary["verdict"] != "stopped":
        return
    ratio = standing(state).ratio
    if ratio is not None and summary["best"]:
        yield f"{figures.change(ratio)} over the baseline so far: not yet a claim"
    last = state.trials[-1] if state.trials else None
    if last is not None and not last.over:
        yield f"trial {last.number} ({last.phase}) is under way, or was when the study stopped"
    yield f"about {figures.duration(seconds_left(state, target.budget))} to go"


def _change_title(state: State) -> str:
    found = claim(state)
    if found.best is None or found.baseline is None:
        return ""
    count = len(changes(found.baseline.trial.settings, found.best.trial.settings))
    return f"Change {figures.plural(count, 'setting')} (trial {found.best.trial.number})"


def _changes(state: State, width: int) -> Iterator[str]:
    found = claim(state)
    if found.best is None or found.baseline is None:
        return
    rows = [
        (change.name, _values(change), change.parameter.meaning if change.parameter else "")
        for change in changes(found.baseline.trial.settings, found.best.trial.settings)
    ]
    if not rows:
        yield "nothing: the best has the baseline's own values"
        return
    columns = [max(len(row[column]) for row in rows) for column in (0, 1)]
    room = width - sum(columns) - 6
    for name, values, meaning in rows:
        yield f"{name:{columns[0]}}  {values:{columns[1]}}  {_shortened(meaning, room)}"


def _values(change: Change) -> str:
    before = "–" if change.before is None else figures.setting(change.before)
    return f"{before} → {figures.setting(change.after, change.unit)}"


def _shortened(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    return text[: room - 1].rstrip(" ,;:.") + "…" if room > 20 else ""


def _bottlenecks(summary: Mapping[str, Any]) -> Iterator[str]:
    for label in ("baseline", "best"):
        finding = (summary["bottleneck"] or {}).get(label)
        if finding:
            yield f"{label:9}{finding_in_words(finding)}"


def finding_in_words(finding: Mapping[str, Any]) -> str:
    """``web workers: …`` where the finding has those fields, or all it has."""
    place = " ".join(str(finding[key]) for key in ("tier", "resource") if finding.get(key))
    if place:
        evidence = finding.get("evidence")
        return f"{place}: {evidence}" if evidence else place
    return ", ".join(f"{key} {value}" for key, value in finding.items() if key != "trial")


def _trials(
    summary: Mapping[str, Any], target: Target, state: State, tallies: Mapping[int, Tally]
) -> Iterator[str]:
    counts = summary["trials"]
    done = sum(counts.values())
    kinds = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    yield f"{done} of {target.budget.trials}" + (f": {kinds}" if kinds else "")
    for failure in failures(state, tallies):
        numbers = ", ".join(map(str, failure.trials[:6])) + ("…" if failure.trials[6:] else "")
        example = f" ({failure.example})" if failure.example else ""
        yield f"{len(failure.trials)} × {failure.cause}{example}, trial {numbers}"


def _time(summary: Mapping[str, Any]) -> Iterator[str]:
    spent = summary["seconds"]
    if spent["total"]:
        parts = [
            f"{k} {figures.share(v, spent['total'])}" for k, v in spent.items() if k != "total"
        ]
        yield f"{figures.duration(spent['total'])}: {', '.join(parts)}"


def _warnings(summary: Mapping[str, Any]) -> Iterator[str]:
    for warning in summary["warnings"]:
        yield f"! {warning['text']}"
        yield f"  → {warning['remedy']}"


def _not_checked(target: Target, state: State) -> Iterator[str]:
    best = claim(state).best
    if best is None:
        return
    latest = best.latest
    unseen = sorted(active(latest.settings) - set(latest.effective))
    if unseen:
        yield (
            f"{len(unseen)} of {len(active(latest.settings))} values cannot be read back from the "
            f"software: {_some(unseen)}"
        )
    yield f"other load than {target.load.generator} on {target.load.path}, and any other machine"
    if len(_changed(state, best.trial)) > 1:
        yield "which of the changes matter: they were measured together"


def _changed(state: State, best: Trial) -> tuple[Change, ...]:
    baseline = claim(state).baseline
    return changes(baseline.trial.settings, best.settings) if baseline else ()


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", …" if names[3:] else "")


def _next(summary: Mapping[str, Any]) -> Iterator[str]:
    name, verdict = summary["study"], summary["verdict"]
    if verdict == "stopped":
        yield f"autotune resume {name}"
        yield f"autotune status {name}"
    if verdict == "improved":
        yield f"autotune export {name} --out {name}-best"
    if summary["best"]:
        yield f"autotune diff {name}"
    yield f"autotune report {name} --json"
