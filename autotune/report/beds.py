"""The test beds of a study: for each bed, its trials, its offset from an average bed, and the gain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import exp

from autotune.estimate import SDS_WITHIN_90
from autotune.optimize.confirmation import Gain
from autotune.report import documents
from autotune.report import format as fmt
from autotune.report.documents import BedOffsetInterval, BedSummaries, BedSummary
from autotune.report.figures import StudyFigures
from autotune.study.study_state import State
from autotune.target.messages import format_count


def summarize_beds(view: StudyFigures) -> BedSummaries:
    """Return the figures of each test bed by name, and whether the gains disagree.

    - ``trials``: the number of finished trials. ``per_hour``: trials per hour of the bed's time.
    - ``offset``: peaks relative to the peaks of an average bed (1.1 is 10 % higher), with the ends
      ``low`` and ``high`` of the 90 % interval. ``noise`` is the sd of the logarithm of one additional
      measurement. ``offset`` and ``noise`` are ``null`` while they are unknown.
    - ``gain``: gain of the best configuration over the baseline on this bed, from the bed's own
      ``pairs``; ``null`` without pairs.
    - ``set_aside``: why the bed was removed from the study, or ``null``.
    - ``disagree``: true if the gains of the beds differ by more than noise.
    """
    state, verdict = view.state, view.state.verdict
    gains = verdict.beds if verdict else {}
    return {
        "each": {bed: _summarize_bed(state, bed, gains.get(bed)) for bed in state.beds},
        "disagree": bool(verdict and verdict.disagree),
    }


def _summarize_bed(state: State, bed: str, gain: Gain | None) -> BedSummary:
    finished_count = sum(trial.bed == bed for trial in state.list_finished_trials())
    seconds = state.bed_seconds.get(bed, 0.0)
    return {
        "trials": finished_count,
        "seconds": round(seconds, 1),
        "per_hour": round(3600 * finished_count / seconds, 1) if seconds else None,
        "offset": _format_offset(state, bed),
        "gain": _encode_gain(gain) if gain else None,
        "set_aside": state.exclusion_reasons.get(bed),
    }


def _encode_gain(gain: Gain) -> documents.GainObject:
    ratio, low, high = (round(gain_figure, 4) for gain_figure in (gain.ratio, gain.low, gain.high))
    return {"ratio": ratio, "low": low, "high": high, "pairs": gain.pairs}


def _format_offset(state: State, bed: str) -> BedOffsetInterval | None:
    if bed not in state.offsets:
        return None
    offset = state.offsets[bed]
    half_width = SDS_WITHIN_90 * offset.sd
    ratio, low, interval_high = (
        round(exp(offset.log + log_ratio), 4) for log_ratio in (0.0, -half_width, half_width)
    )
    return {"ratio": ratio, "low": low, "high": interval_high, "noise": round(offset.noise, 4)}


def _format_interval(figures: BedOffsetInterval | documents.GainObject) -> str:
    """Return a ratio and its 90 % interval as text, in percentage changes."""
    ratio, low, high = (figures[figure_name] or 0.0 for figure_name in ("ratio", "low", "high"))
    return fmt.format_change_interval(ratio, low, high)


def compute_name_width(bed_names: Iterable[str], minimum: int) -> int:
    """Return the width of a column of bed names, with a space after the longest name."""
    return max([minimum, *(len(bed_name) + 1 for bed_name in bed_names)])


def format_bed_lines(view: StudyFigures) -> Iterator[str]:
    """Yield a line for each test bed, and a warning if the gains of the beds disagree."""
    document = summarize_beds(view)
    name_width = compute_name_width(document["each"], 9)
    for bed_name, bed in document["each"].items():
        columns = [f"{bed_name:{name_width}}{format_count(bed['trials'], 'measurement')}"]
        if offset := bed["offset"]:
            columns.append(
                f"{_format_interval(offset)} vs. average bed, noise {100 * offset['noise']:.0f} %"
            )
        if gain := bed["gain"]:
            columns.append(
                f"gain {_format_interval(gain)} in {format_count(gain['pairs'], 'pair')}"
            )
        yield ", ".join(columns)
        if bed["set_aside"]:
            yield f"{'':{name_width}}removed from the study: {bed['set_aside']}"
    if document["disagree"]:
        yield "! the gains of the beds differ by more than noise; with few beds, the interval is wide"


def build_bed_rows(view: StudyFigures) -> Iterator[tuple[str, ...]]:
    """Yield a row for each test bed: name, trials, offset from an average bed, noise, gain, status."""
    for bed_name, bed in summarize_beds(view)["each"].items():
        offset, gain = bed["offset"], bed["gain"]
        pairs_text = format_count(gain["pairs"], "pair") if gain else ""
        yield (
            bed_name,
            str(bed["trials"]),
            _format_interval(offset) if offset else "–",
            f"{100 * offset['noise']:.0f} %" if offset else "–",
            f"{_format_interval(gain)}, {pairs_text}" if gain else "–",
            f"removed: {bed['set_aside']}" if bed["set_aside"] else "active",
        )


def format_bed_count(view: StudyFigures) -> str:
    """Return the number of test beds that confirmed a gain, as text for the end of a sentence."""
    verdict = view.state.verdict
    if verdict is None or not verdict.beds:
        return ""
    bed_count = len(verdict.beds)
    bed_text = " on one test bed only" if bed_count == 1 else f" on {bed_count} test beds"
    return bed_text + (" that disagree" if verdict.disagree else "")
