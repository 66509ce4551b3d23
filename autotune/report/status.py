"""The current status of a study on one screen, from any terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from autotune import terminal
from autotune.report import format as fmt
from autotune.report.beds import beds
from autotune.report.objective import Requests, Units, Values
from autotune.report.studies import Study, open_study
from autotune.report.text import headline
from autotune.report.trials import describe_counts
from autotune.report.view import Configuration, StudyView, capacity, study_view
from autotune.study.records import APPLIED, Phase, Trial
from autotune.target.messages import plural

SCHEMA = 1
EVERY = 2.0  # seconds between polls: reading a journal must not take CPU from the stack
CLEAR = "\x1b[H\x1b[2J"


def status(view: StudyView) -> dict[str, Any]:
    """Return the status as one JSON object.

    Peaks pool later measurements if there are any. Otherwise they come from the search and prove
    nothing before the verdict. ``state`` is ``running`` (a process holds the lock), ``stopped``
    (`resume` continues it) or ``finished``. A measurement is ``stopped`` only if none of it finished.
    ``trial`` is the current one. ``seconds.left`` is an estimate.
    """
    state, budget = view.state, view.target.budget
    baseline, best = (_side(view.conclusion.sides.get(side), view.units)
                      for side in ("baseline", "best"))  # fmt: skip
    over = state.verdict or state.finished(Phase.MEASURE)
    holder = view.study.holder
    running = {t.bed: t for t in state.under_way()}
    of_beds = {bed: {**each, "trial": _under_way(view.study, [running[bed]] if bed in running else [])}
               for bed, each in beds(view)["each"].items()}  # fmt: skip
    return {
        "schema": SCHEMA,
        "study": view.name,
        "state": "running" if holder else "finished" if over else "stopped",
        "holder": holder,
        "verdict": state.verdict["verdict"] if state.verdict else None,
        "trial": _under_way(view.study, view.state.trials[-1:]),
        "trials": {**view.trials, "done": view.outlook.counted, "budget": budget.trials},
        "proof": {
            "finalists": len(state.finished(Phase.FINALIST)),
            "confirmations": len(state.finished(Phase.CONFIRM)),
        },
        "baseline": baseline,
        "best": best,
        "ratio": _ratio(view, baseline, best),
        "change": _change(view),
        "answers": answers_of(view.study),
        **({"beds": of_beds} if of_beds else {}),
        "seconds": {
            "elapsed": round(state.elapsed, 1),
            "left": None if over else round(view.outlook.seconds_left, 1),
            "budget": budget.time,
        },
    }


def answers_of(study: Study) -> dict[str, Any]:
    """Return the number of answers checked under load, the number of wrong ones, and an example."""
    counts = study.counts.values()
    return {
        "looked_at": sum(of.looked_at for of in counts),
        "wrong": sum(of.wrong for of in counts),
        "example": next((of.example for of in counts if of.example), None),
    }


def _under_way(study: Study, trials: Sequence[Trial]) -> dict[str, Any] | None:
    """Return the status of the last of ``trials``, or ``None`` if it is over."""
    last = trials[-1] if trials else None
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
    nothing = isinstance(units, Requests) and side.estimate is None
    numbers = (
        dict.fromkeys(("peak", "low", "high"), 0.0) if nothing else capacity(side.estimate, units)
    )
    limit = side.estimate.limit if side.estimate else None
    return {"trial": side.trial.number, **numbers, "limit": limit}


def _ratio(
    view: StudyView, baseline: Mapping[str, Any] | None, best: Mapping[str, Any] | None
) -> float | None:
    """Return the best over the baseline: the verdict's gain if there is one."""
    if gain := view.conclusion.gain:
        return float(view.units.gain(gain, _before(view))["ratio"])
    if not best or not baseline or not baseline["peak"]:
        return None
    return float(round(best["peak"] / baseline["peak"], 4))


def _before(view: StudyView) -> float:
    side = view.conclusion.baseline
    return side.estimate.peak if side and side.estimate else 0.0


def _change(view: StudyView) -> str | None:
    """Return the change from the baseline to the best, as text."""
    if view.conclusion.gain and _before(view):
        return view.units.change(view.conclusion.gain.ratio, _before(view))
    sides = (view.conclusion.baseline, view.conclusion.best)
    estimates = [side.estimate if side else None for side in sides]
    before, after = (estimate.peak if estimate else 0.0 for estimate in estimates)
    return view.units.change(after / before, before) if before and after else None


def render_status(view: StudyView) -> str:
    """Return the status as a few lines of text."""
    return "\n".join(_lines(view, status(view))) + "\n"


def watch(
    look: Callable[[], Path], out: TextIO, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Print the status of the study whenever it changes, until the study finishes or stops.

    ``look`` returns the study's directory, up to date. A terminal is redrawn in place. Raises
    AutotuneError for a damaged study.
    """
    before = ""
    while True:
        view = study_view(open_study(look()))
        now = render_status(view)
        if now != before:
            out.write(CLEAR if out.isatty() else "\n" if before else "")
            terminal.write(out, now, end="")
            before = now
        if status(view)["state"] != "running":
            return
        sleep(EVERY)


def _lines(view: StudyView, now: Mapping[str, Any]) -> Iterator[str]:
    units, trials, proof = view.units, now["trials"], now["proof"]
    if (purpose := view.study.state.purpose) and now["state"] != "running":
        command = "restore" if purpose == APPLIED else "report"
        yield f"{view.name}: a configuration was {purpose}"
        yield f"  next      autotune {command} {view.name}"
        return
    state = "stopped (no process holds the lock)" if now["state"] == "stopped" else now["state"]
    yield f"{view.name}: {state}" + (f", {now['holder']}" if now["holder"] else "")
    if now["verdict"]:
        yield f"  verdict   {headline(view)}"
    for bed, each in now.get("beds", {}).items():
        running = now["state"] == "running"
        doing = _trial(each["trial"], units, running=running) if each["trial"] else "idle"
        doing = (each["set_aside"] and f"removed from the study: {each['set_aside']}") or doing
        pace = f", {each['per_hour']:g} per hour" if each["per_hour"] else ""
        yield f"  bed {bed:6}{plural(each['trials'], 'trial')}{pace}; now {doing}"
    if now["trial"] and "beds" not in now:
        yield f"  now       {_trial(now['trial'], units, running=now['state'] == 'running')}"
    kinds = ", ".join(describe_counts(view.trials))
    yield f"  trials    {trials['done']} of {trials['budget']}: {kinds}"
    if any(proof.values()):
        finals = f"{plural(proof['finalists'], 'finalist')} measured again"
        confirmed = plural(proof["confirmations"], "confirmation reading")
        yield f"  proof     {finals}, {confirmed}"
    answers = now["answers"]
    if answers["wrong"] or answers["example"]:
        shares = f"{answers['wrong']} of {answers['looked_at']} checked answers are wrong"
        yield f"  answers   {shares}, such as {answers['example']}"
    yield f"  baseline  {_peak(now['baseline'], units)}"
    if now["best"] or not now["verdict"]:
        change = f", {now['change']} over the baseline" if now["change"] else ""
        claim = f"{change} (not yet proven)" if now["best"] and not now["verdict"] else ""
        yield f"  best      {_peak(now['best'], units)}{claim}"
    spent, left = fmt.duration(now["seconds"]["elapsed"]), now["seconds"]["left"]
    yield f"  time      {spent} spent" + (
        "" if left is None else f", about {fmt.duration(left)} left"
    )
    if now["state"] != "running":
        command = "report" if now["state"] == "finished" else "resume"
        yield f"  next      autotune {command} {view.name}"


def _trial(trial: Mapping[str, Any], units: Units, *, running: bool) -> str:
    """Return the current step of the trial in progress."""
    of = f" of trial {trial['of']}" if trial["of"] is not None else ""
    name = f"trial {trial['trial']} ({trial['phase']}{of})"
    if not running:
        return f"{name} was interrupted; `resume` repeats it"
    if isinstance(units, Values):
        return f"{name} is running the command, {plural(trial['readings'], 'call')} so far"
    if not trial["deployed"]:
        return f"{name} is being deployed"
    if not trial["readings"]:
        return f"{name} is warming up, {plural(trial['windows'], 'window')} so far"
    readings = plural(trial["readings"], "reading")
    return f"{name} is being measured: {readings}, the last at {fmt.rate(trial['rate'])}/s"


def _peak(side: Mapping[str, Any] | None, units: Units) -> str:
    if side is None:
        return "not measured yet"
    if not units.shows(side["peak"]):
        return f"{units.nothing} (trial {side['trial']})"
    if side["limit"]:
        bound = f"{units.at_least(side['peak'])} (limited by {side['limit']})"
        return f"{bound} (trial {side['trial']})"
    interval = units.interval(side["low"], side["high"])
    return f"{units.amount(side['peak'])} {interval} (trial {side['trial']})"
