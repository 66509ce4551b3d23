"""The test beds of a study side by side: what each did, how it differs, and the gain on each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import exp
from typing import Any

from autotune.estimate import WITHIN_90
from autotune.report import format as fmt
from autotune.report.view import StudyView
from autotune.study.records import State
from autotune.target.messages import plural


def beds(view: StudyView) -> dict[str, Any]:
    """By the name of each bed.

    - ``trials``: how many it finished, and how many ``per_hour`` of its time.
    - ``offset``: its peaks relative to an average bed's (1.1 is 10 % more) with the ends ``low`` and
      ``high`` of the 90 % interval, and ``noise``, the sd of the logarithm of one more measurement;
      ``null`` while nothing is known of it.
    - ``gain``: best over baseline there, from its own ``pairs``; ``null`` without any.
    - ``set_aside``: why it no longer takes part, or ``null``.
    - ``disagree``, of all of them: whether their gains differ by more than noise.
    """
    state, verdict = view.state, view.state.verdict or {}
    gains = verdict.get("beds", {})
    return {
        "each": {bed: _bed(state, bed, gains.get(bed)) for bed in state.beds},
        "disagree": bool(verdict.get("disagree")),
    }


def _bed(state: State, bed: str, gain: Mapping[str, Any] | None) -> dict[str, Any]:
    finished = sum(trial.bed == bed for trial in state.finished())
    seconds = state.bed_seconds.get(bed, 0.0)
    return {
        "trials": finished,
        "seconds": round(seconds, 1),
        "per_hour": round(3600 * finished / seconds, 1) if seconds else None,
        "offset": _offset(state, bed),
        "gain": {k: v if k == "pairs" else round(v, 4) for k, v in gain.items()} if gain else None,
        "set_aside": state.set_aside.get(bed),
    }


def _offset(state: State, bed: str) -> dict[str, float] | None:
    if bed not in state.offsets:
        return None
    offset = state.offsets[bed]
    half = WITHIN_90 * offset.sd
    ends = {"ratio": 0.0, "low": -half, "high": half}
    return {
        **{key: round(exp(offset.log + end), 4) for key, end in ends.items()},
        "noise": round(offset.noise, 4),
    }


def bed_lines(view: StudyView) -> Iterator[str]:
    """A line for each test bed, and a warning where their gains disagree."""
    document = beds(view)
    for name, bed in document["each"].items():
        columns = [f"{name:9}{plural(bed['trials'], 'trial')}"]
        if offset := bed["offset"]:
            between = fmt.change_between(offset["ratio"], offset["low"], offset["high"])
            columns.append(f"{between} beside an average one, noise {100 * offset['noise']:.0f} %")
        if gain := bed["gain"]:
            change = fmt.change_between(gain["ratio"], gain["low"], gain["high"])
            columns.append(f"gain {change} in {plural(gain['pairs'], 'pair')}")
        yield ", ".join(columns)
        if bed["set_aside"]:
            yield f"{'':9}set aside: {bed['set_aside']}"
    if document["disagree"]:
        yield "! their gains differ by more than noise: the interval is that of so few test beds"


def bed_rows(view: StudyView) -> Iterator[tuple[str, ...]]:
    """A row for each test bed: name, trials, offset from an average bed, noise, gain, whether it takes
    part."""
    for name, bed in beds(view)["each"].items():
        offset, gain = bed["offset"], bed["gain"]
        pairs = plural(gain["pairs"], "pair") if gain else ""
        yield (
            name,
            str(bed["trials"]),
            fmt.change_between(offset["ratio"], offset["low"], offset["high"]) if offset else "–",
            f"{100 * offset['noise']:.0f} %" if offset else "–",
            f"{fmt.change_between(gain['ratio'], gain['low'], gain['high'])}, {pairs}"
            if gain
            else "–",
            f"set aside: {bed['set_aside']}" if bed["set_aside"] else "yes",
        )


def of_beds(view: StudyView) -> str:
    """On how many test beds a gain was confirmed, for the end of a sentence."""
    verdict = view.state.verdict or {}
    confirmed = len(verdict.get("beds", {}))
    if not confirmed:
        return ""
    where = " on one test bed only" if confirmed == 1 else f" on {confirmed} test beds"
    return where + (" that disagree" if verdict.get("disagree") else "")
