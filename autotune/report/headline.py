"""The verdict in one line, with no more in it than was proven."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.report import figures
from autotune.target.model import Target

Summary = Mapping[str, Any]


def headline(summary: Summary, target: Target) -> str:
    """``+41 % [36, 47] requests/s at p99 ≤ 50 ms, 6 alternating pairs``, or what is true."""
    said = _said(summary, target)
    return f"{said}, of a model: no host was touched" if target.simulated else said


def _said(summary: Summary, target: Target) -> str:
    at = figures.objective(target.slo.slo)
    match summary["verdict"]:
        case "improved":
            return _improved(summary, at)
        case "no-improvement":
            return _not_improved(summary, at)
        case "unmeetable":
            return _unmeetable(summary, at)
        case _:
            return _stopped(summary, at)


def _stopped(summary: Summary, at: str) -> str:
    name = summary["study"]
    if summary["baseline"] is None and not sum(summary["trials"].values()):
        return f"no verdict: {name} has compared nothing at {at}"
    return f"unfinished: no verdict on {name} yet"


def _gain(summary: Summary, at: str) -> str:
    gain = summary["gain"]
    interval = figures.change_between(gain["ratio"], gain["low"], gain["high"])
    return f"{interval} requests/s at {at}, {figures.plural(gain['pairs'], 'alternating pair')}"


def _improved(summary: Summary, at: str) -> str:
    if summary["gain"]:
        return _gain(summary, at)
    # No ratio to nothing: the baseline does not meet the objective at any rate.
    peak = figures.rate(summary["best"]["peak"])
    return f"{peak} requests/s at {at}, where the baseline carries no load within it"


def _not_improved(summary: Summary, at: str) -> str:
    gain = summary["gain"]
    if gain is None and sum(summary["trials"].values()) <= 1:
        return f"no improvement at {at}: the time was up before anything but the baseline was tried"
    if gain is None:
        reason = "was confirmed" if summary["best"] else "met the objective"
        return f"no improvement at {at}: no other configuration {reason}"
    if gain["high"] < 1:
        return f"no improvement: the best found is worse, {_gain(summary, at)}"
    return f"no distinguishable improvement: {_gain(summary, at)}"


def _unmeetable(summary: Summary, at: str) -> str:
    if summary["best"]:
        number = summary["best"]["trial"]
        return f"{at} not met: trial {number} met it once, and no second measurement bears it out"
    return f"{at} not met: no configuration carried any load within it"
