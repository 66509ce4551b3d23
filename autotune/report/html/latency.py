"""Latency percentiles against offered rate: averages would hide the stalls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import exp, log
from typing import Any

from autotune.report.html.timeline import numbers_of, of_histogram
from autotune.report.studies import Study

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)
# Readings at rates this close together (log units) are one point: their histograms are summed.
WIDTH = 0.04


def percentile_curves(study: Study) -> dict[str, dict[str, list[float | None]]]:
    """For the baseline and the best: rates, requests behind each point, each percentile in ms.

    A percentile is of *intended* requests; ``None`` where too few were answered right at all.
    Readings that the generator limited, and those cut short, say nothing here.
    """
    return {
        label: _curve(reading for reading in study.readings if reading["trial"] in numbers)
        for label, numbers in numbers_of(study).items()
    }


def _curve(readings: Iterable[Mapping[str, Any]]) -> dict[str, list[float | None]]:
    whole = [r for r in readings if not r.get("limited") and not r.get("truncated")]
    points: dict[int, list[Mapping[str, Any]]] = {}
    for reading in whole:
        points.setdefault(round(log(reading["rate"]) / WIDTH), []).append(reading)
    curve: dict[str, list[float | None]] = {"rate": [], "requests": []}
    curve |= {f"p{q:g}": [] for q in PERCENTILES}
    for _, together in sorted(points.items()):
        intended = sum(reading["intended"] for reading in together)
        histogram: Counter[float] = Counter()
        for reading in together:
            histogram.update({float(e): n for e, n in (reading.get("histogram") or {}).items()})
        logs = [log(reading["rate"]) * reading["intended"] for reading in together]
        curve["rate"].append(round(exp(sum(logs) / intended), 1) if intended else None)
        curve["requests"].append(intended)
        for q in PERCENTILES:
            curve[f"p{q:g}"].append(of_histogram(histogram, intended, q / 100))
    return curve
