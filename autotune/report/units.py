"""A study's peaks in the user's own terms: requests/s at an objective, or a command's value.

A study compares peaks, and a higher peak is better. The peaks of a stack are requests/s. The peaks of a
benchmark command are scores of its values (`measure.objective_scale`), even if the values are
minimized. ``from_peak`` converts a peak to the user's number. Parameters called ``number`` expect the
user's number.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log

from autotune.measure.objective_scale import ObjectiveScale
from autotune.optimize.confirmation import Gain
from autotune.report import format as fmt
from autotune.study.study_state import State
from autotune.target.model import Target


@dataclass(frozen=True)
class DifferenceFigures:
    """A difference of a command's values, with its 90 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class GainFigures:
    """A gain in the user's units: the ratio with its 90 % interval, from ``pairs`` alternating pairs.

    A command's values also have a ``difference``. The ratio is ``None`` if a value is not positive.
    ``interval_text`` is the gain as text, ``+41 % [36, 47]``; ``text`` also names the unit.
    """

    ratio: float | None
    low: float | None
    high: float | None
    pairs: int
    difference: DifferenceFigures | None = None
    interval_text: str = ""
    text: str = ""


@dataclass(frozen=True)
class RequestUnits:
    """The units of measurement of a stack: throughput at a latency objective."""

    objective: str
    no_result_text = "SLO not attainable at any rate"
    quantity_name = "capacity"
    unit = "requests/s"
    unit_suffix = "/s"
    """The short form of the unit, for use after a number."""

    @property
    def objective_suffix(self) -> str:
        return f" at {self.objective}"

    def has_value(self, number: float | None) -> bool:
        """True if there is a number to show."""
        return bool(number)

    def from_peak(self, peak: float) -> float:
        return peak

    def round_value(self, number: float) -> float:
        return round(number, 2)

    def format_amount(self, number: float | None) -> str:
        return f"{fmt.format_rate(number)} {self.unit}"

    def format_short(self, number: float | None) -> str:
        return f"{fmt.format_rate(number)}{self.unit_suffix}"

    def format_lower_bound(self, peak: float) -> str:
        """Return text for a lower bound of a capacity that is not known exactly."""
        return (
            f"at least {self.format_amount(self.from_peak(peak))}" if peak else "unknown capacity"
        )

    def format_interval(self, low: float, high: float) -> str:
        return f"[{fmt.format_rate(low)}, {fmt.format_rate(high)}]"

    def format_change(self, ratio: float, baseline: float) -> str:
        """Return the text for a peak that is ``ratio`` times the peak ``baseline``."""
        return fmt.format_change(ratio)

    def build_gain(self, gain: Gain, baseline: float) -> GainFigures:
        """Return the gain relative to the peak ``baseline``."""
        ratio, low, high = (round(gain_end, 4) for gain_end in (gain.ratio, gain.low, gain.high))
        gain_text = fmt.format_change_interval(ratio, low, high)
        return GainFigures(
            ratio, low, high, gain.pairs, interval_text=gain_text, text=f"{gain_text} {self.unit}"
        )

    def is_loss(self, gain: GainFigures) -> bool:
        """True if the whole interval is a loss."""
        return gain.high is not None and gain.high < 1

    def is_gain(self, gain: GainFigures) -> bool:
        """True if the whole interval is a gain. To claim a gain, a wider interval must be above 1."""
        return gain.low is not None and gain.low > 1


@dataclass(frozen=True)
class ValueUnits:
    """The units of a benchmark command. ``scale`` is ``None`` before the first value."""

    name: str
    declared_unit: str
    maximize: bool
    scale: ObjectiveScale | None
    no_result_text = "no value"
    quantity_name = "value"
    objective_suffix = ""

    @property
    def unit(self) -> str:
        return self.declared_unit or self.name

    @property
    def unit_suffix(self) -> str:
        return f" {self.declared_unit}".rstrip()

    @property
    def objective(self) -> str:
        return f"{'maximize' if self.maximize else 'minimize'} {self.name}"

    def has_value(self, number: float | None) -> bool:
        return number is not None

    def from_peak(self, peak: float) -> float:
        assert self.scale is not None  # no peak exists before the first value
        return self.scale.convert_score_to_value(peak)

    def round_value(self, number: float) -> float:
        return float(f"{number:.8g}")

    def format_amount(self, number: float | None) -> str:
        return f"{fmt.format_value(number)} {self.unit}"

    def format_short(self, number: float | None) -> str:
        return f"{fmt.format_value(number)}{self.unit_suffix}"

    def format_lower_bound(self, peak: float) -> str:
        """Return text for a bound of a value that is not known exactly."""
        return f"at least {self.format_amount(self.from_peak(peak))}"

    def format_interval(self, low: float, high: float) -> str:
        return f"[{fmt.format_value(min(low, high))}, {fmt.format_value(max(low, high))}]"

    def format_change(self, ratio: float, baseline: float) -> str:
        value_before, value_after = self.from_peak(baseline), self._scale_value(baseline, ratio)
        if min(value_before, value_after) > 0:
            return fmt.format_change(value_after / value_before)
        return f"{value_after - value_before:+.4g}"

    def build_gain(self, gain: Gain, baseline: float) -> GainFigures:
        baseline_value = self.from_peak(baseline)
        low, high_value = sorted(self._scale_value(baseline, end) for end in (gain.low, gain.high))
        scaled_ends = (self._scale_value(baseline, gain.ratio), low, high_value)
        is_comparable = min(baseline_value, *scaled_ends) > 0
        ratio, low_ratio, high_ratio = (
            round(end / baseline_value, 6) if is_comparable else None for end in scaled_ends
        )
        differences = (self.round_value(end - baseline_value) for end in scaled_ends)
        difference = DifferenceFigures(*differences)
        if ratio is None or low_ratio is None or high_ratio is None:
            interval_text = f"{difference.low:+.4g}, {difference.high:+.4g}"
            gain_text, unit = f"{difference.value:+.4g} [{interval_text}]", self.unit
        else:
            gain_text, unit = fmt.format_change_interval(ratio, low_ratio, high_ratio), self.name
        return GainFigures(
            ratio, low_ratio, high_ratio, gain.pairs, difference, gain_text, f"{gain_text} {unit}"
        )

    def is_loss(self, gain: GainFigures) -> bool:
        difference = gain.difference
        if difference is None:
            return False
        return difference.high < 0 if self.maximize else difference.low > 0

    def is_gain(self, gain: GainFigures) -> bool:
        difference = gain.difference
        if difference is None:
            return False
        return difference.low > 0 if self.maximize else difference.high < 0

    def _scale_value(self, baseline_peak: float, peak_ratio: float) -> float:
        return self.from_peak(exp(log(baseline_peak) + log(peak_ratio)))


Units = RequestUnits | ValueUnits


def select_units(target: Target, state: State) -> Units:
    """Return the units in which reports show this study's peaks."""
    goal = target.command_goal
    if goal is None:
        return RequestUnits(fmt.format_objective(target.slo.objective))
    first_values = next(iter(state.values.values()), None)
    scale = ObjectiveScale(goal.maximize, first_values[0]) if first_values else None
    return ValueUnits(goal.name, goal.unit, goal.maximize, scale)
