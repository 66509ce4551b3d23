"""How a study stands right now, on one screen: the same from another terminal, or years later."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from autotune.report import figures
from autotune.report.claim import Claim, Side, claim
from autotune.report.headline import headline
from autotune.report.standing import counted, seconds_left
from autotune.report.studies import Study
from autotune.report.summary import numbers, summary, trial_counts
from autotune.report.yardstick import Requests, Values, Yardstick, yardstick
from autotune.study.records import Phase

SCHEMA = 1


def status(study: Study) -> dict[str, Any]:
    """One JSON object. Peaks are pooled from later measurements where there are any, else the
    search's own: no claim before the verdict.

    ``state`` is ``running`` (somebody holds the lock), ``stopped`` (resume goes on with it) or
    ``finished``, as what `autotune measure` keeps always is. ``trial`` is the one under way,
    ``seconds.left`` an estimate.
    """
    state, budget = study.state, study.target.budget
    found = claim(state)
    by = yardstick(study.target, state)
    baseline, best = _side(found.baseline, by), _side(found.best, by)
    holder = study.holder
    over = state.verdict or state.finished(Phase.MEASURE)
    stopped = "finished" if over else "stopped"
    return {
        "schema": SCHEMA,
        "study": study.name,
        "state": "running" if holder else stopped,
        "holder": holder,
        "verdict": state.verdict["verdict"] if state.verdict else None,
        "trial": _under_way(study),
        "trials": {**trial_counts(state), "done": counted(state), "budget": budget.trials},
        "proof": {
            "finalists": len(state.finished(Phase.FINALIST)),
            "confirmations": len(state.finished(Phase.CONFIRM)),
        },
        "baseline": baseline,
        "best": best,
        "ratio": _ratio(best, baseline),
        "change": _change(found, by),
        "seconds": {
            "elapsed": round(state.elapsed, 1),
            "left": None if over else round(seconds_left(state, budget), 1),
            "budget": budget.time,
        },
    }


def _under_way(study: Study) -> dict[str, Any] | None:
    last = study.state.trials[-1] if study.state.trials else None
    if last is None or last.over:
        return None
    seen = study.tallies.get(last.number)
    reading = seen.last if seen else None
    return {
        "trial": last.number,
        "phase": str(last.phase),
        "of": last.of,
        "deployed": bool(last.effective) or seen is not None,
        "windows": seen.warmed if seen else 0,
        "readings": seen.readings if seen else 0,
        "rate": reading["rate"] if reading else None,
    }


def _side(side: Side | None, by: Yardstick) -> dict[str, Any] | None:
    if side is None:
        return None
    known = side.fresh or side.own
    nothing = isinstance(by, Requests) and known is None
    found = dict.fromkeys(("peak", "low", "high"), 0.0) if nothing else numbers(known, by)
    return {"trial": side.trial.number, **found}


def _change(found: Claim, by: Yardstick) -> str | None:
    """The best against the baseline, in words."""
    sides = [side.fresh or side.own if side else None for side in (found.baseline, found.best)]
    before, after = (side.peak if side else 0.0 for side in sides)
    return by.change(after / before, before) if before and after else None


def _ratio(best: Mapping[str, Any] | None, baseline: Mapping[str, Any] | None) -> float | None:
    if not best or not baseline or not baseline["peak"]:
        return None
    ratio: float = best["peak"] / baseline["peak"]
    return round(ratio, 4)


def render_status(study: Study) -> str:
    """The same in a few lines of text."""
    return "\n".join(_lines(study, status(study))) + "\n"


def _lines(study: Study, now: Mapping[str, Any]) -> Iterator[str]:
    by = yardstick(study.target, study.state)
    yield f"{study.name}: {_what(now)}"
    if now["verdict"]:
        whole = summary(study.name, study.target, study.state)
        yield f"  verdict   {headline(whole, study.target, study.state)}"
    if now["trial"]:
        yield f"  now       {_doing(now, by)}"
    trials, proof = now["trials"], now["proof"]
    kinds = [f"{trials[kind]} {kind}" for kind in ("complete", "failed", "screened")]
    yield f"  trials    {trials['done']} of {trials['budget']}: {', '.join(kinds)}"
    if any(proof.values()):
        yield f"  proof     {_proof(proof)}"
    yield f"  baseline  {_peak(now['baseline'], by)}"
    if now["best"] or not now["verdict"]:
        yield f"  best      {_peak(now['best'], by)}{_so_far(now)}"
    yield f"  time      {_time(now)}"
    if now["state"] == "stopped":
        yield f"  next      autotune resume {study.name}"
    if now["state"] == "finished":
        yield f"  next      autotune report {study.name}"


def _what(now: Mapping[str, Any]) -> str:
    if now["holder"]:
        return f"running, {now['holder']}"
    return "finished" if now["state"] == "finished" else "stopped, nobody is running it"


def _doing(now: Mapping[str, Any], by: Yardstick) -> str:
    trial = now["trial"]
    what = f"trial {trial['trial']} ({trial['phase']}"
    what += f" of trial {trial['of']})" if trial["of"] is not None else ")"
    if now["state"] != "running":
        return f"{what} was interrupted; `resume` repeats it"
    if isinstance(by, Values):
        return f"{what} is being asked for, {figures.plural(trial['readings'], 'answer')} so far"
    if not trial["deployed"]:
        return f"{what} is being deployed"
    if not trial["readings"]:
        return f"{what} is warming up, {figures.plural(trial['windows'], 'window')} so far"
    readings = figures.plural(trial["readings"], "reading")
    return f"{what} is being measured: {readings}, the last at {figures.rate(trial['rate'])}/s"


def _proof(proof: Mapping[str, int]) -> str:
    finals = f"{figures.plural(proof['finalists'], 'finalist')} measured again"
    return f"{finals}, {figures.plural(proof['confirmations'], 'confirmation reading')}"


def _peak(side: Mapping[str, Any] | None, by: Yardstick) -> str:
    if side is None:
        return "not measured yet"
    if not by.told(side["peak"]):
        return f"{by.nothing} (trial {side['trial']})"
    interval = by.interval(side["low"], side["high"])
    return f"{by.amount(side['peak'])} {interval} (trial {side['trial']})"


def _so_far(now: Mapping[str, Any]) -> str:
    if now["best"] is None or now["verdict"]:
        return ""
    change = f", {now['change']} over the baseline" if now["change"] else ""
    return f"{change}: not yet a claim"


def _time(now: Mapping[str, Any]) -> str:
    spent = figures.duration(now["seconds"]["elapsed"])
    left = now["seconds"]["left"]
    return f"{spent} spent" + ("" if left is None else f", about {figures.duration(left)} left")
