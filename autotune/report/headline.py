"""The verdict in one line, with no more in it than was proven."""

from __future__ import annotations

from autotune.report import format as fmt
from autotune.report.objective import Requests, Values
from autotune.report.view import StudyView


def headline(view: StudyView) -> str:
    """``+41 % [36, 47] requests/s at p99 ≤ 50 ms, 6 alternating pairs``, or what is true."""
    text = _TEXTS.get(view.verdict, _stopped)(view)
    return f"{text}, of a model: no host was touched" if view.target.simulated else text


def _stopped(view: StudyView) -> str:
    if view.conclusion.baseline is None and not sum(view.trials.values()):
        return f"no verdict: {view.name} has compared nothing{view.units.at}"
    return f"unfinished: no verdict on {view.name} yet"


def _improved(view: StudyView) -> str:
    units = view.units
    if view.gain:
        return _gain(view)
    # No ratio to nothing: the baseline does not meet the SLO at any rate.
    lacking = "cannot meet it at any rate" if isinstance(units, Requests) else "cannot be used"
    best = units.amount(view.capacities["best"]["peak"])
    return f"{best}{units.at}, where the baseline {lacking}"


def _not_improved(view: StudyView) -> str:
    units = view.units
    if view.gain is None and sum(view.trials.values()) <= 1:
        return (
            f"no improvement{units.at}: the time was up before anything but the baseline was tried"
        )
    if view.gain is None:
        met = "met the SLO" if isinstance(units, Requests) else "gave a value"
        reason = "was confirmed" if view.conclusion.best else met
        return f"no improvement{units.at}: no other configuration {reason}"
    if units.worse(view.gain):
        return f"no improvement: the best found is worse, {_gain(view)}"
    return f"no distinguishable improvement: {_gain(view)}"


def _unmeetable(view: StudyView) -> str:
    if isinstance(view.units, Values):
        return "no configuration gave a value that was reproduced"
    at, best = view.units.objective, view.conclusion.best
    if best:
        number = best.trial.number
        return f"{at} not met: trial {number} met it once, not reproduced"
    return f"{at} not attainable at any rate with any configuration tried"


def _gain(view: StudyView) -> str:
    assert view.gain is not None
    pairs = fmt.plural(view.gain["pairs"], "alternating pair")
    return f"{view.units.gained(view.gain)}{view.units.at}, {pairs}"


_TEXTS = {
    "improved": _improved,
    "no-improvement": _not_improved,
    "unmeetable": _unmeetable,
}
