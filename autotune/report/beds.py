"""The test beds of a study: the work of each, its offset, and the gain on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import exp
from typing import Any

from autotune.estimate import SDS_WITHIN_90
from autotune.report import format as fmt
from autotune.report.view import StudyView
from autotune.study.study_state import State
from autotune.target.messages import format_count


def summarize_beds(view: StudyView) -> dict[str, Any]:
    """Return the figures of each test bed by name, and whether the gains disagree.

    - ``trials``: the number of finished trials, and trials ``per_hour`` of the bed's time.
    - ``offset``: peaks relative to an average bed (1.1 is 10 % more), with the ends ``low`` and
      ``high`` of the 90 % interval. ``noise`` is the sd of the logarithm of one more measurement.
      ``null`` while unknown.
    - ``gain``: best over baseline on this bed, from its own ``pairs``; ``null`` without any.
    - ``set_aside``: why the bed was removed from the study, or ``null``.
    - ``disagree``: true if the gains of the beds differ by more than noise.
    """
    state, verdict = view.state, view.state.verdict or {}
    gains = verdict.get("beds", {})
    return {
        "each": {bed: _summarize_bed(state, bed, gains.get(bed)) for bed in state.beds},
        "disagree": bool(verdict.get("disagree")),
    }


def _summarize_bed(state: State, bed: str, gain: Mapping[str, Any] | None) -> dict[str, Any]:
    finished = sum(trial.bed == bed for trial in state.list_finished())
    seconds = state.bed_seconds.get(bed, 0.0)
    return {
        "trials": finished,
        "seconds": round(seconds, 1),
        "per_hour": round(3600 * finished / seconds, 1) if seconds else None,
        "offset": _format_offset(state, bed),
        "gain": {k: v if k == "pairs" else round(v, 4) for k, v in gain.items()} if gain else None,
        "set_aside": state.exclusion_reasons.get(bed),
    }


def _format_offset(state: State, bed: str) -> dict[str, float] | None:
    if bed not in state.offsets:
        return None
    offset = state.offsets[bed]
    half = SDS_WITHIN_90 * offset.sd
    ends = {"ratio": 0.0, "low": -half, "high": half}
    return {
        **{key: round(exp(offset.log + end), 4) for key, end in ends.items()},
        "noise": round(offset.noise, 4),
    }


def format_bed_lines(view: StudyView) -> Iterator[str]:
    """Yield a line per test bed, and a warning if their gains disagree."""
    document = summarize_beds(view)
    for name, bed in document["each"].items():
        columns = [f"{name:9}{format_count(bed['trials'], 'measurement')}"]
        if offset := bed["offset"]:
            interval = fmt.format_change_interval(offset["ratio"], offset["low"], offset["high"])
            columns.append(f"{interval} vs. average bed, noise {100 * offset['noise']:.0f} %")
        if gain := bed["gain"]:
            change = fmt.format_change_interval(gain["ratio"], gain["low"], gain["high"])
            columns.append(f"gain {change} in {format_count(gain['pairs'], 'pair')}")
        yield ", ".join(columns)
        if bed["set_aside"]:
            yield f"{'':9}removed from the study: {bed['set_aside']}"
    if document["disagree"]:
        yield "! the gains of the beds differ by more than noise; with few beds, the interval is wide"


def build_bed_rows(view: StudyView) -> Iterator[tuple[str, ...]]:
    """Yield a row per test bed: name, trials, offset from an average bed, noise, gain, status."""
    for name, bed in summarize_beds(view)["each"].items():
        offset, gain = bed["offset"], bed["gain"]
        pairs = format_count(gain["pairs"], "pair") if gain else ""
        yield (
            name,
            str(bed["trials"]),
            fmt.format_change_interval(offset["ratio"], offset["low"], offset["high"])
            if offset
            else "–",
            f"{100 * offset['noise']:.0f} %" if offset else "–",
            f"{fmt.format_change_interval(gain['ratio'], gain['low'], gain['high'])}, {pairs}"
            if gain
            else "–",
            f"removed: {bed['set_aside']}" if bed["set_aside"] else "active",
        )


def format_bed_count(view: StudyView) -> str:
    """Return the number of test beds that confirmed a gain, for the end of a sentence."""
    verdict = view.state.verdict or {}
    bed_count = len(verdict.get("beds", {}))
    if not bed_count:
        return ""
    location = " on one test bed only" if bed_count == 1 else f" on {bed_count} test beds"
    return location + (" that disagree" if verdict.get("disagree") else "")
