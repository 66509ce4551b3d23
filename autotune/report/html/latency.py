"""Latency percentiles against offered rate: averages would hide the stalls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from autotune.report.ladder import PERCENTILES, ladder
from autotune.report.view import StudyView


def percentile_curves(view: StudyView) -> dict[str, dict[str, list[float | None]]]:
    """For the baseline and the best: rates, requests behind each point, each percentile in ms.

    A percentile is of *intended* requests; ``None`` where too few were answered right at all.
    Readings that the generator limited, and those cut short, say nothing here.
    """
    return {label: _curve(readings) for label, readings in view.readings().items()}


def _curve(readings: Iterable[Mapping[str, Any]]) -> dict[str, list[float | None]]:
    rungs = [rung for rung in ladder(readings) if rung.limited is None and not rung.truncated]
    curve: dict[str, list[float | None]] = {
        "rate": [round(rung.rate, 1) for rung in rungs],
        "requests": [rung.intended for rung in rungs],
    }
    for percent in PERCENTILES:
        curve[f"p{percent:g}"] = [rung.percentile(percent) for rung in rungs]
    return curve
