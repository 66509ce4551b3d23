"""A study's peaks in the user's own terms: requests/s at an objective, or a command's value.

A study compares peaks, and higher is better. The peaks of a stack are requests/s. The peaks of a
benchmark command are scores of its values (`measure.objective_scale`), even if the values are
minimized. ``of`` turns a peak into the user's number; the other functions here take such numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log
from typing import Any

from autotune.measure.objective_scale import Scale
from autotune.optimize.confirmation import Gain
from autotune.report import format as fmt
from autotune.study.records import State
from autotune.target.model import Target


@dataclass(frozen=True)
class Requests:
    """The units of a stack: throughput at a latency objective."""

    objective: str
    nothing = "SLO not attainable at any rate"
    quantity = "capacity"
    unit = "requests/s"
    suffix = "/s"
    """The short unit after a number."""

    @property
    def at(self) -> str:
        return f" at {self.objective}"

    def shows(self, number: float | None) -> bool:
        """True if there is a number to show."""
        return bool(number)

    def of(self, peak: float) -> float:
        return peak

    def rounded(self, number: float) -> float:
        return round(number, 2)

    def amount(self, number: float | None) -> str:
        return f"{fmt.rate(number)} {self.unit}"

    def brief(self, number: float | None) -> str:
        return f"{fmt.rate(number)}{self.suffix}"

    def at_least(self, peak: float) -> str:
        """Return the text for a capacity that is known only as a lower bound."""
        return f"at least {self.amount(self.of(peak))}" if peak else "unknown capacity"

    def interval(self, low: float, high: float) -> str:
        return f"[{fmt.rate(low)}, {fmt.rate(high)}]"

    def change(self, ratio: float, baseline: float) -> str:
        """Return the change from the peak ``baseline`` to ``ratio`` times that peak, as text."""
        return fmt.change(ratio)

    def gain(self, gain: Gain, baseline: float) -> dict[str, Any]:
        """Return the gain as in ``report.summary``, relative to the peak ``baseline``."""
        ratios = {key: round(getattr(gain, key), 4) for key in ("ratio", "low", "high")}
        return {**ratios, "pairs": gain.pairs}

    def worse(self, gain: Mapping[str, Any]) -> bool:
        """True if the whole interval is a loss."""
        return bool(gain["high"] < 1)

    def better(self, gain: Mapping[str, Any]) -> bool:
        """True if the whole interval is a gain. A claim requires a wider interval above 1."""
        return bool(gain["low"] > 1)

    def gained(self, gain: Mapping[str, Any]) -> str:
        """Return the gain as text."""
        return f"{fmt.change_between(gain['ratio'], gain['low'], gain['high'])} requests/s"


@dataclass(frozen=True)
class Values:
    """The units of a benchmark command. ``scale`` is ``None`` before the first value."""

    name: str
    given_unit: str
    maximize: bool
    scale: Scale | None
    nothing = "no value"
    quantity = "value"
    at = ""

    @property
    def unit(self) -> str:
        return self.given_unit or self.name

    @property
    def suffix(self) -> str:
        return f" {self.given_unit}".rstrip()

    @property
    def objective(self) -> str:
        return f"{'maximize' if self.maximize else 'minimize'} {self.name}"

    def shows(self, number: float | None) -> bool:
        return number is not None

    def of(self, peak: float) -> float:
        assert self.scale is not None  # no peak exists before the first value
        return self.scale.value(peak)

    def rounded(self, number: float) -> float:
        return float(f"{number:.8g}")

    def amount(self, number: float | None) -> str:
        return f"{fmt.value(number)} {self.unit}"

    def brief(self, number: float | None) -> str:
        return f"{fmt.value(number)}{self.suffix}"

    def at_least(self, peak: float) -> str:
        """Return the text for a value that is known only as a bound."""
        return f"at least {self.amount(self.of(peak))}"

    def interval(self, low: float, high: float) -> str:
        return f"[{fmt.value(min(low, high))}, {fmt.value(max(low, high))}]"

    def change(self, ratio: float, baseline: float) -> str:
        before, after = self.of(baseline), self._grown(baseline, ratio)
        if min(before, after) > 0:
            return fmt.change(after / before)
        return f"{after - before:+.4g}"

    def gain(self, gain: Gain, baseline: float) -> dict[str, Any]:
        before = self.of(baseline)
        low, high = sorted(self._grown(baseline, end) for end in (gain.low, gain.high))
        ends = {"ratio": self._grown(baseline, gain.ratio), "low": low, "high": high}
        comparable = min(before, *ends.values()) > 0
        differences = {key: self.rounded(end - before) for key, end in ends.items()}
        return {
            **{key: round(end / before, 6) if comparable else None for key, end in ends.items()},
            "pairs": gain.pairs,
            "difference": {"value": differences.pop("ratio"), **differences},
        }

    def worse(self, gain: Mapping[str, Any]) -> bool:
        difference = gain["difference"]
        return bool(difference["high"] < 0 if self.maximize else difference["low"] > 0)

    def better(self, gain: Mapping[str, Any]) -> bool:
        difference = gain["difference"]
        return bool(difference["low"] > 0 if self.maximize else difference["high"] < 0)

    def gained(self, gain: Mapping[str, Any]) -> str:
        if gain["ratio"] is not None:
            return f"{fmt.change_between(gain['ratio'], gain['low'], gain['high'])} {self.name}"
        difference = gain["difference"]
        ends = f"{difference['low']:+.4g}, {difference['high']:+.4g}"
        return f"{difference['value']:+.4g} [{ends}] {self.unit}"

    def _grown(self, baseline: float, ratio: float) -> float:
        return self.of(exp(log(baseline) + log(ratio)))


Units = Requests | Values


def units_of(target: Target, state: State) -> Units:
    """Return the units in which reports show this study's peaks."""
    goal = target.goal
    if goal is None:
        return Requests(fmt.objective(target.slo.slo))
    first = next(iter(state.values.values()), None)
    by = Scale(goal.maximize, first[0]) if first else None
    return Values(goal.name, goal.unit, goal.maximize, by)
