"""What `autotune measure` found, as one JSON object and in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from autotune.report.summary import numbers
from autotune.report.yardstick import Requests, Yardstick
from autotune.run.measuring import Found
from autotune.study.records import Peak

SCHEMA = 1


def as_json(found: Found, by: Yardstick) -> dict[str, Any]:
    """``peaks`` and ``spread`` of repeats; with a baseline, both sides' and the ``gain``.

    Peaks are in requests/s (or a benchmark's values), ``sd`` is that of a peak's logarithm.
    """
    said: dict[str, Any] = {"schema": SCHEMA, "study": found.study}
    if found.gain is not None:
        baseline = found.baseline[0].peak
        return {
            **said,
            "baseline": [_peak(peak, by) for peak in found.baseline],
            "configuration": [_peak(peak, by) for peak in found.peaks],
            "gain": by.gain(found.gain, baseline),
        }
    return {
        **said,
        "peaks": [_peak(peak, by) for peak in found.peaks],
        "peak": by.of(found.peak) if found.peak else 0.0,
        "spread": found.spread,
    }


def text(found: Found, by: Yardstick) -> str:
    """The result for a person."""
    return "\n".join([*_lines(found, by), f"every reading is in study {found.study}"])


def _lines(found: Found, by: Yardstick) -> Iterator[str]:
    if found.gain is not None:
        gain = by.gained(by.gain(found.gain, found.baseline[0].peak))
        yield f"{gain}{by.at} against the baseline, {found.gain.pairs} alternating pairs"
        return
    for peak in found.peaks:
        if not peak.feasible and isinstance(by, Requests):
            yield f"{by.nothing} ({by.objective})"
            continue
        interval = by.interval(by.of(peak.low), by.of(peak.high))
        yield f"{by.amount(by.of(peak.peak))} {interval}, {peak.verdict}"
    if found.spread is not None:
        yield f"spread between repeats: {100 * found.spread:.1f} %"


def _peak(peak: Peak, by: Yardstick) -> dict[str, Any]:
    return {**asdict(peak), **(numbers(peak, by) if peak.peak else {})}
