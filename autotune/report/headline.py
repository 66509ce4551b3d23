"""The verdict in one line, with no more in it than was proven."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.report import figures
from autotune.report.yardstick import Requests, Values, Yardstick, yardstick
from autotune.study.records import State
from autotune.target.model import Target

Summary = Mapping[str, Any]


def headline(summary: Summary, target: Target, state: State) -> str:
    """``+41 % [36, 47] requests/s at p99 ≤ 50 ms, 6 alternating pairs``, or what is true."""
    said = _said(summary, yardstick(target, state))
    return f"{said}, of a model: no host was touched" if target.simulated else said


def _said(summary: Summary, by: Yardstick) -> str:
    match summary["verdict"]:
        case "improved":
            return _improved(summary, by)
        case "no-improvement":
            return _not_improved(summary, by)
        case "unmeetable":
            return _unmeetable(summary, by)
        case _:
            return _stopped(summary, by)


def _stopped(summary: Summary, by: Yardstick) -> str:
    name = summary["study"]
    if summary["baseline"] is None and not sum(summary["trials"].values()):
        return f"no verdict: {name} has compared nothing{by.at}"
    return f"unfinished: no verdict on {name} yet"


def _gain(summary: Summary, by: Yardstick) -> str:
    pairs = figures.plural(summary["gain"]["pairs"], "alternating pair")
    return f"{by.gained(summary['gain'])}{by.at}, {pairs}"


def _improved(summary: Summary, by: Yardstick) -> str:
    if summary["gain"]:
        return _gain(summary, by)
    # No ratio to nothing: the baseline does not meet the objective at any rate.
    lacking = "carries no load within it" if isinstance(by, Requests) else "cannot be used"
    return f"{by.amount(summary['best']['peak'])}{by.at}, where the baseline {lacking}"


def _not_improved(summary: Summary, by: Yardstick) -> str:
    gain = summary["gain"]
    if gain is None and sum(summary["trials"].values()) <= 1:
        return f"no improvement{by.at}: the time was up before anything but the baseline was tried"
    if gain is None:
        met = "met the objective" if isinstance(by, Requests) else "gave a value"
        reason = "was confirmed" if summary["best"] else met
        return f"no improvement{by.at}: no other configuration {reason}"
    if by.worse(gain):
        return f"no improvement: the best found is worse, {_gain(summary, by)}"
    return f"no distinguishable improvement: {_gain(summary, by)}"


def _unmeetable(summary: Summary, by: Yardstick) -> str:
    if isinstance(by, Values):
        return "no configuration gave a value that a second measurement bears out"
    at = by.objective
    if summary["best"]:
        number = summary["best"]["trial"]
        return f"{at} not met: trial {number} met it once, and no second measurement bears it out"
    return f"{at} not met: no configuration carried any load within it"
