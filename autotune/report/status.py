"""How a study stands right now, on one screen: the same from another terminal, or years later."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from autotune import terminal
from autotune.report import format as fmt
from autotune.report.conclusion import Conclusion, Configuration
from autotune.report.headline import headline
from autotune.report.objective import Requests, Units, Values
from autotune.report.studies import Study, open_study
from autotune.report.trials import describe_counts
from autotune.report.view import StudyView, capacity, study_view
from autotune.study.records import Phase

SCHEMA = 1
EVERY = 2.0  # seconds between looks: reading a journal must not take CPU from what is measured
CLEAR = "\x1b[H\x1b[2J"


def status(view: StudyView) -> dict[str, Any]:
    """One JSON object. Peaks are pooled from later measurements where there are any, else the
    search's own: no claim before the verdict.

    ``state`` is ``running`` (somebody holds the lock), ``stopped`` (resume goes on with it) or
    ``finished``, as what `autotune measure` keeps always is. ``trial`` is the one under way,
    ``seconds.left`` an estimate.
    """
    state, budget = view.state, view.target.budget
    sides = view.conclusion.sides
    baseline, best = (_side(sides.get(label), view.units) for label in ("baseline", "best"))
    holder = view.study.holder
    over = state.verdict or state.finished(Phase.MEASURE)
    stopped = "finished" if over else "stopped"
    return {
        "schema": SCHEMA,
        "study": view.name,
        "state": "running" if holder else stopped,
        "holder": holder,
        "verdict": state.verdict["verdict"] if state.verdict else None,
        "trial": _under_way(view.study),
        "trials": {**view.trials, "done": view.outlook.counted, "budget": budget.trials},
        "proof": {
            "finalists": len(state.finished(Phase.FINALIST)),
            "confirmations": len(state.finished(Phase.CONFIRM)),
        },
        "baseline": baseline,
        "best": best,
        "ratio": _ratio(best, baseline),
        "change": _change(view.conclusion, view.units),
        "seconds": {
            "elapsed": round(state.elapsed, 1),
            "left": None if over else round(view.outlook.seconds_left, 1),
            "budget": budget.time,
        },
    }


def _under_way(study: Study) -> dict[str, Any] | None:
    last = study.state.trials[-1] if study.state.trials else None
    if last is None or last.over:
        return None
    counts = study.counts.get(last.number)
    reading = counts.last if counts else None
    return {
        "trial": last.number,
        "phase": str(last.phase),
        "of": last.of,
        "deployed": bool(last.effective) or counts is not None,
        "windows": counts.warmed if counts else 0,
        "readings": counts.readings if counts else 0,
        "rate": reading["rate"] if reading else None,
    }


def _side(side: Configuration | None, units: Units) -> dict[str, Any] | None:
    if side is None:
        return None
    estimate = side.fresh or side.own
    nothing = isinstance(units, Requests) and estimate is None
    numbers = dict.fromkeys(("peak", "low", "high"), 0.0) if nothing else capacity(estimate, units)
    return {"trial": side.trial.number, **numbers}


def _change(conclusion: Conclusion, units: Units) -> str | None:
    """The best against the baseline, in words."""
    sides = [conclusion.baseline, conclusion.best]
    estimates = [side.fresh or side.own if side else None for side in sides]
    before, after = (estimate.peak if estimate else 0.0 for estimate in estimates)
    return units.change(after / before, before) if before and after else None


def _ratio(best: Mapping[str, Any] | None, baseline: Mapping[str, Any] | None) -> float | None:
    if not best or not baseline or not baseline["peak"]:
        return None
    ratio: float = best["peak"] / baseline["peak"]
    return round(ratio, 4)


def render_status(view: StudyView) -> str:
    """The same in a few lines of text."""
    return "\n".join(_lines(view, status(view))) + "\n"


def watch(directory: Path, out: TextIO, sleep: Callable[[float], None] = time.sleep) -> None:
    """Say how the study stands whenever that has changed; on a terminal, in the same place.

    Returns when it is finished or stopped. Raises AutotuneError for a damaged study.
    """
    before = ""
    while True:
        view = study_view(open_study(directory))
        now = render_status(view)
        if now != before:
            out.write(CLEAR if out.isatty() else "\n" if before else "")
            terminal.write(out, now, end="")
            before = now
        if status(view)["state"] != "running":
            return
        sleep(EVERY)


def _lines(view: StudyView, now: Mapping[str, Any]) -> Iterator[str]:
    units = view.units
    yield f"{view.name}: {_what(now)}"
    if now["verdict"]:
        yield f"  verdict   {headline(view)}"
    if now["trial"]:
        yield f"  now       {_doing(now, units)}"
    trials, proof = now["trials"], now["proof"]
    kinds = ", ".join(describe_counts(view.trials))
    yield f"  trials    {trials['done']} of {trials['budget']}: {kinds}"
    if any(proof.values()):
        yield f"  proof     {_proof(proof)}"
    yield f"  baseline  {_peak(now['baseline'], units)}"
    if now["best"] or not now["verdict"]:
        yield f"  best      {_peak(now['best'], units)}{_so_far(now)}"
    yield f"  time      {_time(now)}"
    if now["state"] == "stopped":
        yield f"  next      autotune resume {view.name}"
    if now["state"] == "finished":
        yield f"  next      autotune report {view.name}"


def _what(now: Mapping[str, Any]) -> str:
    if now["holder"]:
        return f"running, {now['holder']}"
    return "finished" if now["state"] == "finished" else "stopped (no process holds the lock)"


def _doing(now: Mapping[str, Any], units: Units) -> str:
    trial = now["trial"]
    what = f"trial {trial['trial']} ({trial['phase']}"
    what += f" of trial {trial['of']})" if trial["of"] is not None else ")"
    if now["state"] != "running":
        return f"{what} was interrupted; `resume` repeats it"
    if isinstance(units, Values):
        return f"{what} is being asked for, {fmt.plural(trial['readings'], 'answer')} so far"
    if not trial["deployed"]:
        return f"{what} is being deployed"
    if not trial["readings"]:
        return f"{what} is warming up, {fmt.plural(trial['windows'], 'window')} so far"
    readings = fmt.plural(trial["readings"], "reading")
    return f"{what} is being measured: {readings}, the last at {fmt.rate(trial['rate'])}/s"


def _proof(proof: Mapping[str, int]) -> str:
    finals = f"{fmt.plural(proof['finalists'], 'finalist')} measured again"
    return f"{finals}, {fmt.plural(proof['confirmations'], 'confirmation reading')}"


def _peak(side: Mapping[str, Any] | None, units: Units) -> str:
    if side is None:
        return "not measured yet"
    if not units.shows(side["peak"]):
        return f"{units.nothing} (trial {side['trial']})"
    interval = units.interval(side["low"], side["high"])
    return f"{units.amount(side['peak'])} {interval} (trial {side['trial']})"


def _so_far(now: Mapping[str, Any]) -> str:
    if now["best"] is None or now["verdict"]:
        return ""
    change = f", {now['change']} over the baseline" if now["change"] else ""
    return f"{change}: not yet a claim"


def _time(now: Mapping[str, Any]) -> str:
    spent = fmt.duration(now["seconds"]["elapsed"])
    left = now["seconds"]["left"]
    return f"{spent} spent" + ("" if left is None else f", about {fmt.duration(left)} left")
